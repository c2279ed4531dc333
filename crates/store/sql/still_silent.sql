-- One row while nothing has been heard of a container since it was looked at: who ends it for its silence may have looked
-- long ago. $2 is empty for one that was never heard.
SELECT 1
FROM container_vitals
WHERE container_id = $1 AND COALESCE(last_heartbeat_at, '') = $2
-- postgres: FOR SHARE
