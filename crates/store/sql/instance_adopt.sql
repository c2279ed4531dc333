-- Takes an instance over: from now on its sandboxes are ours. This one cannot be adopted.
INSERT INTO instances (id, is_self, created_at, adopted_at, adopted_by)
VALUES ($1, 0, $2, $2, $3)
ON CONFLICT (id) DO UPDATE SET
    adopted_at = COALESCE(instances.adopted_at, excluded.adopted_at),
    adopted_by = COALESCE(instances.adopted_by, excluded.adopted_by)
WHERE instances.is_self = 0
