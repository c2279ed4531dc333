-- What a session was given, and what it gave.
SELECT inputs, outputs
FROM session_values
WHERE session_id = $1
