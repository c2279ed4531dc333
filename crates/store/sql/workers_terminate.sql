-- The workers of a container end with it.
UPDATE workers
SET state = 'terminated', terminated_at = $2, exit_code = $3, updated_at = $4
WHERE container_id = $1 AND terminated_at IS NULL
