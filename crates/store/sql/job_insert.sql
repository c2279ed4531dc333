-- A job, in the transaction of its container's intent.
INSERT INTO jobs (id, container_id, name, engine, origin_id, timeout_seconds, interactive, created_at, created_by,
                  agent_session, status, status_at, activity)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'pending', $8, 'processing')
