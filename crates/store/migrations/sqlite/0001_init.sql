-- The first schema (seed 000, SPEC-21.10 to 21.13, and what DESIGN adds to it).
--
-- Types are TEXT, BIGINT and DOUBLE PRECISION only. Times are fixed-width UTC text, so text order is time
-- order. Booleans are 0 or 1. JSON is text. PostgreSQL's file says where it differs.
--
-- Foreign keys are immediate on purpose: a deferred one would only be found at COMMIT, and a COMMIT is
-- shared by every script of its group, so one caller's mistake would fail its neighbours.

CREATE TABLE tasks (
    id             TEXT PRIMARY KEY,
    title          TEXT NOT NULL DEFAULT '',
    state          TEXT NOT NULL DEFAULT 'pending',
    session_id     TEXT,
    -- The fencing token of contract 6; crash and failure are counted apart.
    attempt        BIGINT NOT NULL DEFAULT 0,
    retry_count    BIGINT NOT NULL DEFAULT 0,
    crash_count    BIGINT NOT NULL DEFAULT 0,
    failure_reason TEXT,
    metadata       TEXT NOT NULL DEFAULT '{}',
    created_at     TEXT NOT NULL,
    updated_at     TEXT NOT NULL
);
CREATE INDEX idx_tasks_state ON tasks(state);
CREATE INDEX idx_tasks_session ON tasks(session_id);

CREATE TABLE workers (
    id                TEXT PRIMARY KEY,
    task_id           TEXT REFERENCES tasks(id),
    state             TEXT NOT NULL DEFAULT 'spawning',
    container_id      TEXT REFERENCES containers(id),
    session_id        TEXT,
    last_heartbeat_at TEXT,
    health_status     TEXT NOT NULL DEFAULT 'unknown',
    terminated_at     TEXT,
    exit_code         BIGINT,
    metadata          TEXT NOT NULL DEFAULT '{}',
    created_at        TEXT NOT NULL,
    updated_at        TEXT NOT NULL
);
CREATE INDEX idx_workers_container ON workers(container_id);
CREATE INDEX idx_workers_session ON workers(session_id);
CREATE INDEX idx_workers_health ON workers(health_status);
CREATE INDEX idx_workers_task ON workers(task_id);

CREATE TABLE containers (
    -- Identity
    id                   TEXT PRIMARY KEY,
    provider             TEXT NOT NULL,
    provider_identity    TEXT,
    sandbox_id           TEXT,
    instance_id          TEXT NOT NULL,
    name                 TEXT,
    -- Relationships
    worker_id            TEXT REFERENCES workers(id),
    task_id              TEXT REFERENCES tasks(id),
    session_id           TEXT,
    -- Lifecycle, as last observed
    state                TEXT NOT NULL DEFAULT 'unknown',
    created_at           TEXT NOT NULL,
    started_at           TEXT,
    terminated_at        TEXT,
    exit_code            BIGINT,
    termination_reason   TEXT,
    suspected_at         TEXT,
    -- What is wanted, and the receipts of a stop
    desired              TEXT NOT NULL DEFAULT 'running',
    desired_at           TEXT,
    desired_by           TEXT,
    desired_reason       TEXT,
    stop_grace_seconds   BIGINT,
    stop_seen_at         TEXT,
    stopping_at          TEXT,
    stop_confirmed_at    TEXT,
    stop_attempts        BIGINT NOT NULL DEFAULT 0,
    stop_attempted_at    TEXT,
    stop_error           TEXT,
    -- The intent to create
    create_attempts      BIGINT NOT NULL DEFAULT 0,
    create_attempted_at  TEXT,
    -- Health and usage
    last_heartbeat_at    TEXT,
    health_status        TEXT NOT NULL DEFAULT 'unknown',
    consecutive_failures BIGINT NOT NULL DEFAULT 0,
    cpu_percent          DOUBLE PRECISION,
    memory_percent       DOUBLE PRECISION,
    memory_used_mb       BIGINT,
    disk_percent         DOUBLE PRECISION,
    uptime_seconds       BIGINT,
    silent_alerted_at    TEXT,
    -- Resources
    cpu_cores            DOUBLE PRECISION,
    memory_mb            BIGINT,
    gpu_type             TEXT,
    region               TEXT,
    -- Cost
    cost_accrued_usd     DOUBLE PRECISION NOT NULL DEFAULT 0,
    cost_rate_per_hour   DOUBLE PRECISION,
    cost_source          TEXT NOT NULL DEFAULT 'estimated',
    -- What it runs
    image                TEXT,
    command              TEXT NOT NULL DEFAULT '[]',
    labels               TEXT NOT NULL DEFAULT '{}',
    keep                 BIGINT NOT NULL DEFAULT 0,
    spec                 TEXT,
    metadata             TEXT NOT NULL DEFAULT '{}',
    updated_at           TEXT NOT NULL,
    -- A provider's id names one sandbox; rows that have none yet do not collide.
    UNIQUE (provider, sandbox_id)
);
CREATE INDEX idx_containers_state ON containers(state);
CREATE INDEX idx_containers_sandbox ON containers(sandbox_id);
CREATE INDEX idx_containers_health ON containers(health_status);
CREATE INDEX idx_containers_worker ON containers(worker_id);
CREATE INDEX idx_containers_updated ON containers(updated_at);
CREATE INDEX idx_containers_task ON containers(task_id);
CREATE INDEX idx_containers_created ON containers(created_at, id);
-- The reconciler and the live views must not pay for the history: only rows that are not over.
CREATE INDEX idx_containers_live ON containers(provider, created_at, id) WHERE state <> 'terminated';
CREATE INDEX idx_containers_active ON containers(created_at, id) WHERE state <> 'terminated';

CREATE TABLE events (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    timestamp    TEXT NOT NULL,
    event_type   TEXT NOT NULL,
    container_id TEXT REFERENCES containers(id),
    worker_id    TEXT,
    task_id      TEXT,
    session_id   TEXT,
    old_value    TEXT,
    new_value    TEXT,
    message      TEXT,
    details      TEXT NOT NULL DEFAULT '{}',
    source       TEXT NOT NULL DEFAULT 'system'
);
CREATE INDEX idx_events_timestamp ON events(timestamp);
CREATE INDEX idx_events_type ON events(event_type);
CREATE INDEX idx_events_container ON events(container_id);
CREATE INDEX idx_events_task ON events(task_id);
CREATE INDEX idx_events_type_timestamp ON events(event_type, timestamp);

CREATE TABLE heartbeats (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    container_id      TEXT NOT NULL REFERENCES containers(id),
    timestamp         TEXT NOT NULL,
    cpu_percent       DOUBLE PRECISION,
    memory_percent    DOUBLE PRECISION,
    memory_mb         BIGINT,
    disk_percent      DOUBLE PRECISION,
    uptime_seconds    BIGINT,
    tmux_active       BIGINT,
    claude_responsive BIGINT,
    metadata          TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX idx_heartbeats_container ON heartbeats(container_id);
CREATE INDEX idx_heartbeats_timestamp ON heartbeats(timestamp);
CREATE INDEX idx_heartbeats_container_time ON heartbeats(container_id, timestamp);

CREATE TABLE heartbeat_hours (
    container_id       TEXT NOT NULL REFERENCES containers(id),
    hour               TEXT NOT NULL,
    samples            BIGINT NOT NULL,
    -- How many of the samples had a figure at all: without these, two averages cannot be joined.
    cpu_samples        BIGINT NOT NULL,
    memory_samples     BIGINT NOT NULL,
    cpu_percent_avg    DOUBLE PRECISION,
    cpu_percent_max    DOUBLE PRECISION,
    memory_percent_avg DOUBLE PRECISION,
    memory_percent_max DOUBLE PRECISION,
    memory_mb_max      BIGINT,
    disk_percent_max   DOUBLE PRECISION,
    first_at           TEXT NOT NULL,
    last_at            TEXT NOT NULL,
    PRIMARY KEY (container_id, hour)
);
CREATE INDEX idx_heartbeat_hours_hour ON heartbeat_hours(hour);

CREATE TABLE owners (
    id          TEXT PRIMARY KEY,
    home_id     TEXT NOT NULL,
    host        TEXT NOT NULL,
    boot_id     TEXT NOT NULL,
    epoch       BIGINT NOT NULL DEFAULT 0,
    started_at  TEXT NOT NULL,
    lease_until TEXT NOT NULL,
    ended_at    TEXT,
    version     TEXT NOT NULL
);
CREATE INDEX idx_owners_started ON owners(started_at);

-- One row at most: who leads, and the epoch that fences everybody before it.
CREATE TABLE leadership (
    id          BIGINT PRIMARY KEY CHECK (id = 1),
    owner_id    TEXT NOT NULL REFERENCES owners(id),
    epoch       BIGINT NOT NULL,
    lease_until TEXT NOT NULL
);

CREATE TABLE instances (
    id         TEXT PRIMARY KEY,
    is_self    BIGINT NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL,
    adopted_at TEXT,
    adopted_by TEXT
);
CREATE UNIQUE INDEX idx_instances_self ON instances(is_self) WHERE is_self = 1;

CREATE TABLE foreign_sandboxes (
    provider          TEXT NOT NULL,
    sandbox_id        TEXT NOT NULL,
    provider_identity TEXT NOT NULL,
    instance_id       TEXT NOT NULL REFERENCES instances(id),
    container_id      TEXT NOT NULL,
    task_id           TEXT,
    name              TEXT,
    created_at        TEXT,
    started_at        TEXT,
    cpu_cores         DOUBLE PRECISION,
    memory_mb         BIGINT,
    gpu_type          TEXT,
    region            TEXT,
    command           TEXT NOT NULL DEFAULT '[]',
    labels            TEXT NOT NULL DEFAULT '{}',
    first_seen_at     TEXT NOT NULL,
    last_seen_at      TEXT NOT NULL,
    gone_at           TEXT,
    PRIMARY KEY (provider, sandbox_id)
);
CREATE INDEX idx_foreign_instance ON foreign_sandboxes(instance_id);

CREATE TABLE providers (
    name              TEXT PRIMARY KEY,
    identity          TEXT,
    unreachable_since TEXT,
    breaker_since     TEXT,
    breaker_agreed    BIGINT NOT NULL DEFAULT 0,
    breaker_agreed_at TEXT,
    updated_at        TEXT NOT NULL
);

CREATE TABLE reconcile_cycles (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    provider      TEXT NOT NULL,
    trigger       TEXT NOT NULL,
    started_at    TEXT NOT NULL,
    finished_at   TEXT NOT NULL,
    duration_ms   BIGINT NOT NULL,
    outcome       TEXT NOT NULL,
    error         TEXT,
    sandboxes     BIGINT NOT NULL,
    db_rows       BIGINT NOT NULL,
    suspected     BIGINT NOT NULL,
    orphans       BIGINT NOT NULL,
    adopted       BIGINT NOT NULL,
    started       BIGINT NOT NULL,
    terminated    BIGINT NOT NULL,
    corrections   BIGINT NOT NULL,
    foreign_count BIGINT NOT NULL,
    actions       BIGINT NOT NULL,
    failures      BIGINT NOT NULL,
    waiting       TEXT NOT NULL DEFAULT '[]',
    next_at       TEXT
);
CREATE INDEX idx_cycles_provider ON reconcile_cycles(provider, id);
CREATE INDEX idx_cycles_started ON reconcile_cycles(started_at);
