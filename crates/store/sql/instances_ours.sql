-- The instances whose sandboxes are ours: this one, and those that were adopted.
SELECT id
FROM instances
WHERE is_self = 1 OR adopted_at IS NOT NULL
