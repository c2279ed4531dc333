-- A definition is kept once.
INSERT INTO cascades (hash, definition)
VALUES ($1, $2)
ON CONFLICT (hash) DO NOTHING
