-- An event is to go to an alert; once for each pair, however often it is planned. $1 id, $2 alert, $3 event, $4 now.
INSERT INTO deliveries (id, alert, event_id, state, created_at, next_attempt_at)
VALUES ($1, $2, $3, 'pending', $4, $4)
ON CONFLICT (alert, event_id) DO NOTHING
