-- What a session has waited for and waits for, the latest $2, newest first.
SELECT w.id, w.session_id, w.phase, w.task_id, w.wait_type, w.wait_on, w.description, w.question, w.on_timeout,
       w.default_value, w.since, w.deadline, w.status, w.answer, w.answered_by, w.answer_reason, w.answered_at,
       w.signal_id
FROM waits w
WHERE w.session_id = $1
ORDER BY w.since DESC, w.id DESC
LIMIT $2
