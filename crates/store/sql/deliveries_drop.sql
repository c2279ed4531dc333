-- What was still on its way to an alert that is no longer configured. $1 alert, $2 why, $3 now.
UPDATE deliveries
SET state = 'failed', last_error = $2, finished_at = $3
WHERE alert = $1 AND state IN ('pending', 'sending')
