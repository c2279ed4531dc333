-- Who presents this secret. The token of a container holds for as long as the container is not over.
SELECT t.id, t.subject, t.role, t.container_id, t.created_at, t.created_by, t.expires_at, t.revoked_at, t.last_used_at
FROM tokens t
WHERE t.hash = $1
  AND (t.container_id IS NULL
       OR EXISTS (SELECT 1 FROM containers c WHERE c.id = t.container_id AND c.state <> 'terminated'))
