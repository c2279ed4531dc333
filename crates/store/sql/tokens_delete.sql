-- Tokens that can never be used again and whose end is long past.
DELETE FROM tokens
WHERE revoked_at < $1
   OR expires_at < $1
   OR container_id IN (SELECT id FROM containers WHERE state = 'terminated' AND terminated_at < $1)
