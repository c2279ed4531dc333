-- The wish to end a session; asked again, it can only become more urgent. Nothing when it is over.
UPDATE sessions
SET cancel_requested = 1, cancel_reason = COALESCE(cancel_reason, $2),
    cancel_requested_at = COALESCE(cancel_requested_at, $3), cancel_requested_by = COALESCE(cancel_requested_by, $4),
    cancel_force = CASE WHEN $5 = 1 THEN 1 ELSE cancel_force END,
    cancel_grace_seconds = CASE WHEN cancel_grace_seconds IS NULL OR cancel_grace_seconds > $6 THEN $6
                                ELSE cancel_grace_seconds END,
    updated_at = $3
WHERE session_id = $1 AND status NOT IN ('completed', 'error', 'cancelled')
