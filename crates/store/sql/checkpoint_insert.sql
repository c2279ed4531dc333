-- Something is done, and will not be done again.
INSERT INTO checkpoints (id, session_id, phase, task_id, at)
VALUES ($1, $2, $3, $4, $5)
