-- What never changes of a session.
INSERT INTO session_values (session_id, cascade_hash, inputs, surroundings)
VALUES ($1, $2, $3, $4)
