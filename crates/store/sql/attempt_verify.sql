-- What verifies it, before it exists.
UPDATE attempts
SET status = 'verifying', verify_container_id = $3
WHERE task_id = $1 AND attempt = $2 AND ended_at IS NULL AND verify_container_id IS NULL
