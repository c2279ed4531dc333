-- A page of signals, newest first, from those fired before ($3, $4) on. $1 is a name or NULL, $2 a session or NULL.
SELECT g.id, g.name, g.session_id, g.payload, g.fired_at, g.fired_by, g.deliveries, g.delivered_at
FROM signals g
WHERE (g.fired_at, g.id) < ($3, $4)
  AND (CAST($1 AS TEXT) IS NULL OR COALESCE(g.name, '') = $1)
  AND (CAST($2 AS TEXT) IS NULL OR g.session_id = $2)
ORDER BY g.fired_at DESC, g.id DESC
LIMIT $5
