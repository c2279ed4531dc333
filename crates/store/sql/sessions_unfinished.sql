-- Whether anything is to be advanced by anybody.
SELECT COUNT(*)
FROM sessions
WHERE status NOT IN ('completed', 'error', 'cancelled') AND status <> 'orphaned'
