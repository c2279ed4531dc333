-- The outcome of an attempt, by the one who made it. $2 attempt, $3 state, $4 status, $5 error, $6 next attempt, $7 end.
UPDATE deliveries
SET state = $3,
    last_status = $4,
    last_error = $5,
    next_attempt_at = COALESCE($6, next_attempt_at),
    finished_at = $7
WHERE id = $1 AND attempts = $2 AND state = 'sending'
