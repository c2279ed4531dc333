-- How far a reader of the history has come that must not lose its place.
CREATE TABLE readers (
    name     TEXT PRIMARY KEY,
    -- It has dealt with everything up to here.
    event_id INTEGER NOT NULL
);

-- An event on its way to a receiver of alerts.
CREATE TABLE deliveries (
    -- What the receiver tells repetitions by.
    id              TEXT PRIMARY KEY,
    alert           TEXT NOT NULL,
    event_id        INTEGER NOT NULL,
    state           TEXT NOT NULL,
    attempts        INTEGER NOT NULL DEFAULT 0,
    created_at      TEXT NOT NULL,
    next_attempt_at TEXT NOT NULL,
    attempted_at    TEXT,
    finished_at     TEXT,
    last_status     INTEGER,
    last_error      TEXT,
    UNIQUE (alert, event_id)
);
CREATE INDEX idx_deliveries_pending ON deliveries(alert, next_attempt_at) WHERE state = 'pending';
CREATE INDEX idx_deliveries_open ON deliveries(alert) WHERE state IN ('pending', 'sending');
CREATE INDEX idx_deliveries_finished ON deliveries(finished_at);
CREATE INDEX idx_deliveries_trouble ON deliveries(alert, attempted_at) WHERE last_error IS NOT NULL;
