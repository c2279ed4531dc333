-- How many first looks at a session were begun since one was ended.
SELECT begun
FROM session_trials
WHERE session_id = $1
