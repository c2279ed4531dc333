-- A phase has begun.
INSERT INTO session_phases (session_id, position, name, status, started_at, child_session_id)
VALUES ($1, $2, $3, 'running', $4, $5)
