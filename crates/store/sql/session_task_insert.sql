-- A task of a phase that begins.
INSERT INTO tasks (id, title, state, session_id, phase, position, key, created_at, updated_at)
VALUES ($1, $2, 'pending', $3, $4, $5, $6, $7, $7)
