-- The sessions that went on with one that was over, or begin again at a phase of it; the newest first.
SELECT session_id, origin_phase
FROM sessions
WHERE origin_id = $1
ORDER BY started_at DESC, session_id DESC
LIMIT 20
