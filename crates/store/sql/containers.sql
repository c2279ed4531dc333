-- The page of containers that a filter leaves, newest first, from those created before ($10, $11) on. $1 is a
-- list of states (',running,stopped,') or NULL, $2 one of health; $7 and $8 bound the id (a prefix); COALESCE keeps the planner on the index that has the order.
SELECT id, provider, provider_identity, sandbox_id, instance_id, name, worker_id, task_id, session_id, state,
       created_at, started_at, terminated_at, exit_code, termination_reason, suspected_at, desired,
       desired_at, desired_by, desired_reason, stop_grace_seconds, stop_seen_at, stopping_at,
       stop_confirmed_at, stop_attempts, stop_attempted_at, stop_error, create_attempts,
       create_attempted_at, last_heartbeat_at, health_status, consecutive_failures, cpu_percent,
       memory_percent, memory_used_mb, disk_percent, uptime_seconds, cpu_cores, memory_mb, gpu_type,
       region, cost_accrued_usd, cost_rate_per_hour, cost_source, image, command, labels, keep, spec,
       metadata, updated_at
FROM containers LEFT JOIN container_vitals ON container_id = id
WHERE COALESCE(id, '') >= $7 AND COALESCE(id, '') < $8
  AND (CAST($1 AS TEXT) IS NULL OR CAST($1 AS TEXT) LIKE '%,' || state || ',%')
  AND (CAST($2 AS TEXT) IS NULL OR CAST($2 AS TEXT) LIKE '%,' || health_status || ',%')
  AND (CAST($3 AS TEXT) IS NULL OR provider = $3)
  AND (CAST($4 AS TEXT) IS NULL OR task_id = $4)
  AND (CAST($5 AS TEXT) IS NULL OR session_id = $5)
  AND (CAST($6 AS BIGINT) = 0 OR state = 'orphaned' OR (state = 'unknown' AND suspected_at IS NOT NULL))
  AND (created_at, id) < ($10, $11)
ORDER BY created_at DESC, id DESC
LIMIT $9
