-- Deliveries that were over before the retention horizon, a bounded number at a time.
DELETE FROM deliveries
WHERE id IN (SELECT id FROM deliveries WHERE finished_at < $1 ORDER BY finished_at LIMIT $2)
