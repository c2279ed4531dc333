-- History of one session, oldest first; apart so that the index on it serves it. $1 container, $2 task, $3
-- session, $4 type, $5 source, [$6, $7) time, after id $8, at most $9.
SELECT id, timestamp, event_type, container_id, worker_id, task_id, session_id, old_value, new_value, message,
       details, source, owner_id, epoch
FROM events
WHERE session_id = $3
  AND id > $8
  AND timestamp >= $6
  AND timestamp < $7
  AND (CAST($1 AS TEXT) IS NULL OR container_id = $1)
  AND (CAST($2 AS TEXT) IS NULL OR task_id = $2)
  AND (CAST($4 AS TEXT) IS NULL OR event_type = $4)
  AND (CAST($5 AS TEXT) IS NULL OR source = $5)
  -- postgres: AND (CAST($8 AS BIGINT) < 0 OR txid < pg_snapshot_xmin(pg_current_snapshot()))
ORDER BY id
LIMIT $9
