-- The tasks of a level that rest until somebody answers their agent, each with what it ran in; first those of which no
-- question is open.
SELECT t.id, t.session_id, t.phase, t.position, t.key, t.title, t.state, t.attempt, t.retry_count, t.crash_count,
       t.failure_reason, t.error, t.retry_at, t.exit_code, t.outputs, t.started_at, t.completed_at, a.container_id
FROM tasks t LEFT JOIN attempts a ON a.task_id = t.id AND a.attempt = t.attempt
WHERE t.session_id = $1 AND t.phase = $2 AND t.state = 'running' AND a.ended_at IS NOT NULL
ORDER BY EXISTS (SELECT 1 FROM waits w WHERE w.task_id = t.id AND w.status = 'open'), t.position
LIMIT $3
