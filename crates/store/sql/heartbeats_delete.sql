-- The raw heartbeats that heartbeats_fold has just folded: the same choice, in the same transaction.
DELETE FROM heartbeats
WHERE id IN (SELECT id FROM heartbeats WHERE timestamp < $1 ORDER BY timestamp, id LIMIT $2)
