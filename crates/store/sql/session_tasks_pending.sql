-- The next tasks of a level that may begin at $3.
SELECT id, session_id, phase, position, key, title, state, attempt, retry_count, crash_count, failure_reason, error,
       retry_at, exit_code, outputs, started_at, completed_at
FROM tasks
WHERE session_id = $1 AND phase = $2 AND state = 'pending' AND (retry_at IS NULL OR retry_at <= $3)
ORDER BY position
LIMIT $4
