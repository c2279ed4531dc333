-- An instance is known from the first of its sandboxes that is seen.
INSERT INTO instances (id, is_self, created_at)
VALUES ($1, 0, $2)
ON CONFLICT (id) DO NOTHING
