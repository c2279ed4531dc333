-- The sessions of an owner that wait for a signal of this name.
SELECT w.session_id
FROM waits w JOIN sessions s ON s.session_id = w.session_id
WHERE w.wait_type = 'signal' AND w.wait_on = $1 AND w.status = 'open' AND s.owner_id = $2
ORDER BY w.since
LIMIT $3
