-- A reader has dealt with everything up to $3. It moves only from where it was believed to be: whoever has moved it
-- meanwhile has recorded what lies between.
UPDATE readers
SET event_id = $3
WHERE name = $1 AND event_id = $2
