-- Whether tasks of a phase may be claimed: it runs, and nothing of it or beside it has failed for good. Read when the
-- session is held, so that an end of the phase is either seen here or finds the claim.
SELECT 1
FROM session_phases
WHERE session_id = $1 AND name = $2 AND status = 'running'
  AND NOT EXISTS (SELECT 1 FROM session_phases WHERE session_id = $1 AND status = 'failed')
  AND NOT EXISTS (SELECT 1 FROM tasks WHERE session_id = $1 AND phase = $2 AND state = 'failed')
