-- Hours beyond the retention horizon.
DELETE FROM heartbeat_hours
WHERE hour < $1
