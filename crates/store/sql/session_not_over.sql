-- The guard of what is meant for a session: it is not over.
SELECT session_id
FROM sessions
WHERE session_id = $1 AND status NOT IN ('completed', 'error', 'cancelled')
