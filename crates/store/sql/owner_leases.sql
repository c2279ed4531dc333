-- Until when each owner that has not ended is known to live.
SELECT id, lease_until
FROM owners
WHERE ended_at IS NULL
