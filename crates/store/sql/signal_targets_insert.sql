-- The waits that a signal for everybody is for: those that are open now.
INSERT INTO signal_targets (signal_id, wait_id)
SELECT s.id, w.id
FROM signals s JOIN waits w ON w.wait_type = 'signal' AND w.wait_on = s.name AND w.status = 'open'
WHERE s.id = $1
