-- The tasks of a session that run, each with its attempt and what is recorded of what it runs in. What was never made has said
-- nothing itself: whoever refused it has.
SELECT t.id, t.session_id, t.phase, t.position, t.key, t.title, t.state, t.attempt, t.retry_count, t.crash_count,
       t.failure_reason, t.error, t.retry_at, t.exit_code, t.outputs, t.started_at, t.completed_at,
       a.task_id, a.attempt, a.session_id, a.phase, a.status, a.container_id, a.verify_container_id, a.worker_id,
       a.exit_code, a.failure_reason, a.message, a.started_at, a.ended_at,
       c.id, c.state, c.desired, c.started_at, c.termination_reason, c.exit_code, c.stop_grace_seconds,
       j.status, j.activity, j.waiting_reason, j.engine,
       CASE WHEN c.termination_reason = 'create_failed'
            THEN (SELECT e.message FROM events e WHERE e.container_id = c.id AND e.event_type = 'create_failed' ORDER BY e.id DESC LIMIT 1)
            ELSE j.status_reason END,
       v.id, v.state, v.desired, v.started_at, v.termination_reason, v.exit_code, v.stop_grace_seconds
FROM attempts a
JOIN tasks t ON t.id = a.task_id
LEFT JOIN workers w ON w.id = a.worker_id
LEFT JOIN containers c ON c.id = COALESCE(a.container_id, w.container_id)
LEFT JOIN jobs j ON j.container_id = c.id
LEFT JOIN containers v ON v.id = a.verify_container_id
WHERE a.session_id = $1 AND a.ended_at IS NULL
ORDER BY t.phase, t.position
