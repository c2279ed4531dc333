-- The events of containers with ids in ($1, $2], in order, at most $3: for the registry as it was.
SELECT id, timestamp, event_type, container_id, worker_id, task_id, session_id, old_value, new_value, message,
       details, source, owner_id, epoch
FROM events
WHERE id > $1 AND id <= $2 AND container_id IS NOT NULL
ORDER BY id
LIMIT $3
