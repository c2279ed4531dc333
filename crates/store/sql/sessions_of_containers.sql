-- The session whose task runs in a container, or is verified in it, or whose worker it is.
SELECT session_id
FROM attempts
WHERE (container_id = $1 OR verify_container_id = $1) AND ended_at IS NULL
UNION ALL
SELECT session_id
FROM workers
WHERE container_id = $1 AND session_id IS NOT NULL
LIMIT 1
