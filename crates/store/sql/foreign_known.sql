-- The provider's ids of foreign sandboxes that are recorded as alive.
SELECT sandbox_id
FROM foreign_sandboxes
WHERE provider = $1 AND gone_at IS NULL
