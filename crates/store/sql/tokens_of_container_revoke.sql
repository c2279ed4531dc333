-- A new attempt to create a container ends what earlier attempts were given.
UPDATE tokens SET revoked_at = $2 WHERE container_id = $1 AND revoked_at IS NULL
