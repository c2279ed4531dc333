-- One container, whole, by what its provider calls it.
SELECT id, provider, provider_identity, sandbox_id, instance_id, name, worker_id, task_id, session_id, state,
       created_at, started_at, terminated_at, exit_code, termination_reason, suspected_at, desired,
       desired_at, desired_by, desired_reason, stop_grace_seconds, stop_seen_at, stopping_at,
       stop_confirmed_at, stop_attempts, stop_attempted_at, stop_error, create_attempts,
       create_attempted_at, last_heartbeat_at, health_status, consecutive_failures, cpu_percent,
       memory_percent, memory_used_mb, disk_percent, uptime_seconds, cpu_cores, memory_mb, gpu_type,
       region, cost_accrued_usd, cost_rate_per_hour, cost_source, image, command, labels, keep, spec,
       metadata, updated_at
FROM containers LEFT JOIN container_vitals ON container_id = id
WHERE provider = $1 AND sandbox_id = $2
