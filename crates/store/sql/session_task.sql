-- One task of a session.
SELECT id, session_id, phase, position, key, title, state, attempt, retry_count, crash_count, failure_reason, error,
       retry_at, exit_code, outputs, started_at, completed_at
FROM tasks
WHERE id = $1 AND session_id IS NOT NULL AND key IS NOT NULL
