-- A task that somebody else named gets a row, so that its containers can refer to it.
INSERT INTO tasks (id, title, session_id, created_at, updated_at)
VALUES ($1, $2, $3, $4, $4)
ON CONFLICT (id) DO NOTHING
