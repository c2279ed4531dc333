-- A foreign sandbox that has become one of our containers.
DELETE FROM foreign_sandboxes
WHERE provider = $1 AND sandbox_id = $2
