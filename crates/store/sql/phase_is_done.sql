-- A phase whose tasks are done has no other.
SELECT 1
WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE session_id = $1 AND phase = $2 AND state <> 'completed')
