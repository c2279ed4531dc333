-- The names of signals for everybody that were kept for waits of this session, which are over and did not take them: whoever
-- waits next may.
SELECT DISTINCT s.name
FROM waits w
JOIN signal_targets t ON t.wait_id = w.id
JOIN signals s ON s.id = t.signal_id
WHERE w.session_id = $1 AND w.status <> 'open' AND s.deliveries = 0
