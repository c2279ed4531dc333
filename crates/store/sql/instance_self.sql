-- This instance's id.
SELECT id
FROM instances
WHERE is_self = 1
