-- The signal that a wait ($3) of a session ($1) for $2 would take: the oldest. One for everybody is for the waits that were
-- open when it was fired; if none of them is left and none has taken it, for the next.
SELECT id, name, session_id, payload, fired_at, fired_by, deliveries, delivered_at
FROM (SELECT s.id, s.name, s.session_id, s.payload, s.fired_at, s.fired_by, s.deliveries, s.delivered_at
      FROM signals s
      WHERE s.name = $2 AND s.deliveries = 0
        AND (s.session_id = $1
             OR (s.session_id IS NULL
                 AND NOT EXISTS (SELECT 1 FROM signal_targets t JOIN waits w ON w.id = t.wait_id
                                 WHERE t.signal_id = s.id AND w.status = 'open')))
      UNION ALL
      SELECT s.id, s.name, s.session_id, s.payload, s.fired_at, s.fired_by, s.deliveries, s.delivered_at
      FROM signal_targets t JOIN signals s ON s.id = t.signal_id
      WHERE t.wait_id = $3 AND s.name = $2) AS next
ORDER BY fired_at, id
LIMIT 1
