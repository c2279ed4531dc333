-- How many open waits there are of each type.
SELECT wait_type, COUNT(*)
FROM waits
WHERE status = 'open'
GROUP BY wait_type
