-- The session whose task ran in a container.
SELECT session_id
FROM attempts
WHERE container_id = $1
LIMIT 1
