-- An attempt is over.
UPDATE attempts
SET status = $3, exit_code = $4, failure_reason = $5, message = $6, ended_at = $7
WHERE task_id = $1 AND attempt = $2 AND ended_at IS NULL
