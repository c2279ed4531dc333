-- A later request may only shorten the grace of the first.
UPDATE containers
SET stop_grace_seconds = $2, updated_at = $3
WHERE id = $1 AND desired = 'terminated' AND state <> 'terminated' AND stop_grace_seconds > $2
