-- heartbeat_workers for a whole batch.
UPDATE workers w
SET last_heartbeat_at = b.at
FROM (SELECT id, MAX(at COLLATE "C") AS at FROM UNNEST($1::TEXT[], $2::TEXT[]) AS u (id, at) GROUP BY id) b
WHERE w.container_id = b.id AND w.terminated_at IS NULL
  AND (w.last_heartbeat_at IS NULL OR w.last_heartbeat_at < b.at)
