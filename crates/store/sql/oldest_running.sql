-- The container that has run longest.
SELECT id, COALESCE(started_at, created_at)
FROM containers
WHERE state = 'running'
ORDER BY COALESCE(started_at, created_at), id
LIMIT 1
