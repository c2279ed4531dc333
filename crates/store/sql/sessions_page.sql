-- Every session, a page of them in the order of their ids.
SELECT session_id, cascade_id, parent_session_id, parent_phase, name, status, current_phase, depth, blocked_type,
       blocked_on, blocked_description, blocked_since, blocked_timeout_at, heartbeat_at, heartbeat_lease_seconds,
       cancel_requested, cancel_reason, cancel_requested_at, cancel_requested_by, cancel_force,
       cancel_grace_seconds, cancel_seen_at, cancelled_at, error_message, error_phase, last_checkpoint_id,
       resumable, auto_resume, origin_id, origin_phase, started_at, completed_at, updated_at, created_by, metadata,
       owner_id, owner_epoch
FROM sessions
WHERE session_id > $1
ORDER BY session_id
LIMIT $2
