-- When the first task of a level that failed may be tried again.
SELECT MIN(retry_at)
FROM tasks
WHERE session_id = $1 AND phase = $2 AND state = 'pending' AND retry_at IS NOT NULL
