-- The signal that a wait of a session ($1) for $2, open since $3, would take: the oldest.
SELECT id, name, session_id, payload, fired_at, fired_by, deliveries, delivered_at
FROM signals
WHERE name = $2
  AND ((session_id = $1 AND deliveries = 0) OR (session_id IS NULL AND (deliveries = 0 OR fired_at >= $3)))
ORDER BY fired_at, id
LIMIT 1
