-- The first start of a store gives this instance its id; every later one keeps it.
INSERT INTO instances (id, is_self, created_at)
SELECT CAST($1 AS TEXT), 1, CAST($2 AS TEXT)
WHERE NOT EXISTS (SELECT 1 FROM instances WHERE is_self = 1)
ON CONFLICT (id) DO UPDATE SET is_self = 1
