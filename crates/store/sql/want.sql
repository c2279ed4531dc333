-- What is wanted of a container and how it is, to say why a request changed nothing.
SELECT state, desired, stop_grace_seconds
FROM containers
WHERE id = $1
