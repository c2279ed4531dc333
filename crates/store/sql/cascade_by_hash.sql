-- A definition.
SELECT definition
FROM cascades
WHERE hash = $1
