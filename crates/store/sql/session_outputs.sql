-- What the whole session gave.
UPDATE session_values
SET outputs = $2
WHERE session_id = $1
