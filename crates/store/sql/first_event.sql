-- Where the history begins now; 0 when it is empty.
SELECT COALESCE(MIN(id), 0)
FROM events
