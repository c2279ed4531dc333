-- A signal that was fired. Who takes it is its receivers' to write.
INSERT INTO signals (id, name, session_id, payload, fired_at, fired_by)
VALUES ($1, $2, $3, $4, $5, $6)
