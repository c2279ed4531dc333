-- A page of jobs, newest first, from those created before ($6, $7) on, each with what its container knows. $1 is a
-- list of statuses (',fresh,stale,') or NULL; $3 a name; $4 an activity; $5 a moment: only what is not over, or was
-- over no earlier than that; $9 an id; $10 is 1 for those alone whose directory
-- has not gone.
SELECT j.id, j.container_id, j.name, j.engine, j.origin_id, j.timeout_seconds, j.interactive, j.created_at, j.created_by, j.status,
       j.status_at, j.status_reason, j.activity, j.waiting_reason, j.waiting_since, j.agent_session, j.heartbeat_at,
       j.reattached_at, j.reattached_count, j.reattach_ms, j.ended_at, j.exit_code, j.cleanup_at, j.cleaned_at,
       c.state, c.command, c.provider, c.termination_reason, c.exit_code, c.desired, c.desired_at, c.desired_by,
       c.desired_reason, c.stop_grace_seconds, c.stop_seen_at, c.stopping_at, c.stop_confirmed_at, c.stop_error
FROM jobs j JOIN containers c ON c.id = j.container_id
WHERE (CAST($1 AS TEXT) IS NULL OR CAST($1 AS TEXT) LIKE '%,' || j.status || ',%')
  AND (CAST($2 AS TEXT) IS NULL OR j.engine = $2)
  AND (CAST($3 AS TEXT) IS NULL OR j.name = $3)
  AND (CAST($4 AS TEXT) IS NULL OR j.activity = $4)
  AND (CAST($5 AS TEXT) IS NULL OR j.status NOT IN ('dead', 'finished', 'failed') OR j.status_at >= $5)
  AND (CAST($9 AS TEXT) IS NULL OR j.id = $9)
  AND ($10 = 0 OR j.cleaned_at IS NULL)
  AND (j.created_at, j.id) < ($6, $7)
ORDER BY j.created_at DESC, j.id DESC
LIMIT $8
