-- One checkpoint.
SELECT id, session_id, phase, task_id, at
FROM checkpoints
WHERE id = $1
