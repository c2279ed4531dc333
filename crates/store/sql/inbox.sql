-- What waits for a person, oldest first, with the session that asks and the task whose agent does.
SELECT w.id, w.session_id, w.phase, w.task_id, w.wait_type, w.wait_on, w.description, w.question, w.on_timeout,
       w.default_value, w.since, w.deadline, w.status, w.answer, w.answered_by, w.answer_reason, w.answered_at,
       w.signal_id, s.cascade_id, s.name, t.key
FROM waits w
JOIN sessions s ON s.session_id = w.session_id
LEFT JOIN tasks t ON t.id = w.task_id
WHERE w.status = 'open' AND w.wait_type IN ('hitl', 'approval', 'checkpoint')
ORDER BY w.since, w.id
LIMIT $1
