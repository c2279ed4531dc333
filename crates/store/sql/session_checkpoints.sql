-- The checkpoints of a session after $2, in their order.
SELECT id, session_id, phase, task_id, at
FROM checkpoints
WHERE session_id = $1 AND id > $2
ORDER BY id
LIMIT $3
