-- Hours of one container whose raw heartbeats have gone, newest first.
SELECT container_id, hour, samples, cpu_percent_avg, cpu_percent_max, memory_percent_avg, memory_percent_max,
       memory_mb_max, disk_percent_max, first_at, last_at
FROM heartbeat_hours
WHERE container_id = $1 AND hour >= $2
ORDER BY hour DESC
LIMIT $3
