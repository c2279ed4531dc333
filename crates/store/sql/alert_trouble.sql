-- The latest attempt for an alert that did not deliver.
SELECT last_error, attempted_at
FROM deliveries
WHERE alert = $1 AND last_error IS NOT NULL AND attempted_at IS NOT NULL
ORDER BY attempted_at DESC
LIMIT 1
