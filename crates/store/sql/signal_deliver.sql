-- A signal ends a wait ($2), if it still may: it was fired for that one, or nobody has taken it.
UPDATE signals
SET deliveries = deliveries + 1, delivered_at = $3
WHERE id = $1
  AND (deliveries = 0
       OR (session_id IS NULL
           AND EXISTS (SELECT 1 FROM signal_targets t WHERE t.signal_id = signals.id AND t.wait_id = $2)))
