-- The fence (contract 6): one row while the writer still leads in its epoch, none once it does not. The
-- first step of every write by a leader.
SELECT 1
FROM leadership
WHERE owner_id = $1 AND epoch = $2
-- postgres: FOR KEY SHARE
