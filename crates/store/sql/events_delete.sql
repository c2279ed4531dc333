-- Events beyond the retention horizon, oldest first, a bounded number at a time.
DELETE FROM events
WHERE id IN (SELECT id FROM events WHERE timestamp < $1 ORDER BY timestamp, id LIMIT $2)
