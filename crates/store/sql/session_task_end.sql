-- What the end of an attempt makes of its task. $8 and $9 are added to what is counted.
UPDATE tasks
SET state = $3, failure_reason = $4, error = $5, exit_code = $6, outputs = COALESCE($7, outputs),
    retry_count = retry_count + $8, crash_count = crash_count + $9, retry_at = $10, completed_at = $11, updated_at = $12
WHERE id = $1 AND attempt = $2 AND state NOT IN ('completed', 'failed', 'cancelled')
