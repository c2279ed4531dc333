-- The provider's ids of foreign sandboxes that are recorded as alive there: another engine's listing says
-- nothing about them.
SELECT sandbox_id
FROM foreign_sandboxes
WHERE provider = $1 AND provider_identity = $2 AND gone_at IS NULL
