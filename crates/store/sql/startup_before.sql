-- The last start of this home before the one of owner $2.
SELECT s.owner_id, s.host, s.version, s.started_at, s.finished_at, s.steps
FROM startups s JOIN owners o ON o.id = s.owner_id
WHERE o.home_id = $1 AND s.owner_id <> $2
ORDER BY s.started_at DESC, s.owner_id DESC
LIMIT 1
