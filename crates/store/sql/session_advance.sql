-- The owner's columns, whole; and the fence of a session: nobody but its owner in its epoch, from the status that was
-- decided from.
UPDATE sessions
SET status = $5, current_phase = $6, blocked_type = $7, blocked_on = $8, blocked_description = $9,
    blocked_since = $10, blocked_timeout_at = $11, error_message = $12, error_phase = $13, cancel_seen_at = $14,
    cancelled_at = $15, completed_at = $16, last_checkpoint_id = COALESCE($17, last_checkpoint_id), heartbeat_at = $18,
    updated_at = $18
WHERE session_id = $1 AND owner_id = $2 AND owner_epoch = $3 AND status = $4
