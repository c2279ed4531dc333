-- The end of what a worker's task wrote.
UPDATE attempts
SET output = $3
WHERE task_id = $1 AND attempt = $2
