//! Every setting by its name: what kind of value it has, what is allowed, and what it is for. The one list that the
//! range checks, the environment, `config show` and the tests all read.

/// What a value may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Int {
        low: i64,
        high: i64,
    },
    /// More than the first, at most the second.
    Real {
        above: f64,
        most: f64,
    },
    Bool,
    Text,
    /// `true`, `false` or `auto`.
    Switch,
    /// Words, with commas between them in the environment.
    List,
    /// Never shown.
    Secret,
}

#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    pub about: &'static str,
}

impl Key {
    /// `server.max_batch` is `PARHELIA_SERVER_MAX_BATCH`.
    pub fn variable(&self) -> String {
        match self.name {
            // Named before the others were.
            "server.database_url" => "PARHELIA_DATABASE_URL".to_owned(),
            name => format!("PARHELIA_{}", name.replace('.', "_").to_uppercase()),
        }
    }

    pub fn allowed(&self) -> String {
        match self.kind {
            Kind::Int { low, high } => format!("from {low} to {high}"),
            Kind::Real { above, most } => format!("more than {above} and at most {most}"),
            Kind::Bool => "true or false".to_owned(),
            Kind::Switch => "true, false or \"auto\"".to_owned(),
            Kind::Text | Kind::Secret => "text".to_owned(),
            Kind::List => "words".to_owned(),
        }
    }
}

pub fn find(name: &str) -> Option<&'static Key> {
    ALL.iter().find(|key| key.name == name)
}

const fn int(name: &'static str, low: i64, high: i64, about: &'static str) -> Key {
    Key { name, kind: Kind::Int { low, high }, about }
}

const fn key(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key { name, kind, about }
}

/// Tables that stand more than once (`[[prices]]`, `[engines.NAME]`) have no key here: they are set in the file alone.
pub const ALL: &[Key] = &[
    key("fake_world", Kind::Text, "a provider for tests: the file that holds its world"),
    key("server.listen", Kind::Text, "a TCP address besides the unix socket"),
    key("server.database_url", Kind::Secret, "a PostgreSQL database that several servers share"),
    int(
        "server.idle_exit_seconds",
        1,
        604_800,
        "a server started on demand leaves after this long without work",
    ),
    int("server.max_body_bytes", 65_536, 1 << 30, "the largest request body"),
    int("server.max_batch", 1, 100_000, "the most heartbeats or ids in one request"),
    int("server.leader_lease_seconds", 2, 300, "a leader that has not renewed for this long is replaced"),
    int("server.stuck_after_seconds", 2, 86_400, "a pass of a control loop that takes longer fails /livez"),
    int("server.max_connections", 1, 100_000, "connections at once, at each door"),
    int("server.max_requests_per_second", 0, 1_000_000, "requests of one subject in a second; 0 is no limit"),
    int("server.max_streams", 1, 100_000, "live streams of events at once"),
    int("server.sse_heartbeat_seconds", 1, 3600, "the sign of life on a stream"),
    int("server.client_patience_seconds", 1, 600, "how long a slow client is waited for"),
    key("server.tls_cert", Kind::Text, "the certificate of the TCP address, in PEM"),
    key("server.tls_key", Kind::Text, "the key of that certificate, in PEM"),
    key("server.insecure_listen", Kind::Bool, "listen beyond this machine without TLS"),
    key("server.allowed_hosts", Kind::List, "names by which agents may call /mcp, besides our own"),
    int("reconciler.poll_interval_seconds", 1, 3600, "how often each provider is compared with the records"),
    int("reconciler.stale_threshold_seconds", 2, 86_400, "silent for this long is unhealthy"),
    int("reconciler.orphan_grace_period_seconds", 0, 86_400, "a suspect is an orphan when older than this"),
    key("reconciler.auto_terminate_orphans", Kind::Bool, "end orphans without being asked"),
    key(
        "reconciler.auto_terminate_stale",
        Kind::Bool,
        "end unhealthy and dead containers without being asked",
    ),
    int("reconciler.max_reconcile_batch", 1, 100_000, "the most creates and stops in one pass"),
    key(
        "reconciler.max_silent_hours",
        Kind::Real { above: 0.0, most: 168.0 },
        "silent for this long is reported, and ended",
    ),
    int("reconciler.provider_timeout_seconds", 1, 600, "how long one call to a provider may take"),
    int("health.check_interval_seconds", 1, 300, "how often the ladder is looked at"),
    int("health.heartbeat_interval_seconds", 1, 3600, "how often a supervisor beats"),
    int("health.degraded_after_seconds", 1, 86_400, "silent for this long is degraded"),
    int("health.dead_after_seconds", 3, 604_800, "silent for longer is dead"),
    int(
        "health.resumption_window_seconds",
        0,
        3600,
        "after a start nobody is called dead by silence for this long",
    ),
    int("health.future_tolerance_seconds", 0, 86_400, "a heartbeat from further in the future is refused"),
    int("process.output_rotate_bytes", 65_536, 1 << 40, "a job's output is rotated at this size"),
    int("jobs.check_seconds", 1, 3600, "how often the sentinels of all jobs are looked at"),
    int("jobs.keep_days", 1, 3650, "how long a job's directory and output are kept after its end"),
    key("docker.enabled", Kind::Switch, "whether Docker is a provider"),
    key("docker.host", Kind::Text, "where the engine is"),
    key("docker.cert_path", Kind::Text, "a directory with ca.pem, cert.pem and key.pem: then tcp is TLS"),
    key("docker.pull", Kind::Bool, "pull an image that the engine does not have"),
    int("docker.remove_after_seconds", 0, 31_536_000, "how long an ended container is kept for its output"),
    key("docker.supervisor", Kind::Text, "who beats for a container: off, mount or image"),
    key("monitor_log.enabled", Kind::Bool, "whether the history is also written as JSON lines"),
    key("monitor_log.path", Kind::Text, "where; in the home, unless it is absolute"),
    int("monitor_log.max_bytes", 4096, 1 << 40, "set aside before it becomes larger than this"),
    int("monitor_log.keep", 1, 1000, "how many that were set aside are kept"),
    int("retention.interval_seconds", 1, 86_400, "how often old rows are cleared away"),
    int("retention.raw_heartbeat_hours", 1, 8760, "how long single heartbeats are kept"),
    int("retention.heartbeat_hour_days", 1, 3650, "how long their hourly figures are kept"),
    int("retention.event_days", 1, 3650, "how long events are kept"),
    int("retention.cycle_hours", 1, 8760, "how long the reconciler's passes are kept"),
    key("clickhouse.url", Kind::Text, "a ClickHouse that shows the state of sessions: http://host:8123"),
    key("clickhouse.user", Kind::Text, "who we are there"),
    key("clickhouse.password", Kind::Secret, "the password, or secret:NAME"),
    key("clickhouse.database", Kind::Text, "where session_state and session_history stand"),
    int("clickhouse.batch_rows", 1, 100_000, "the most rows of one INSERT"),
    int("clickhouse.flush_interval_ms", 10, 60_000, "two batches are never closer than this"),
    int("clickhouse.heartbeat_seconds", 1, 30, "how often heartbeats of live sessions are sent"),
    int("clickhouse.timeout_seconds", 1, 600, "what one request may take"),
    key("log.format", Kind::Text, "how the server's log is written: text or json"),
    key("log.level", Kind::Text, "the least that it tells: error, warn, info, debug or trace"),
    key("otlp.endpoint", Kind::Text, "a collector for traces (OTLP over HTTP)"),
    key("otlp.headers_file", Kind::Text, "a file with headers for that collector, such as its key"),
];
