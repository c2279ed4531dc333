-- The fence of a server that works for its own home: one row until it has ended, or another of that home has
-- ended it. Read as the leader's is (see guard): ending an owner waits for its writes under way.
SELECT 1
FROM owners
WHERE id = $1 AND ended_at IS NULL
-- postgres: FOR KEY SHARE
