-- One row while a container is what it was when it was looked at: not heard since ($2 is empty for one that never was), and
-- of the same health. Who ends it for its silence may have looked long ago, and may have been away itself in between.
SELECT 1
FROM container_vitals AS v
JOIN containers AS c ON c.id = v.container_id
WHERE v.container_id = $1 AND COALESCE(v.last_heartbeat_at, '') = $2 AND c.health_status = $3
-- postgres: FOR SHARE
