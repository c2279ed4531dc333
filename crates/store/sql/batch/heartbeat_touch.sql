-- heartbeat_touch for a whole batch. Of several samples of one container the time is the last one's and each
-- figure that of the last that has it. Rows are locked in the order of their ids, so that two batches cannot wait for each other in a circle.
-- Gives the places in the batch of those whose container is known.
WITH beats AS (
    SELECT *
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::DOUBLE PRECISION[], $4::DOUBLE PRECISION[], $5::BIGINT[],
                $6::DOUBLE PRECISION[], $7::BIGINT[]) WITH ORDINALITY
         AS b (id, at, cpu, memory, memory_mb, disk, uptime, ord)
), latest AS (
    SELECT id, (ARRAY_AGG(at ORDER BY ord DESC))[1] AS at,
           (ARRAY_AGG(cpu ORDER BY ord DESC) FILTER (WHERE cpu IS NOT NULL))[1] AS cpu,
           (ARRAY_AGG(memory ORDER BY ord DESC) FILTER (WHERE memory IS NOT NULL))[1] AS memory,
           (ARRAY_AGG(memory_mb ORDER BY ord DESC) FILTER (WHERE memory_mb IS NOT NULL))[1] AS memory_mb,
           (ARRAY_AGG(disk ORDER BY ord DESC) FILTER (WHERE disk IS NOT NULL))[1] AS disk,
           (ARRAY_AGG(uptime ORDER BY ord DESC) FILTER (WHERE uptime IS NOT NULL))[1] AS uptime
    FROM beats
    GROUP BY id
), locked AS (
    SELECT container_id AS id FROM container_vitals WHERE container_id = ANY ($1::TEXT[])
    ORDER BY container_id FOR NO KEY UPDATE
), touched AS (
    UPDATE container_vitals c
    SET last_heartbeat_at = latest.at,
        cpu_percent = COALESCE(latest.cpu, c.cpu_percent),
        memory_percent = COALESCE(latest.memory, c.memory_percent),
        memory_used_mb = COALESCE(latest.memory_mb, c.memory_used_mb),
        disk_percent = COALESCE(latest.disk, c.disk_percent),
        uptime_seconds = COALESCE(latest.uptime, c.uptime_seconds)
    FROM locked JOIN latest ON latest.id = locked.id
    WHERE c.container_id = locked.id
    RETURNING c.container_id AS id
)
SELECT beats.ord
FROM beats JOIN touched ON touched.id = beats.id
