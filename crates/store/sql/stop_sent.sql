-- Receipt 'stopping': the provider has taken the request of attempt $2.
UPDATE containers
SET stopping_at = COALESCE(stopping_at, $3), stop_error = NULL, updated_at = $3
WHERE id = $1 AND stop_attempts = $2
