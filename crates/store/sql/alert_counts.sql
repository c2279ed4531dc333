-- What the deliveries of one alert amount to.
SELECT COUNT(CASE WHEN state IN ('pending', 'sending') THEN 1 END),
       COUNT(CASE WHEN state = 'delivered' THEN 1 END),
       COUNT(CASE WHEN state = 'failed' THEN 1 END),
       MAX(CASE WHEN state = 'delivered' THEN finished_at END)
FROM deliveries
WHERE alert = $1
