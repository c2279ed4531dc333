-- Keeps the lead, while it is still held.
UPDATE leadership
SET lease_until = $3
WHERE owner_id = $1 AND epoch = $2
