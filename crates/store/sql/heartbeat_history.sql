-- Raw heartbeats of one container, newest first. On SQLite they are picked out of everybody's, by time: a person
-- asks seldom, and an index by container would cost every heartbeat a page of its own in the log.
SELECT id, container_id, timestamp, cpu_percent, memory_percent, memory_mb, disk_percent, uptime_seconds,
       tmux_active, claude_responsive, metadata
FROM heartbeats
WHERE container_id = $1 AND timestamp >= $2
ORDER BY timestamp DESC, id DESC
LIMIT $3
