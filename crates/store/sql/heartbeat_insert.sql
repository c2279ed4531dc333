-- The sample itself, at the time it was received.
INSERT INTO heartbeats (container_id, timestamp, cpu_percent, memory_percent, memory_mb, disk_percent,
                        uptime_seconds, tmux_active, claude_responsive, metadata)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
