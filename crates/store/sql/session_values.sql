-- What a session was started with.
SELECT cascade_hash, inputs, surroundings, outputs
FROM session_values
WHERE session_id = $1
