-- An owner whose lease is over is ended, which fences whatever it still has under way.
UPDATE owners
SET ended_at = $2
WHERE id = $1 AND ended_at IS NULL AND lease_until < $2
