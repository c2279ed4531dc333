-- The session whose task runs in a container, or is verified in it.
SELECT session_id
FROM attempts
WHERE (container_id = $1 OR verify_container_id = $1) AND ended_at IS NULL
