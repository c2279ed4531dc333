-- A reader that nobody wants any more. Should it come back, it is new.
DELETE FROM readers
WHERE name = $1
