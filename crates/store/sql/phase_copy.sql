-- What an earlier session has done is done in the one that continues it, too.
INSERT INTO session_phases (session_id, position, name, status, started_at, completed_at, outputs, child_session_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
