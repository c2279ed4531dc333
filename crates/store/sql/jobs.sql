-- A page of jobs, newest first, from those created before ($5, $6) on. $1 is a list of statuses
-- (',fresh,stale,') or NULL; $3 and $4 bound the id (a prefix).
SELECT id, container_id, name, engine, origin_id, timeout_seconds, interactive, created_at, created_by, status,
       status_at, status_reason, activity, waiting_reason, waiting_since, agent_session, heartbeat_at,
       reattached_at, reattached_count, reattach_ms, ended_at, exit_code, cleanup_at, cleaned_at
FROM jobs
WHERE id >= $3 AND id < $4
  AND (CAST($1 AS TEXT) IS NULL OR CAST($1 AS TEXT) LIKE '%,' || status || ',%')
  AND (CAST($2 AS TEXT) IS NULL OR engine = $2)
  AND (created_at, id) < ($5, $6)
ORDER BY created_at DESC, id DESC
LIMIT $7
