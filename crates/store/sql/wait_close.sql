-- A wait is over without a person's answer, if nobody was quicker.
UPDATE waits
SET status = $2, answer = $3, answered_by = $4, answered_at = $5, signal_id = $6
WHERE id = $1 AND status = 'open'
