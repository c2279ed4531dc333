-- Sessions that somebody has to take: those that are not over and whose owner has ended ($1 is whoever asks: its own are
-- never meant); and of those that were left to a person the ones whose end is wanted,
-- and the ones that a session waits for that goes on.
SELECT s.session_id, s.cascade_id, s.parent_session_id, s.parent_phase, s.name, s.status, s.current_phase, s.depth,
       s.blocked_type, s.blocked_on, s.blocked_description, s.blocked_since, s.blocked_timeout_at, s.heartbeat_at,
       s.heartbeat_lease_seconds, s.cancel_requested, s.cancel_reason, s.cancel_requested_at, s.cancel_requested_by,
       s.cancel_force, s.cancel_grace_seconds, s.cancel_seen_at, s.cancelled_at, s.error_message, s.error_phase,
       s.last_checkpoint_id, s.resumable, s.auto_resume, s.origin_id, s.origin_phase, s.started_at, s.completed_at,
       s.updated_at, s.created_by, s.metadata, s.owner_id, s.owner_epoch
FROM sessions s
-- Asked every two seconds: it reads the index of those that are not over, and rows only of those that may be meant.
WHERE s.session_id IN (
          SELECT u.session_id
          FROM sessions u
          WHERE u.status NOT IN ('completed', 'error', 'cancelled')
            AND (u.owner_id IS NULL
                 OR (u.owner_id <> $1 AND u.owner_id NOT IN (SELECT o.id FROM owners o WHERE o.ended_at IS NULL)))
          UNION ALL
          SELECT l.session_id FROM sessions l WHERE l.status = 'orphaned')
  AND (s.status <> 'orphaned'
       OR s.cancel_requested = 1
       OR (EXISTS (SELECT 1
                   FROM sessions p JOIN owners po ON po.id = p.owner_id
                   WHERE p.session_id = s.parent_session_id
                     AND p.status IN ('starting', 'running', 'blocked')
                     AND po.ended_at IS NULL)
           -- A server died of it again and again: that is for a person to decide.
           AND NOT EXISTS (SELECT 1 FROM session_trials t WHERE t.session_id = s.session_id AND t.begun >= $3)))
ORDER BY s.session_id
LIMIT $2
