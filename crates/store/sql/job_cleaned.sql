-- The directory of a job that is over goes: told once, before it is done.
UPDATE jobs SET cleaned_at = $2
WHERE id = $1 AND cleaned_at IS NULL AND status IN ('dead', 'finished', 'failed')
