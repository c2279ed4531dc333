-- The tasks of a phase after position $3, in their order.
SELECT id, session_id, phase, position, key, title, state, attempt, retry_count, crash_count, failure_reason, error,
       retry_at, exit_code, outputs, started_at, completed_at
FROM tasks
WHERE session_id = $1 AND phase = $2 AND position > $3
ORDER BY position
LIMIT $4
