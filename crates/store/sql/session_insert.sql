-- A session that is about to begin, and who advances it.
INSERT INTO sessions (session_id, cascade_id, parent_session_id, parent_phase, name, status, depth, heartbeat_at,
                      heartbeat_lease_seconds, resumable, auto_resume, origin_id, origin_phase, started_at, created_by,
                      metadata, updated_at, owner_id, owner_epoch)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $8, $17, 1)
