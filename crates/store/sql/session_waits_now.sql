-- The waits of the phases of a session that run.
SELECT w.id, w.session_id, w.phase, w.task_id, w.wait_type, w.wait_on, w.description, w.question, w.on_timeout,
       w.default_value, w.since, w.deadline, w.status, w.answer, w.answered_by, w.answer_reason, w.answered_at, w.signal_id
FROM waits w JOIN session_phases p ON p.session_id = w.session_id AND p.name = w.phase
WHERE w.session_id = $1 AND p.status = 'running'
ORDER BY w.since, w.id
