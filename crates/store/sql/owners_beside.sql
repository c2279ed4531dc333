-- Other owners on one machine, in one run of it, that have not ended and own sessions that are not over.
SELECT o.id, o.home_id, o.home_path
FROM owners o
WHERE o.ended_at IS NULL AND o.id <> $1 AND o.host = $2 AND o.boot_id = $3 AND o.home_path IS NOT NULL
  AND EXISTS (SELECT 1 FROM sessions s
              WHERE s.owner_id = o.id AND s.status NOT IN ('completed', 'error', 'cancelled') AND s.status <> 'orphaned')
