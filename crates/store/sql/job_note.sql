-- What the jobs loop knows of a job now, if it still has the status that was decided from.
UPDATE jobs
SET status = $3, status_at = $4, status_reason = $5, activity = $6, waiting_reason = $7, waiting_since = $8,
    agent_session = $9, heartbeat_at = $10, reattached_at = $11, reattached_count = $12, reattach_ms = $13,
    ended_at = $14, exit_code = $15, cleanup_at = $16
WHERE id = $1 AND status = $2
