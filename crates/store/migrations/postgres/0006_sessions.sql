-- Sessions: durable executions of cascades (seed 004). The row is small because it is written often; what is large
-- and never changes stands beside it.
CREATE TABLE sessions (
    session_id              TEXT COLLATE "C" PRIMARY KEY,
    cascade_id              TEXT COLLATE "C" NOT NULL,
    parent_session_id       TEXT COLLATE "C" REFERENCES sessions(session_id),
    parent_phase            TEXT COLLATE "C",
    name                    TEXT COLLATE "C",
    -- Its owner's columns.
    status                  TEXT COLLATE "C" NOT NULL,
    current_phase           TEXT COLLATE "C",
    depth                   BIGINT NOT NULL DEFAULT 0,
    blocked_type            TEXT COLLATE "C",
    blocked_on              TEXT COLLATE "C",
    blocked_description     TEXT COLLATE "C",
    blocked_since           TEXT COLLATE "C",
    blocked_timeout_at      TEXT COLLATE "C",
    heartbeat_at            TEXT COLLATE "C" NOT NULL,
    heartbeat_lease_seconds BIGINT NOT NULL DEFAULT 60,
    cancel_seen_at          TEXT COLLATE "C",
    cancelled_at            TEXT COLLATE "C",
    error_message           TEXT COLLATE "C",
    error_phase             TEXT COLLATE "C",
    last_checkpoint_id      TEXT COLLATE "C",
    completed_at            TEXT COLLATE "C",
    -- The service's: what people want of it.
    cancel_requested        BIGINT NOT NULL DEFAULT 0,
    cancel_reason           TEXT COLLATE "C",
    cancel_requested_at     TEXT COLLATE "C",
    cancel_requested_by     TEXT COLLATE "C",
    cancel_force            BIGINT NOT NULL DEFAULT 0,
    cancel_grace_seconds    BIGINT,
    -- Written once.
    resumable               BIGINT NOT NULL,
    auto_resume             BIGINT NOT NULL DEFAULT 1,
    origin_id               TEXT COLLATE "C" REFERENCES sessions(session_id),
    origin_phase            TEXT COLLATE "C",
    started_at              TEXT COLLATE "C" NOT NULL,
    created_by              TEXT COLLATE "C" NOT NULL,
    metadata                TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    -- Written with every change of the others.
    updated_at              TEXT COLLATE "C" NOT NULL,
    -- Whoever takes it over writes these, and the epoch rises: the fence.
    owner_id                TEXT COLLATE "C",
    owner_epoch             BIGINT NOT NULL DEFAULT 1
);
CREATE INDEX idx_sessions_started ON sessions(started_at, session_id);
CREATE INDEX idx_sessions_name ON sessions(name) WHERE name IS NOT NULL;
CREATE INDEX idx_sessions_parent ON sessions(parent_session_id);
CREATE INDEX idx_sessions_open ON sessions(owner_id, session_id) WHERE status NOT IN ('completed', 'error', 'cancelled');

-- A definition is kept once, however many sessions run it.
CREATE TABLE cascades (
    hash       TEXT COLLATE "C" PRIMARY KEY,
    definition TEXT COLLATE "C" NOT NULL
);

CREATE TABLE session_values (
    session_id   TEXT COLLATE "C" PRIMARY KEY REFERENCES sessions(session_id),
    cascade_hash TEXT COLLATE "C" NOT NULL REFERENCES cascades(hash),
    inputs       TEXT COLLATE "C" NOT NULL,
    -- What it was started with beside the cascade: directory, environment, provider.
    surroundings TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    outputs      TEXT COLLATE "C"
);

-- Phases that have begun.
CREATE TABLE session_phases (
    session_id       TEXT COLLATE "C" NOT NULL REFERENCES sessions(session_id),
    position         BIGINT NOT NULL,
    name             TEXT COLLATE "C" NOT NULL,
    status           TEXT COLLATE "C" NOT NULL,
    started_at       TEXT COLLATE "C" NOT NULL,
    completed_at     TEXT COLLATE "C",
    outputs          TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    error            TEXT COLLATE "C",
    child_session_id TEXT COLLATE "C" REFERENCES sessions(session_id),
    PRIMARY KEY (session_id, position)
);

ALTER TABLE tasks ADD COLUMN phase TEXT COLLATE "C";
ALTER TABLE tasks ADD COLUMN position BIGINT;
ALTER TABLE tasks ADD COLUMN key TEXT COLLATE "C";
ALTER TABLE tasks ADD COLUMN retry_at TEXT COLLATE "C";
ALTER TABLE tasks ADD COLUMN exit_code BIGINT;
ALTER TABLE tasks ADD COLUMN outputs TEXT COLLATE "C" NOT NULL DEFAULT '{}';
ALTER TABLE tasks ADD COLUMN error TEXT COLLATE "C";
ALTER TABLE tasks ADD COLUMN started_at TEXT COLLATE "C";
ALTER TABLE tasks ADD COLUMN completed_at TEXT COLLATE "C";
-- The next pending ones of a level, and how many there are of each state, without reading the level.
CREATE INDEX idx_tasks_level ON tasks(session_id, phase, state, position);
CREATE INDEX idx_tasks_retry ON tasks(session_id, phase, retry_at) WHERE retry_at IS NOT NULL;

-- One execution of a task; the number is the fencing token of contract 6.
CREATE TABLE attempts (
    task_id             TEXT COLLATE "C" NOT NULL REFERENCES tasks(id),
    attempt             BIGINT NOT NULL,
    session_id          TEXT COLLATE "C" NOT NULL REFERENCES sessions(session_id),
    phase               TEXT COLLATE "C" NOT NULL,
    status              TEXT COLLATE "C" NOT NULL,
    container_id        TEXT COLLATE "C" REFERENCES containers(id),
    verify_container_id TEXT COLLATE "C" REFERENCES containers(id),
    worker_id           TEXT COLLATE "C",
    exit_code           BIGINT,
    failure_reason      TEXT COLLATE "C",
    message             TEXT COLLATE "C",
    -- Of a worker's task: the end of what it wrote. A container's is in its job.
    output              TEXT COLLATE "C",
    started_at          TEXT COLLATE "C" NOT NULL,
    ended_at            TEXT COLLATE "C",
    PRIMARY KEY (task_id, attempt)
);
CREATE INDEX idx_attempts_open ON attempts(session_id, phase) WHERE ended_at IS NULL;
CREATE INDEX idx_attempts_session ON attempts(session_id);
CREATE INDEX idx_attempts_container ON attempts(container_id);
CREATE INDEX idx_attempts_verify ON attempts(verify_container_id) WHERE verify_container_id IS NOT NULL;

-- What blocked sessions wait for. The first answer wins: it is written only while `status` is `open`.
CREATE TABLE waits (
    id            TEXT COLLATE "C" PRIMARY KEY,
    session_id    TEXT COLLATE "C" NOT NULL REFERENCES sessions(session_id),
    phase         TEXT COLLATE "C" NOT NULL,
    task_id       TEXT COLLATE "C" REFERENCES tasks(id),
    wait_type     TEXT COLLATE "C" NOT NULL,
    wait_on       TEXT COLLATE "C" NOT NULL,
    description   TEXT COLLATE "C" NOT NULL,
    question      TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    on_timeout    TEXT COLLATE "C" NOT NULL,
    default_value TEXT COLLATE "C",
    since         TEXT COLLATE "C" NOT NULL,
    deadline      TEXT COLLATE "C",
    status        TEXT COLLATE "C" NOT NULL,
    answer        TEXT COLLATE "C",
    answered_by   TEXT COLLATE "C",
    answer_reason TEXT COLLATE "C",
    answered_at   TEXT COLLATE "C",
    signal_id     TEXT COLLATE "C"
);
CREATE INDEX idx_waits_session ON waits(session_id);
CREATE INDEX idx_waits_open ON waits(wait_type, wait_on, since) WHERE status = 'open';

CREATE TABLE signals (
    id           TEXT COLLATE "C" PRIMARY KEY,
    name         TEXT COLLATE "C" NOT NULL,
    session_id   TEXT COLLATE "C" REFERENCES sessions(session_id),
    payload      TEXT COLLATE "C" NOT NULL,
    fired_at     TEXT COLLATE "C" NOT NULL,
    fired_by     TEXT COLLATE "C" NOT NULL,
    deliveries   BIGINT NOT NULL DEFAULT 0,
    delivered_at TEXT COLLATE "C"
);
CREATE INDEX idx_signals_name ON signals(name, fired_at);
CREATE INDEX idx_signals_fired ON signals(fired_at, id);
CREATE INDEX idx_signals_pending ON signals(name) WHERE deliveries = 0;

CREATE TABLE signal_deliveries (
    -- At most one signal ends a wait.
    wait_id   TEXT COLLATE "C" PRIMARY KEY REFERENCES waits(id),
    signal_id TEXT COLLATE "C" NOT NULL REFERENCES signals(id)
);
CREATE INDEX idx_signal_deliveries_signal ON signal_deliveries(signal_id);

CREATE TABLE checkpoints (
    id         TEXT COLLATE "C" PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL REFERENCES sessions(session_id),
    phase      TEXT COLLATE "C" NOT NULL,
    task_id    TEXT COLLATE "C" REFERENCES tasks(id),
    at         TEXT COLLATE "C" NOT NULL
);
CREATE INDEX idx_checkpoints_session ON checkpoints(session_id, id);

CREATE INDEX idx_events_session ON events(session_id, id) WHERE session_id IS NOT NULL;

-- The inbox: jobs that need a person, and whether somebody went on with one.
CREATE INDEX idx_jobs_waiting ON jobs(waiting_since, id) WHERE activity = 'waiting';
CREATE INDEX idx_jobs_origin ON jobs(origin_id) WHERE origin_id IS NOT NULL;

-- Where its home is, for others on the same machine: they see by its lock that it has died.
ALTER TABLE owners ADD COLUMN home_path TEXT COLLATE "C";

-- The waits that were open when a signal for everybody was fired: written with it, so that no clock decides.
CREATE TABLE signal_targets (
    signal_id TEXT COLLATE "C" NOT NULL REFERENCES signals(id),
    wait_id   TEXT COLLATE "C" NOT NULL REFERENCES waits(id),
    PRIMARY KEY (signal_id, wait_id)
);
CREATE INDEX idx_signal_targets_wait ON signal_targets(wait_id);
