-- A container that is heard is its workers being heard.
UPDATE workers
SET last_heartbeat_at = $2
WHERE container_id = $1 AND terminated_at IS NULL AND (last_heartbeat_at IS NULL OR last_heartbeat_at < $2)
