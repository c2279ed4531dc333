-- A session of somebody who is gone gets another owner; the epoch rises, which fences the former.
UPDATE sessions
SET owner_id = $2, owner_epoch = owner_epoch + 1, status = $5, heartbeat_at = $6, updated_at = $6
WHERE session_id = $1 AND owner_epoch = $3 AND status = $4
