-- Jobs that need a person and that nobody has gone on with, oldest first; of those that are over only what was so no
-- earlier than $1. What a session knows to be over is the session's to ask about.
SELECT j.id, j.container_id, j.name, j.engine, j.origin_id, j.timeout_seconds, j.interactive, j.created_at, j.created_by, j.status,
       j.status_at, j.status_reason, j.activity, j.waiting_reason, j.waiting_since, j.agent_session, j.heartbeat_at,
       j.reattached_at, j.reattached_count, j.reattach_ms, j.ended_at, j.exit_code, j.cleanup_at, j.cleaned_at, a.session_id,
       a.task_id
FROM jobs j
LEFT JOIN attempts a ON a.container_id = j.container_id
WHERE j.activity = 'waiting'
  AND (j.status NOT IN ('dead', 'finished', 'failed') OR j.status_at >= $1)
  AND a.ended_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM jobs next WHERE next.origin_id = j.id)
ORDER BY j.waiting_since, j.id
LIMIT $2
