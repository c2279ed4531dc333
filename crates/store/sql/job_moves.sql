-- A job whose container was lost before it began goes on under the successor.
UPDATE jobs SET container_id = $2 WHERE container_id = $1
