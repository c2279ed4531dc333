-- The health loop's columns, if the health is still the one that it decided from.
UPDATE containers
SET health_status = $3, consecutive_failures = $4, updated_at = $5
WHERE id = $1 AND health_status = $2 AND state <> 'terminated'
