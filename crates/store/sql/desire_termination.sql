-- The first request to end a container. The reconciler does the rest (contract 14).
UPDATE containers
SET desired = 'terminated', desired_at = $2, desired_by = $3, desired_reason = $4, stop_grace_seconds = $5,
    updated_at = $2
WHERE id = $1 AND desired = 'running' AND state <> 'terminated'
