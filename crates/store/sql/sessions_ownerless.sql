-- Sessions that are not over and whose owner has ended, or is of a lease that was over at $1. Those that wait for a person
-- to resume them are not meant. $2 is whoever asks: its own are never meant.
SELECT s.session_id, s.cascade_id, s.parent_session_id, s.parent_phase, s.name, s.status, s.current_phase, s.depth,
       s.blocked_type, s.blocked_on, s.blocked_description, s.blocked_since, s.blocked_timeout_at, s.heartbeat_at,
       s.heartbeat_lease_seconds, s.cancel_requested, s.cancel_reason, s.cancel_requested_at, s.cancel_requested_by,
       s.cancel_force, s.cancel_grace_seconds, s.cancel_seen_at, s.cancelled_at, s.error_message, s.error_phase,
       s.last_checkpoint_id, s.resumable, s.auto_resume, s.origin_id, s.origin_phase, s.started_at, s.completed_at,
       s.updated_at, s.created_by, s.metadata, s.owner_id, s.owner_epoch
FROM sessions s LEFT JOIN owners o ON o.id = s.owner_id
WHERE s.status NOT IN ('completed', 'error', 'cancelled', 'orphaned')
  AND (s.owner_id IS NULL OR s.owner_id <> $2)
  AND (o.id IS NULL OR o.ended_at IS NOT NULL OR o.lease_until < $1)
ORDER BY s.session_id
LIMIT $3
