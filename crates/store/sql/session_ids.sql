-- Ids that begin as given: resolves a prefix that a person typed. At most 10, enough to show a choice.
SELECT session_id, status
FROM sessions
WHERE session_id >= $1 AND session_id < $2
ORDER BY session_id
LIMIT 10
