-- The jobs of one provider (of all: NULL) that are not known to have ended, with what is recorded of their containers.
SELECT j.id, j.container_id, j.name, j.engine, j.origin_id, j.timeout_seconds, j.interactive, j.created_at, j.created_by, j.status,
       j.status_at, j.status_reason, j.activity, j.waiting_reason, j.waiting_since, j.agent_session, j.heartbeat_at,
       j.reattached_at, j.reattached_count, j.reattach_ms, j.ended_at, j.exit_code, j.cleanup_at, j.cleaned_at,
       c.provider, v.last_heartbeat_at, c.task_id, c.state, c.health_status, c.exit_code, c.termination_reason, c.terminated_at, c.desired_by,
       CASE WHEN c.termination_reason = 'create_failed'
            THEN (SELECT e.message FROM events e WHERE e.container_id = c.id AND e.event_type = 'create_failed' ORDER BY e.id DESC LIMIT 1) END
FROM jobs j JOIN containers c ON c.id = j.container_id LEFT JOIN container_vitals v ON v.container_id = c.id
WHERE j.status NOT IN ('finished', 'failed') AND j.cleaned_at IS NULL AND (CAST($1 AS TEXT) IS NULL OR c.provider = $1)
ORDER BY j.id
