-- The sessions that one owner advances, a page after $2.
SELECT session_id
FROM sessions
WHERE owner_id = $1 AND status NOT IN ('completed', 'error', 'cancelled') AND status <> 'orphaned'
  AND session_id > $2
ORDER BY session_id
LIMIT $3
