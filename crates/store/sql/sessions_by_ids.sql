-- The sessions with these ids, for whoever shows them elsewhere. 50 at a time, missing ones are NULL.
SELECT session_id, cascade_id, parent_session_id, parent_phase, name, status, current_phase, depth, blocked_type,
       blocked_on, blocked_description, blocked_since, blocked_timeout_at, heartbeat_at, heartbeat_lease_seconds,
       cancel_requested, cancel_reason, cancel_requested_at, cancel_requested_by, cancel_force,
       cancel_grace_seconds, cancel_seen_at, cancelled_at, error_message, error_phase, last_checkpoint_id,
       resumable, auto_resume, origin_id, origin_phase, started_at, completed_at, updated_at, created_by, metadata,
       owner_id, owner_epoch
FROM sessions
WHERE session_id IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25,
                     $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50)
