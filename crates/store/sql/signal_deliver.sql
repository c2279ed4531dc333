-- A signal ends a wait (open since $2), if it still may.
UPDATE signals
SET deliveries = deliveries + 1, delivered_at = $3
WHERE id = $1 AND (deliveries = 0 OR (session_id IS NULL AND fired_at >= $2))
