-- A reader that is new begins here; one that is known stays where it is.
INSERT INTO readers (name, event_id)
VALUES ($1, $2)
ON CONFLICT (name) DO NOTHING
