-- What waits for an alert, the most urgent first. $1 alert, at most $2.
SELECT id, alert, event_id, attempts, next_attempt_at
FROM deliveries
WHERE alert = $1 AND state = 'pending'
ORDER BY next_attempt_at
LIMIT $2
