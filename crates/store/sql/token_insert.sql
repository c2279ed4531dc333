-- A token, by its hash: the secret itself is never here.
INSERT INTO tokens (id, subject, role, container_id, hash, created_at, created_by, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
