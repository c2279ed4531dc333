-- One job.
SELECT id, container_id, name, engine, origin_id, timeout_seconds, interactive, created_at, created_by, status,
       status_at, status_reason, activity, waiting_reason, waiting_since, agent_session, heartbeat_at,
       reattached_at, reattached_count, reattach_ms, ended_at, exit_code, cleanup_at, cleaned_at
FROM jobs
WHERE id = $1
