-- Whether tasks of a session may be claimed: it runs, and nobody wants its end. On PostgreSQL a wish to end it waits for
-- the claim, or the claim finds the wish.
SELECT 1
FROM sessions
WHERE session_id = $1 AND status IN ('starting', 'running', 'blocked') AND cancel_requested = 0
-- postgres: FOR SHARE
