-- The same, of one parent ($3).
SELECT s.session_id, s.cascade_id, s.parent_session_id, s.parent_phase, s.name, s.status, s.current_phase, s.depth,
       s.blocked_type, s.blocked_on, s.blocked_description, s.blocked_since, s.blocked_timeout_at, s.heartbeat_at,
       s.heartbeat_lease_seconds, s.cancel_requested, s.cancel_reason, s.cancel_requested_at, s.cancel_requested_by,
       s.cancel_force, s.cancel_grace_seconds, s.cancel_seen_at, s.cancelled_at, s.error_message, s.error_phase,
       s.last_checkpoint_id, s.resumable, s.auto_resume, s.origin_id, s.origin_phase, s.started_at, s.completed_at,
       s.updated_at, s.created_by, s.metadata, s.owner_id, s.owner_epoch, o.lease_until, o.ended_at, v.cascade_hash
FROM sessions s
LEFT JOIN owners o ON o.id = s.owner_id
LEFT JOIN session_values v ON v.session_id = s.session_id
WHERE s.parent_session_id = $3
  AND (s.started_at, s.session_id) < ($5, $6)
  AND (CAST($1 AS TEXT) IS NULL OR CAST($1 AS TEXT) LIKE '%,' || s.status || ',%')
  AND (CAST($2 AS TEXT) IS NULL OR s.cascade_id = $2)
  AND (CAST($4 AS TEXT) IS NULL OR s.status NOT IN ('completed', 'error', 'cancelled') OR s.updated_at >= $4)
ORDER BY s.started_at DESC, s.session_id DESC
LIMIT $7
