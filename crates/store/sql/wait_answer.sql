-- The answer of a person. The first one wins: nobody answers twice.
UPDATE waits
SET status = 'answered', answer = $2, answered_by = $3, answer_reason = $4, answered_at = $5
WHERE id = $1 AND status = 'open'
