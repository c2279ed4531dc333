-- Where every reader is.
SELECT name, event_id
FROM readers
ORDER BY name
