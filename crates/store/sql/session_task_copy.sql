-- A task that an earlier session has completed.
INSERT INTO tasks (id, title, state, session_id, phase, position, key, exit_code, outputs, started_at, completed_at,
                   created_at, updated_at)
VALUES ($1, $2, 'completed', $3, $4, $5, $6, $7, $8, $9, $10, $11, $11)
