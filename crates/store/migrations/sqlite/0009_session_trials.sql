-- The first looks at sessions after a change of owner that were begun and not ended: whoever began one and died with it
-- leaves its row, and how often that has happened is counted. No row: nothing of the kind is known.
CREATE TABLE session_trials (
    session_id TEXT PRIMARY KEY REFERENCES sessions(session_id) ON DELETE CASCADE,
    begun      BIGINT NOT NULL
) WITHOUT ROWID;

-- Which sessions went on with one.
CREATE INDEX idx_sessions_origin ON sessions(origin_id) WHERE origin_id IS NOT NULL;
