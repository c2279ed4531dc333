-- A page of an owner's sessions that wait for a signal of this name, after that one.
SELECT DISTINCT w.session_id
FROM waits w JOIN sessions s ON s.session_id = w.session_id
WHERE w.wait_type = 'signal' AND w.wait_on = $1 AND w.status = 'open' AND s.owner_id = $2 AND w.session_id > $3
ORDER BY w.session_id
LIMIT $4
