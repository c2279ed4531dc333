-- What the health loop looks at: every container that should be heard.
SELECT id, task_id, health_status, last_heartbeat_at
FROM containers
WHERE state IN ('running', 'orphaned', 'unknown')
