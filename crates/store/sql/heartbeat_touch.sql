-- What a heartbeat may change of its container: when it was last heard (by our clock, which may have been
-- set back: a time in the future would hide a silence) and its usage. A figure that the sample lacks is kept. No row: nobody knows this container.
UPDATE container_vitals
SET last_heartbeat_at = $2,
    cpu_percent = COALESCE($3, cpu_percent), memory_percent = COALESCE($4, memory_percent),
    memory_used_mb = COALESCE($5, memory_used_mb), disk_percent = COALESCE($6, disk_percent),
    uptime_seconds = COALESCE($7, uptime_seconds)
WHERE container_id = $1
