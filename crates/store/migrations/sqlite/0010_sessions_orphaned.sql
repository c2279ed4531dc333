-- Those that were left to a person: looked for every two seconds, and nearly always none.
CREATE INDEX idx_sessions_orphaned ON sessions(session_id) WHERE status = 'orphaned';
