-- Claims stop attempt number $2, before the provider is asked.
UPDATE containers
SET stop_attempts = $2, stop_attempted_at = $3, stop_error = NULL, updated_at = $3
WHERE id = $1 AND stop_attempts = $2 - 1
