-- The one renewed lease of an owner that has not ended.
UPDATE owners
SET lease_until = $2
WHERE id = $1 AND ended_at IS NULL
