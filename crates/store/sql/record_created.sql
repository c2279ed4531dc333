-- What the provider calls it. Never renames: a second, different answer is a conflict.
UPDATE containers
SET sandbox_id = $2, provider_identity = $3, updated_at = $4
WHERE id = $1 AND (sandbox_id IS NULL OR sandbox_id = $2)
