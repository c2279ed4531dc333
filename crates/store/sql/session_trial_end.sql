-- A first look was survived, or a person answers for the next.
DELETE FROM session_trials
WHERE session_id = $1
