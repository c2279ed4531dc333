-- An attempt, before anything of it exists.
INSERT INTO attempts (task_id, attempt, session_id, phase, status, container_id, worker_id, started_at)
VALUES ($1, $2, $3, $4, 'running', $5, $6, $7)
