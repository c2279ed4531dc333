-- An owner shows the epoch that it leads in.
UPDATE owners
SET epoch = (SELECT epoch FROM leadership WHERE owner_id = $1)
WHERE id = $1
