-- The phases of a session that have begun, in their order.
SELECT position, name, status, started_at, completed_at, outputs, error, child_session_id
FROM session_phases
WHERE session_id = $1
ORDER BY position
