-- An attempt of which nobody knows whether it was claimed, and which nobody makes: it is due again.
UPDATE deliveries
SET state = 'pending', next_attempt_at = $3
WHERE id = $1 AND attempts = $2 AND state = 'sending'
