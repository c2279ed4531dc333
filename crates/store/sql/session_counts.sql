-- How many sessions there are of each status.
SELECT status, COUNT(*)
FROM sessions
GROUP BY status
ORDER BY status
