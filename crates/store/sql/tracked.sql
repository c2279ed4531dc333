-- Every row that a pass of the reconciler must look at: all that are not over, of one provider.
SELECT id, provider_identity, sandbox_id, task_id, state, created_at, started_at, terminated_at, exit_code,
       termination_reason, suspected_at, desired, desired_at, desired_reason, stop_grace_seconds,
       stop_seen_at, stopping_at, stop_confirmed_at, stop_attempts, stop_attempted_at, stop_error, create_attempts,
       create_attempted_at, last_heartbeat_at, silent_alerted_at, health_status, keep, region,
       cpu_cores, memory_mb, gpu_type, cost_accrued_usd, cost_rate_per_hour, cost_source
FROM containers LEFT JOIN container_vitals ON container_id = id
WHERE provider = $1 AND state <> 'terminated'
ORDER BY created_at, id
