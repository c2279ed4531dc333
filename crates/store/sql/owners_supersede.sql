-- Whoever has the lock of a home is its only server: the earlier ones have ended, whether they said so or not.
UPDATE owners
SET ended_at = $3
WHERE home_id = $1 AND id <> $2 AND ended_at IS NULL
