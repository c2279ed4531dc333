-- One line of the history. The id is returned: it is how readers follow the tail.
INSERT INTO events (timestamp, event_type, container_id, worker_id, task_id, session_id, old_value, new_value,
                    message, details, source, owner_id, epoch)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
RETURNING id
