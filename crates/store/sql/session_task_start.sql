-- The next attempt of a task: claimed once, from the one before it.
UPDATE tasks
SET state = 'running', attempt = $2, retry_at = NULL, started_at = COALESCE(started_at, $3), updated_at = $3
WHERE id = $1 AND attempt = $2 - 1 AND state IN ('pending', 'running')
