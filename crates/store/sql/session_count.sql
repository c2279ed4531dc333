-- How many sessions there are.
SELECT COUNT(*)
FROM sessions
