-- Receipt 'seen' of contract 12, once.
UPDATE containers
SET stop_seen_at = $2, updated_at = $2
WHERE id = $1 AND stop_seen_at IS NULL
