-- The last event that is not later than $1, and the time of the first that is still kept. By id: a clock that
-- was set back must not turn the history round.
SELECT COALESCE((SELECT MAX(id) FROM events WHERE timestamp <= $1), 0),
       (SELECT timestamp FROM events ORDER BY id LIMIT 1)
