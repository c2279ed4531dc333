-- Folds the oldest raw heartbeats into hours. An hour may be folded in several steps: averages are joined
-- by the number of samples that had a figure, so the result is that of one step. The same rows are deleted
-- by heartbeats_delete in the same script. Two servers that both think that they lead must not fold one row
-- twice: the second waits for the first and finds its rows gone.
INSERT INTO heartbeat_hours (container_id, hour, samples, cpu_samples, memory_samples, cpu_percent_avg,
                             cpu_percent_max, memory_percent_avg, memory_percent_max, memory_mb_max,
                             disk_percent_max, first_at, last_at)
SELECT container_id, SUBSTR(timestamp, 1, 13) || ':00:00.000Z', COUNT(*), COUNT(cpu_percent),
       COUNT(memory_percent), AVG(cpu_percent), MAX(cpu_percent), AVG(memory_percent), MAX(memory_percent),
       MAX(memory_mb), MAX(disk_percent), MIN(timestamp), MAX(timestamp)
FROM heartbeats
WHERE id IN (SELECT id FROM heartbeats WHERE timestamp < $1 ORDER BY timestamp, id LIMIT $2
             -- postgres: FOR UPDATE
             )
GROUP BY container_id, SUBSTR(timestamp, 1, 13)
ON CONFLICT (container_id, hour) DO UPDATE SET
    samples = heartbeat_hours.samples + excluded.samples,
    cpu_percent_avg = CASE
        WHEN excluded.cpu_samples = 0 THEN heartbeat_hours.cpu_percent_avg
        WHEN heartbeat_hours.cpu_samples = 0 THEN excluded.cpu_percent_avg
        ELSE (heartbeat_hours.cpu_percent_avg * heartbeat_hours.cpu_samples + excluded.cpu_percent_avg * excluded.cpu_samples)
             / (heartbeat_hours.cpu_samples + excluded.cpu_samples) END,
    memory_percent_avg = CASE
        WHEN excluded.memory_samples = 0 THEN heartbeat_hours.memory_percent_avg
        WHEN heartbeat_hours.memory_samples = 0 THEN excluded.memory_percent_avg
        ELSE (heartbeat_hours.memory_percent_avg * heartbeat_hours.memory_samples + excluded.memory_percent_avg * excluded.memory_samples)
             / (heartbeat_hours.memory_samples + excluded.memory_samples) END,
    cpu_samples = heartbeat_hours.cpu_samples + excluded.cpu_samples,
    memory_samples = heartbeat_hours.memory_samples + excluded.memory_samples,
    cpu_percent_max = CASE
        WHEN excluded.cpu_percent_max IS NULL THEN heartbeat_hours.cpu_percent_max
        WHEN heartbeat_hours.cpu_percent_max > excluded.cpu_percent_max THEN heartbeat_hours.cpu_percent_max
        ELSE excluded.cpu_percent_max END,
    memory_percent_max = CASE
        WHEN excluded.memory_percent_max IS NULL THEN heartbeat_hours.memory_percent_max
        WHEN heartbeat_hours.memory_percent_max > excluded.memory_percent_max THEN heartbeat_hours.memory_percent_max
        ELSE excluded.memory_percent_max END,
    memory_mb_max = CASE
        WHEN excluded.memory_mb_max IS NULL THEN heartbeat_hours.memory_mb_max
        WHEN heartbeat_hours.memory_mb_max > excluded.memory_mb_max THEN heartbeat_hours.memory_mb_max
        ELSE excluded.memory_mb_max END,
    disk_percent_max = CASE
        WHEN excluded.disk_percent_max IS NULL THEN heartbeat_hours.disk_percent_max
        WHEN heartbeat_hours.disk_percent_max > excluded.disk_percent_max THEN heartbeat_hours.disk_percent_max
        ELSE excluded.disk_percent_max END,
    first_at = CASE WHEN excluded.first_at < heartbeat_hours.first_at THEN excluded.first_at
        ELSE heartbeat_hours.first_at END,
    last_at = CASE WHEN excluded.last_at > heartbeat_hours.last_at THEN excluded.last_at
        ELSE heartbeat_hours.last_at END
