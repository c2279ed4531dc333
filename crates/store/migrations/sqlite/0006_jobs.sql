-- One execution of a command under a supervisor, and what the jobs loop knows of it.
CREATE TABLE jobs (
    id               TEXT PRIMARY KEY,
    container_id     TEXT NOT NULL UNIQUE REFERENCES containers(id),
    name             TEXT,
    engine           TEXT NOT NULL,
    origin_id        TEXT REFERENCES jobs(id),
    timeout_seconds  BIGINT,
    interactive      BIGINT NOT NULL DEFAULT 0,
    created_at       TEXT NOT NULL,
    created_by       TEXT NOT NULL,
    -- From here on the columns of the jobs loop.
    status           TEXT NOT NULL,
    status_at        TEXT NOT NULL,
    status_reason    TEXT,
    activity         TEXT NOT NULL,
    waiting_reason   TEXT,
    waiting_since    TEXT,
    agent_session    TEXT,
    heartbeat_at     TEXT,
    reattached_at    TEXT,
    reattached_count BIGINT NOT NULL DEFAULT 0,
    reattach_ms      BIGINT,
    ended_at         TEXT,
    exit_code        BIGINT,
    cleanup_at       TEXT,
    cleaned_at       TEXT
);
CREATE INDEX idx_jobs_created ON jobs(created_at, id);
CREATE INDEX idx_jobs_open ON jobs(id) WHERE status NOT IN ('finished', 'failed');

-- Each start of a server, step by step. One without an end was cut off.
CREATE TABLE startups (
    owner_id    TEXT PRIMARY KEY,
    host        TEXT NOT NULL,
    version     TEXT NOT NULL,
    started_at  TEXT NOT NULL,
    finished_at TEXT,
    steps       TEXT NOT NULL DEFAULT '[]'
);
CREATE INDEX idx_startups_started ON startups(started_at);
