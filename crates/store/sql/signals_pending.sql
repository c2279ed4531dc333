-- The same, of those alone that nobody has taken and somebody still could. It sorts those.
SELECT g.id, g.name, g.session_id, g.payload, g.fired_at, g.fired_by, g.deliveries, g.delivered_at
FROM signals g
LEFT JOIN sessions s ON s.session_id = g.session_id
WHERE g.deliveries = 0
  AND (COALESCE(g.fired_at, ''), g.id) < ($3, $4)
  AND (s.status IS NULL OR s.status NOT IN ('completed', 'error', 'cancelled'))
  AND (CAST($1 AS TEXT) IS NULL OR g.name = $1)
  AND (CAST($2 AS TEXT) IS NULL OR g.session_id = $2)
ORDER BY COALESCE(g.fired_at, '') DESC, g.id DESC
LIMIT $5
