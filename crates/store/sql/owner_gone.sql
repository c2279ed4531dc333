-- An owner that is known to be dead is ended, which fences whatever it has under way.
UPDATE owners
SET ended_at = $2
WHERE id = $1 AND ended_at IS NULL
