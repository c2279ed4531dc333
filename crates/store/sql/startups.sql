-- The last starts, newest first.
SELECT owner_id, host, version, started_at, finished_at, steps
FROM startups
ORDER BY started_at DESC, owner_id DESC
LIMIT $1
