-- One worker by id.
SELECT id, task_id, state, container_id, session_id, last_heartbeat_at, health_status, terminated_at, exit_code,
       metadata, created_at, updated_at
FROM workers
WHERE id = $1
