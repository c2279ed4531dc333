-- What a worker has done is the newest that is done of its session.
UPDATE sessions
SET last_checkpoint_id = $2, updated_at = $3
WHERE session_id = $1
