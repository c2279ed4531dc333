-- A phase is over; one that starts nothing had no row.
INSERT INTO session_phases (session_id, position, name, status, started_at, completed_at, outputs, error)
VALUES ($1, $2, $3, $4, $5, $5, $6, $7)
ON CONFLICT (session_id, position) DO UPDATE
SET status = excluded.status, completed_at = excluded.completed_at, outputs = excluded.outputs, error = excluded.error
WHERE session_phases.status = 'running'
