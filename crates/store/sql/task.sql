-- One task by id.
SELECT id, title, state, session_id, attempt, retry_count, crash_count, failure_reason, metadata, created_at,
       updated_at
FROM tasks
WHERE id = $1
