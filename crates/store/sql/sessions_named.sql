-- Sessions with exactly this name: those that are not over first, and of these the newest.
SELECT session_id, status
FROM sessions
WHERE name = $1
ORDER BY CASE WHEN status IN ('completed', 'error', 'cancelled') THEN 1 ELSE 0 END, started_at DESC, session_id DESC
LIMIT 10
