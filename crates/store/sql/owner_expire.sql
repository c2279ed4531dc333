-- An owner that has not renewed its lease while somebody watched is ended, which fences whatever it still has under way.
UPDATE owners
SET ended_at = $3
WHERE id = $1 AND ended_at IS NULL AND lease_until = $2
