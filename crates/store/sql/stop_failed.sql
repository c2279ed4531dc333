-- Attempt $2 was refused or not answered; the next pass tries again.
UPDATE containers
SET stop_error = $4, updated_at = $3
WHERE id = $1 AND stop_attempts = $2
