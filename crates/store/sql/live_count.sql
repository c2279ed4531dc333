-- How many containers are not over. The bound on created_at is always true; it leads to the index of the
-- live ones.
SELECT COUNT(*)
FROM containers
WHERE state <> 'terminated' AND created_at >= ''
