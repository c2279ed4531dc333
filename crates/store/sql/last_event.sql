-- Where the tail ends now.
SELECT COALESCE(MAX(id), 0)
FROM events
