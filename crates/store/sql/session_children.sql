-- The sub-sessions of a session, with what each gave.
SELECT s.session_id, s.status, s.cancel_requested, s.cancel_force, s.cancel_grace_seconds, s.error_message, s.blocked_description, v.outputs
FROM sessions s JOIN session_values v ON v.session_id = s.session_id
WHERE s.parent_session_id = $1
