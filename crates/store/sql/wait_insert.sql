-- Something to wait for.
INSERT INTO waits (id, session_id, phase, task_id, wait_type, wait_on, description, question, on_timeout, default_value,
                   since, deadline, status)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 'open')
