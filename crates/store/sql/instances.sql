-- Every instance that was ever seen, with how many of its sandboxes are alive here as foreign.
SELECT i.id, i.is_self, i.created_at, i.adopted_at, i.adopted_by,
       (SELECT COUNT(*) FROM foreign_sandboxes f WHERE f.instance_id = i.id AND f.gone_at IS NULL)
FROM instances i
ORDER BY i.is_self DESC, i.created_at, i.id
