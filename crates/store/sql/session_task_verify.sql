-- Its command succeeded; now it is verified.
UPDATE tasks
SET state = 'verifying', updated_at = $3
WHERE id = $1 AND attempt = $2 AND state = 'running'
