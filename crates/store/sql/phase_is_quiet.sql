-- A phase that ends has nothing that runs; somebody may have claimed a task of it meanwhile.
SELECT 1
WHERE NOT EXISTS (SELECT 1 FROM attempts WHERE session_id = $1 AND phase = $2 AND ended_at IS NULL)
