-- How many jobs there are of each status, and how many of those need a person.
SELECT status, COUNT(*), SUM(CASE WHEN activity = 'waiting' THEN 1 ELSE 0 END)
FROM jobs
GROUP BY status
ORDER BY status
