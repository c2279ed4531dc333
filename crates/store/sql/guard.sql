-- The fence (contract 6): one row while the writer still leads in its epoch, none once it does not. The
-- first step of every write by a leader. On PostgreSQL the row is locked FOR KEY SHARE, and the epoch is part of a
-- unique index: an election, which changes a key, waits for every guarded write under way, and a write that
-- waited for an election finds no row. FOR SHARE would do that too, but it also keeps out the renewal of the
-- lease, which changes no key: a busy leader could not renew.
SELECT 1
FROM leadership
WHERE owner_id = $1 AND epoch = $2
-- postgres: FOR KEY SHARE
