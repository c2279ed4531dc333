-- Sessions with exactly this name, the newest first.
SELECT session_id, status
FROM sessions
WHERE name = $1
ORDER BY started_at DESC, session_id DESC
LIMIT 10
