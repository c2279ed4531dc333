-- An attempt is claimed before it is made: by one, and only the one that was decided on. $2 attempts so far.
UPDATE deliveries
SET state = 'sending', attempts = attempts + 1, attempted_at = $3
WHERE id = $1 AND attempts = $2 AND state = 'pending'
