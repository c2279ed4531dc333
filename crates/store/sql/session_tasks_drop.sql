-- The phase is over without them: what did not begin never will, and what rests until a person has answered rests for nothing.
UPDATE tasks
SET state = 'cancelled', retry_at = NULL, completed_at = $3, updated_at = $3
WHERE session_id = $1 AND phase = $2
  AND (state = 'pending'
       OR (state = 'running' AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.task_id = tasks.id AND a.ended_at IS NULL)))
