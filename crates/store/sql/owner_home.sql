-- Where the home of an owner is on its machine.
UPDATE owners
SET home_path = $2
WHERE id = $1
