-- Ids that begin as given: resolves a prefix that a person typed. At most 10, enough to show a choice.
SELECT id
FROM waits
WHERE id >= $1 AND id < $2
ORDER BY id
LIMIT 10
