-- All but the newest $1 starts.
DELETE FROM startups
WHERE owner_id NOT IN (SELECT owner_id FROM startups ORDER BY started_at DESC, owner_id DESC LIMIT $1)
