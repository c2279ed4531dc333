-- What the health loop looks at: every container that should be heard.
SELECT id, task_id, health_status, last_heartbeat_at
FROM containers LEFT JOIN container_vitals ON container_id = id
WHERE state IN ('running', 'orphaned', 'unknown')
