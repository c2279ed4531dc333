-- Attempts that were under way when their server ended: nobody knows what became of them, so they are made again,
-- under the same ids.
UPDATE deliveries
SET state = 'pending', next_attempt_at = $1
WHERE state = 'sending'
