-- The first schema, as PostgreSQL has it. It differs from SQLite's in what PostgreSQL needs and in nothing
-- else: text compares bytewise (COLLATE "C", so that text order is time order and prefix order whatever the
-- database's locale is), foreign keys that point forward are added at the end, and events have a transaction
-- id and take their ids from reserve_events().

CREATE TABLE parhelia_schema (version BIGINT NOT NULL);

CREATE TABLE tasks (
    id             TEXT COLLATE "C" PRIMARY KEY,
    title          TEXT COLLATE "C" NOT NULL DEFAULT '',
    state          TEXT COLLATE "C" NOT NULL DEFAULT 'pending',
    session_id     TEXT COLLATE "C",
    -- The fencing token of contract 6; crash and failure are counted apart.
    attempt        BIGINT NOT NULL DEFAULT 0,
    retry_count    BIGINT NOT NULL DEFAULT 0,
    crash_count    BIGINT NOT NULL DEFAULT 0,
    failure_reason TEXT COLLATE "C",
    metadata       TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    created_at     TEXT COLLATE "C" NOT NULL,
    updated_at     TEXT COLLATE "C" NOT NULL
);
CREATE INDEX idx_tasks_state ON tasks(state);
CREATE INDEX idx_tasks_session ON tasks(session_id);

CREATE TABLE workers (
    id                TEXT COLLATE "C" PRIMARY KEY,
    task_id           TEXT COLLATE "C" REFERENCES tasks(id),
    state             TEXT COLLATE "C" NOT NULL DEFAULT 'spawning',
    container_id      TEXT COLLATE "C",
    session_id        TEXT COLLATE "C",
    last_heartbeat_at TEXT COLLATE "C",
    health_status     TEXT COLLATE "C" NOT NULL DEFAULT 'unknown',
    terminated_at     TEXT COLLATE "C",
    exit_code         BIGINT,
    metadata          TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    created_at        TEXT COLLATE "C" NOT NULL,
    updated_at        TEXT COLLATE "C" NOT NULL
);
CREATE INDEX idx_workers_container ON workers(container_id);
CREATE INDEX idx_workers_session ON workers(session_id);
CREATE INDEX idx_workers_health ON workers(health_status);
CREATE INDEX idx_workers_task ON workers(task_id);

CREATE TABLE containers (
    -- Identity
    id                   TEXT COLLATE "C" PRIMARY KEY,
    provider             TEXT COLLATE "C" NOT NULL,
    provider_identity    TEXT COLLATE "C",
    sandbox_id           TEXT COLLATE "C",
    instance_id          TEXT COLLATE "C" NOT NULL,
    name                 TEXT COLLATE "C",
    -- Relationships
    worker_id            TEXT COLLATE "C" REFERENCES workers(id),
    task_id              TEXT COLLATE "C" REFERENCES tasks(id),
    session_id           TEXT COLLATE "C",
    -- Lifecycle, as last observed
    state                TEXT COLLATE "C" NOT NULL DEFAULT 'unknown',
    created_at           TEXT COLLATE "C" NOT NULL,
    started_at           TEXT COLLATE "C",
    terminated_at        TEXT COLLATE "C",
    exit_code            BIGINT,
    termination_reason   TEXT COLLATE "C",
    suspected_at         TEXT COLLATE "C",
    -- What is wanted, and the receipts of a stop
    desired              TEXT COLLATE "C" NOT NULL DEFAULT 'running',
    desired_at           TEXT COLLATE "C",
    desired_by           TEXT COLLATE "C",
    desired_reason       TEXT COLLATE "C",
    stop_grace_seconds   BIGINT,
    stop_seen_at         TEXT COLLATE "C",
    stopping_at          TEXT COLLATE "C",
    stop_confirmed_at    TEXT COLLATE "C",
    stop_attempts        BIGINT NOT NULL DEFAULT 0,
    stop_attempted_at    TEXT COLLATE "C",
    stop_error           TEXT COLLATE "C",
    -- The intent to create
    create_attempts      BIGINT NOT NULL DEFAULT 0,
    create_attempted_at  TEXT COLLATE "C",
    -- Health and usage
    last_heartbeat_at    TEXT COLLATE "C",
    health_status        TEXT COLLATE "C" NOT NULL DEFAULT 'unknown',
    consecutive_failures BIGINT NOT NULL DEFAULT 0,
    cpu_percent          DOUBLE PRECISION,
    memory_percent       DOUBLE PRECISION,
    memory_used_mb       BIGINT,
    disk_percent         DOUBLE PRECISION,
    uptime_seconds       BIGINT,
    silent_alerted_at    TEXT COLLATE "C",
    -- Resources
    cpu_cores            DOUBLE PRECISION,
    memory_mb            BIGINT,
    gpu_type             TEXT COLLATE "C",
    region               TEXT COLLATE "C",
    -- Cost
    cost_accrued_usd     DOUBLE PRECISION NOT NULL DEFAULT 0,
    cost_rate_per_hour   DOUBLE PRECISION,
    cost_source          TEXT COLLATE "C" NOT NULL DEFAULT 'estimated',
    -- What it runs
    image                TEXT COLLATE "C",
    command              TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    labels               TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    keep                 BIGINT NOT NULL DEFAULT 0,
    spec                 TEXT COLLATE "C",
    metadata             TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    updated_at           TEXT COLLATE "C" NOT NULL,
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
    -- base + slot of the block that reserve_events() gave to the transaction
    id           BIGINT PRIMARY KEY,
    timestamp    TEXT COLLATE "C" NOT NULL,
    event_type   TEXT COLLATE "C" NOT NULL,
    container_id TEXT COLLATE "C" REFERENCES containers(id),
    worker_id    TEXT COLLATE "C",
    task_id      TEXT COLLATE "C",
    session_id   TEXT COLLATE "C",
    old_value    TEXT COLLATE "C",
    new_value    TEXT COLLATE "C",
    message      TEXT COLLATE "C",
    details      TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    source       TEXT COLLATE "C" NOT NULL DEFAULT 'system',
    -- Which transaction wrote it: the tail stops below the oldest one that still runs (contract 9).
    txid         XID8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX idx_events_timestamp ON events(timestamp);
CREATE INDEX idx_events_type ON events(event_type);
CREATE INDEX idx_events_container ON events(container_id);
CREATE INDEX idx_events_task ON events(task_id);
CREATE INDEX idx_events_type_timestamp ON events(event_type, timestamp);

CREATE TABLE heartbeats (
    id                BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    container_id      TEXT COLLATE "C" NOT NULL REFERENCES containers(id),
    timestamp         TEXT COLLATE "C" NOT NULL,
    cpu_percent       DOUBLE PRECISION,
    memory_percent    DOUBLE PRECISION,
    memory_mb         BIGINT,
    disk_percent      DOUBLE PRECISION,
    uptime_seconds    BIGINT,
    tmux_active       BIGINT,
    claude_responsive BIGINT,
    metadata          TEXT COLLATE "C" NOT NULL DEFAULT '{}'
);
CREATE INDEX idx_heartbeats_container ON heartbeats(container_id);
CREATE INDEX idx_heartbeats_timestamp ON heartbeats(timestamp);
CREATE INDEX idx_heartbeats_container_time ON heartbeats(container_id, timestamp);

CREATE TABLE heartbeat_hours (
    container_id       TEXT COLLATE "C" NOT NULL REFERENCES containers(id),
    hour               TEXT COLLATE "C" NOT NULL,
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
    first_at           TEXT COLLATE "C" NOT NULL,
    last_at            TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (container_id, hour)
);
CREATE INDEX idx_heartbeat_hours_hour ON heartbeat_hours(hour);

CREATE TABLE owners (
    id          TEXT COLLATE "C" PRIMARY KEY,
    home_id     TEXT COLLATE "C" NOT NULL,
    host        TEXT COLLATE "C" NOT NULL,
    boot_id     TEXT COLLATE "C" NOT NULL,
    epoch       BIGINT NOT NULL DEFAULT 0,
    started_at  TEXT COLLATE "C" NOT NULL,
    lease_until TEXT COLLATE "C" NOT NULL,
    ended_at    TEXT COLLATE "C",
    version     TEXT COLLATE "C" NOT NULL
);
CREATE INDEX idx_owners_started ON owners(started_at);

-- One row at most: who leads, and the epoch that fences everybody before it.
CREATE TABLE leadership (
    id          BIGINT PRIMARY KEY CHECK (id = 1),
    owner_id    TEXT COLLATE "C" NOT NULL REFERENCES owners(id),
    epoch       BIGINT NOT NULL,
    lease_until TEXT COLLATE "C" NOT NULL
);
-- Makes the epoch part of a key. A guard reads its row FOR KEY SHARE: an election, which changes the epoch,
-- waits for every guarded write that is under way; a renewal of the lease, which does not, waits for none.
CREATE UNIQUE INDEX idx_leadership_epoch ON leadership(id, epoch);

CREATE TABLE instances (
    id         TEXT COLLATE "C" PRIMARY KEY,
    is_self    BIGINT NOT NULL DEFAULT 0,
    created_at TEXT COLLATE "C" NOT NULL,
    adopted_at TEXT COLLATE "C",
    adopted_by TEXT COLLATE "C"
);
CREATE UNIQUE INDEX idx_instances_self ON instances(is_self) WHERE is_self = 1;

CREATE TABLE foreign_sandboxes (
    provider          TEXT COLLATE "C" NOT NULL,
    sandbox_id        TEXT COLLATE "C" NOT NULL,
    provider_identity TEXT COLLATE "C" NOT NULL,
    instance_id       TEXT COLLATE "C" NOT NULL REFERENCES instances(id),
    container_id      TEXT COLLATE "C" NOT NULL,
    task_id           TEXT COLLATE "C",
    name              TEXT COLLATE "C",
    created_at        TEXT COLLATE "C",
    started_at        TEXT COLLATE "C",
    cpu_cores         DOUBLE PRECISION,
    memory_mb         BIGINT,
    gpu_type          TEXT COLLATE "C",
    region            TEXT COLLATE "C",
    command           TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    labels            TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    first_seen_at     TEXT COLLATE "C" NOT NULL,
    last_seen_at      TEXT COLLATE "C" NOT NULL,
    gone_at           TEXT COLLATE "C",
    PRIMARY KEY (provider, sandbox_id)
);
CREATE INDEX idx_foreign_instance ON foreign_sandboxes(instance_id);

CREATE TABLE providers (
    name              TEXT COLLATE "C" PRIMARY KEY,
    identity          TEXT COLLATE "C",
    unreachable_since TEXT COLLATE "C",
    breaker_since     TEXT COLLATE "C",
    breaker_agreed    BIGINT NOT NULL DEFAULT 0,
    breaker_agreed_at TEXT COLLATE "C",
    updated_at        TEXT COLLATE "C" NOT NULL
);

CREATE TABLE reconcile_cycles (
    id            BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    provider      TEXT COLLATE "C" NOT NULL,
    trigger       TEXT COLLATE "C" NOT NULL,
    started_at    TEXT COLLATE "C" NOT NULL,
    finished_at   TEXT COLLATE "C" NOT NULL,
    duration_ms   BIGINT NOT NULL,
    outcome       TEXT COLLATE "C" NOT NULL,
    error         TEXT COLLATE "C",
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
    waiting       TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    next_at       TEXT COLLATE "C"
);
CREATE INDEX idx_cycles_provider ON reconcile_cycles(provider, id);
CREATE INDEX idx_cycles_started ON reconcile_cycles(started_at);

ALTER TABLE workers ADD FOREIGN KEY (container_id) REFERENCES containers(id);

CREATE SEQUENCE event_ids;

-- Gives this transaction its transaction id and a block of event ids, both under one lock that is let go at
-- once: so ids and transaction ids rise together, and "every transaction below this one has ended" means
-- "every id below this one is decided". Without it a transaction with the smaller transaction id could draw
-- the larger event id, and a reader of the tail would pass by the other's. It must be the first thing that
-- writes in its transaction. The lock is the session's and not the transaction's, so that nobody waits for
-- anybody's commit; it is let go even if the call is cancelled.
CREATE FUNCTION reserve_events(n BIGINT) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    base BIGINT;
    key INTEGER := hashtext(current_schema());
BEGIN
    PERFORM pg_advisory_lock(1346915395, key);
    BEGIN
        PERFORM pg_current_xact_id();
        base := nextval('event_ids');
        IF n > 1 THEN
            PERFORM setval('event_ids', base + n - 1);
        END IF;
        PERFORM set_config('parhelia.events_from', base::TEXT, true);
    EXCEPTION WHEN OTHERS OR query_canceled THEN
        PERFORM pg_advisory_unlock(1346915395, key);
        RAISE;
    END;
    PERFORM pg_advisory_unlock(1346915395, key);
    RETURN base;
END $$;
