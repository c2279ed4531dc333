-- That its long silence has been told.
UPDATE containers
SET silent_alerted_at = $2, updated_at = $2
WHERE id = $1 AND state <> 'terminated'
