-- The jobs of one provider that may still change: not over, or over with a directory that is still there.
SELECT j.id, j.container_id, j.name, j.engine, j.origin_id, j.timeout_seconds, j.interactive, j.created_at, j.created_by, j.status,
       j.status_at, j.status_reason, j.activity, j.waiting_reason, j.waiting_since, j.agent_session, j.heartbeat_at,
       j.reattached_at, j.reattached_count, j.reattach_ms, j.ended_at, j.exit_code, j.cleanup_at, j.cleaned_at
FROM jobs j JOIN containers c ON c.id = j.container_id
WHERE c.provider = $1 AND (j.status NOT IN ('dead', 'finished', 'failed') OR ($2 = 1 AND j.cleaned_at IS NULL))
ORDER BY j.id
