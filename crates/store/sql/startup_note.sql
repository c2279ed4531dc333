-- The steps that it has made so far; $3 when it is done.
UPDATE startups SET steps = $2, finished_at = $3 WHERE owner_id = $1
