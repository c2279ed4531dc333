-- What the workers of a session run in, those that are gone too.
SELECT c.id, c.state, c.desired, c.started_at, c.termination_reason, c.exit_code, c.stop_grace_seconds
FROM workers w JOIN containers c ON c.id = w.container_id
WHERE w.session_id = $1
ORDER BY w.id
