-- The workers of a container are as healthy as it is.
UPDATE workers
SET health_status = $2, updated_at = $3
WHERE container_id = $1 AND terminated_at IS NULL
