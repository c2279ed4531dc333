-- Who may come in: only the hash of a secret is kept.
CREATE TABLE tokens (
    id           TEXT PRIMARY KEY,
    subject      TEXT NOT NULL,
    role         TEXT NOT NULL,
    -- The one that a worker speaks for.
    container_id TEXT REFERENCES containers(id),
    hash         TEXT NOT NULL UNIQUE,
    created_at   TEXT NOT NULL,
    created_by   TEXT NOT NULL,
    expires_at   TEXT,
    revoked_at   TEXT,
    last_used_at TEXT
);
CREATE INDEX idx_tokens_container ON tokens(container_id);
