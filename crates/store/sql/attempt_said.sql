-- What a worker's task wrote, as far as it is kept; whoever ran in a container of its own has that in its job.
SELECT output
FROM attempts
WHERE task_id = $1 AND attempt = $2
