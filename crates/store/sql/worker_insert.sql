-- A worker process, before its container is known.
INSERT INTO workers (id, task_id, state, container_id, session_id, metadata, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
