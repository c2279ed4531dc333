-- heartbeat_insert for a whole batch, in its order.
INSERT INTO heartbeats (container_id, timestamp, cpu_percent, memory_percent, memory_mb, disk_percent,
                        uptime_seconds, tmux_active, claude_responsive, metadata)
SELECT id, at, cpu, memory, memory_mb, disk, uptime, tmux, claude, metadata
FROM UNNEST($1::TEXT[], $2::TEXT[], $3::DOUBLE PRECISION[], $4::DOUBLE PRECISION[], $5::BIGINT[],
            $6::DOUBLE PRECISION[], $7::BIGINT[], $8::BIGINT[], $9::BIGINT[], $10::TEXT[]) WITH ORDINALITY
     AS b (id, at, cpu, memory, memory_mb, disk, uptime, tmux, claude, metadata, ord)
ORDER BY ord
