-- A session that is over has nothing that runs.
SELECT 1
WHERE NOT EXISTS (SELECT 1 FROM attempts WHERE session_id = $1 AND ended_at IS NULL)
