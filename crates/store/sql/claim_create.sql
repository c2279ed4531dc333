-- Claims attempt number expected+1 of an intent, before the provider is asked (contract 2). Which engine is
-- asked is part of it: another one's word about this container means nothing from here on.
UPDATE containers
SET create_attempts = create_attempts + 1, create_attempted_at = $3, provider_identity = $4, updated_at = $3
WHERE id = $1 AND create_attempts = $2 AND state = 'created' AND desired = 'running'
