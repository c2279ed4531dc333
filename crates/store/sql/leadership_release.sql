-- A leader that ends leaves at once; its successor need not wait for the lease.
UPDATE leadership
SET lease_until = $2
WHERE owner_id = $1
