-- One signal.
SELECT g.id, g.name, g.session_id, g.payload, g.fired_at, g.fired_by, g.deliveries, g.delivered_at
FROM signals g
WHERE g.id = $1
