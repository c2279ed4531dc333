-- Every token, the newest first. Those that containers were given are left out unless asked for.
SELECT id, subject, role, container_id, created_at, created_by, expires_at, revoked_at, last_used_at
FROM tokens
WHERE ($1 = 1 OR container_id IS NULL)
ORDER BY created_at DESC, id DESC
LIMIT $2
