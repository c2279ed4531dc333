//! The configuration: every key and its default (the seeds' own). What is allowed stands in `keys`, what goes
//! together in `check`, and where a value came from in `layers`. All of it is pure; the binary reads the file and the
//! environment and hands them in.

mod check;
pub mod keys;
mod layers;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::alert::Alert;
use crate::cost::{Price, Prices};
use crate::engine::{EngineConfig, Engines};
use crate::job::classify::Rules;
use crate::liveness::Ladder;
use crate::word_enum;

pub use layers::{ConfigError, Layers, Loaded, Origin, Setting};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub server: Server,
    pub reconciler: Reconciler,
    pub health: HealthConfig,
    pub process: Process,
    pub docker: Docker,
    pub jobs: Jobs,
    /// How the commands of agents are made, by the engine's name. The built-in ones need not stand here.
    pub engines: BTreeMap<String, EngineConfig>,
    pub retention: Retention,
    pub monitor_log: MonitorLog,
    /// Webhooks, and the events that each is told of.
    pub alerts: Vec<Alert>,
    pub clickhouse: Clickhouse,
    pub log: Log,
    pub otlp: Otlp,
    /// A provider for tests: the file that holds its world.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fake_world: Option<String>,
    /// Replaces the built-in prices of each provider that it names.
    pub prices: Vec<Price>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// A TCP address to listen on besides the unix socket.
    pub listen: Option<String>,
    /// `postgres://…`: a database that several servers share. Without it the home has its own SQLite file.
    #[serde(skip_serializing)]
    pub database_url: Option<DatabaseUrl>,
    /// A server that was started on demand leaves after this long without work and without questions.
    pub idle_exit_seconds: u64,
    pub max_body_bytes: u64,
    pub max_batch: u64,
    /// Connections at once, at each door.
    pub max_connections: u64,
    /// Requests of one subject in a second, with twice that at once; 0 is no limit. Not for the home's own socket.
    pub max_requests_per_second: u64,
    /// For a handshake, the head of a request, and a client that takes no more of its answer.
    pub client_patience_seconds: u64,
    /// Live streams of events at once.
    pub max_streams: u64,
    /// The sign of life on a stream on which nothing happens.
    pub sse_heartbeat_seconds: u64,
    /// A file with the certificate (and its chain) for the TCP address, and one with its key: then it is TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<String>,
    /// Listens beyond this machine without TLS: for a network that is trusted in itself.
    pub insecure_listen: bool,
    /// A leader that has not renewed for this long is replaced. The same for all servers of a database.
    pub leader_lease_seconds: u64,
    /// A pass of a control loop that takes longer than this is stuck, and `/livez` says so.
    pub stuck_after_seconds: u64,
    /// Names, besides loopback and the address of `listen`, by which agents may call `/mcp`.
    pub allowed_hosts: Vec<String>,
}

/// An address that may hold a password: it is never shown, only handed to the store.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DatabaseUrl(pub String);

impl std::fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DatabaseUrl(hidden)")
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: None,
            database_url: None,
            idle_exit_seconds: 600,
            max_body_bytes: 2 << 20,
            max_batch: 10_000,
            max_connections: 1000,
            max_requests_per_second: 5000,
            client_patience_seconds: 30,
            max_streams: 256,
            sse_heartbeat_seconds: 30,
            tls_cert: None,
            tls_key: None,
            insecure_listen: false,
            leader_lease_seconds: 10,
            stuck_after_seconds: 1800,
            allowed_hosts: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reconciler {
    pub poll_interval_seconds: u64,
    pub stale_threshold_seconds: u64,
    pub orphan_grace_period_seconds: u64,
    pub auto_terminate_orphans: bool,
    pub auto_terminate_stale: bool,
    pub max_reconcile_batch: u64,
    pub max_silent_hours: f64,
    /// How long one call to a provider may take before its outcome counts as unknown.
    pub provider_timeout_seconds: u64,
}

impl Default for Reconciler {
    fn default() -> Self {
        Self {
            poll_interval_seconds: 60,
            stale_threshold_seconds: 300,
            orphan_grace_period_seconds: 120,
            auto_terminate_orphans: false,
            auto_terminate_stale: false,
            max_reconcile_batch: 100,
            max_silent_hours: 4.0,
            provider_timeout_seconds: 30,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HealthConfig {
    pub check_interval_seconds: u64,
    pub heartbeat_interval_seconds: u64,
    pub degraded_after_seconds: u64,
    pub dead_after_seconds: u64,
    pub resumption_window_seconds: u64,
    /// A heartbeat that claims to come from further in the future than this is refused.
    pub future_tolerance_seconds: u64,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            check_interval_seconds: 10,
            heartbeat_interval_seconds: 30,
            degraded_after_seconds: 120,
            dead_after_seconds: 600,
            resumption_window_seconds: 300,
            future_tolerance_seconds: 60,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    pub output_rotate_bytes: u64,
}

impl Default for Process {
    fn default() -> Self {
        Self { output_rotate_bytes: 64 << 20 }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Jobs {
    /// How often the files of all jobs are looked at, besides every hint that something has changed.
    pub check_seconds: u64,
    /// How long the directory of a job, with its output, is kept after its end.
    pub keep_days: u64,
}

impl Default for Jobs {
    fn default() -> Self {
        Self { check_seconds: 60, keep_days: 7 }
    }
}

/// A yes, a no, or "if there is one".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Switch {
    On,
    Off,
    #[default]
    Auto,
}

impl Serialize for Switch {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Switch::On => serializer.serialize_bool(true),
            Switch::Off => serializer.serialize_bool(false),
            Switch::Auto => serializer.serialize_str("auto"),
        }
    }
}

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl serde::de::Visitor<'_> for Words {
            type Value = Switch;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("true, false or \"auto\"")
            }
            fn visit_bool<E: serde::de::Error>(self, on: bool) -> Result<Switch, E> {
                Ok(if on { Switch::On } else { Switch::Off })
            }
            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Switch, E> {
                match word {
                    "auto" => Ok(Switch::Auto),
                    other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(Words)
    }
}

word_enum!(
    /// Who beats for a docker container: a supervisor inside it, or the engine's statistics.
    DockerSupervisor {
        /// Nothing of ours is inside; the engine's statistics are its heartbeats.
        Off = "off",
        /// Our own binary is mounted into it.
        Mount = "mount",
        /// The image contains `parhelia`.
        Image = "image",
    }
);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Docker {
    /// `auto`: when a host is named, the usual socket is there, or containers are recorded.
    pub enabled: Switch,
    /// `unix:///path` or `tcp://host:port`; else `DOCKER_HOST`, else the usual socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// A directory with `ca.pem`, `cert.pem` and `key.pem`: then tcp is TLS. Else `DOCKER_CERT_PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_path: Option<String>,
    /// Pull an image that the engine does not have.
    pub pull: bool,
    /// How long an ended container is kept for its output, after its end is recorded.
    pub remove_after_seconds: u64,
    pub supervisor: DockerSupervisor,
}

impl Default for Docker {
    fn default() -> Self {
        Self {
            enabled: Switch::Auto,
            host: None,
            cert_path: None,
            pull: false,
            remove_after_seconds: 86_400,
            supervisor: DockerSupervisor::Off,
        }
    }
}

word_enum!(
    /// How the lines of the server's log are written.
    LogFormat {
        Text = "text",
        /// One JSON object on each line.
        Json = "json",
    }
);

word_enum!(
    /// The least that the server's log tells.
    LogLevel {
        Error = "error",
        Warn = "warn",
        Info = "info",
        Debug = "debug",
        Trace = "trace",
    }
);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    pub format: LogFormat,
    pub level: LogLevel,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: LogLevel::Info }
    }
}

/// Where traces go, if anywhere.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Otlp {
    /// A collector that takes OTLP over HTTP; `/v1/traces` is added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// A file with `name: value` lines that go with every request, such as its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers_file: Option<String>,
}

/// Where the state of sessions is shown besides our own store (`docs/clickhouse.md`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clickhouse {
    /// The HTTP interface of a server, as `http://host:8123`. Without it nothing is sent anywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    pub user: String,
    #[serde(skip_serializing)]
    pub password: Option<Password>,
    pub database: String,
    /// The most rows of one INSERT, and the most events that are gathered for it.
    pub batch_rows: u64,
    /// Two batches are never closer than this; one that nobody preceded goes at once.
    pub flush_interval_ms: u64,
    /// How often the rows of running and blocked sessions are sent again with their heartbeat.
    pub heartbeat_seconds: u64,
    /// What one request may take.
    pub timeout_seconds: u64,
}

impl Default for Clickhouse {
    fn default() -> Self {
        Self {
            url: None,
            user: "default".to_owned(),
            password: None,
            database: "default".to_owned(),
            batch_rows: 10_000,
            flush_interval_ms: 1000,
            heartbeat_seconds: 20,
            timeout_seconds: 30,
        }
    }
}

/// A password, or `secret:NAME`: the name of the secret that holds it. Never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Password(String);

impl Password {
    /// The whole of it, for whoever logs in with it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The name of the secret that holds it.
    pub fn secret(&self) -> Option<&str> {
        self.0.strip_prefix("secret:")
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(hidden)")
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    pub interval_seconds: u64,
    pub raw_heartbeat_hours: u64,
    pub heartbeat_hour_days: u64,
    pub event_days: u64,
    pub cycle_hours: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            interval_seconds: 3600,
            raw_heartbeat_hours: 24,
            heartbeat_hour_days: 90,
            event_days: 90,
            cycle_hours: 24,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MonitorLog {
    pub enabled: bool,
    /// In the home, unless it is absolute.
    pub path: String,
    /// Set aside before it becomes larger than this.
    pub max_bytes: u64,
    /// How many that were set aside are kept.
    pub keep: u64,
}

impl Default for MonitorLog {
    fn default() -> Self {
        Self { enabled: true, path: "monitor.log".to_owned(), max_bytes: 10 << 20, keep: 5 }
    }
}

impl Config {
    /// When a job is stale or dead: at the same ages as a container is degraded or dead.
    pub fn job_rules(&self) -> Rules {
        Rules {
            stale_seconds: self.health.degraded_after_seconds as f64,
            dead_seconds: self.health.dead_after_seconds as f64,
            future_seconds: self.health.future_tolerance_seconds as f64,
            watch_seconds: self.health.resumption_window_seconds as f64,
            keep_seconds: i64::try_from(self.jobs.keep_days.saturating_mul(86_400)).unwrap_or(i64::MAX),
        }
    }

    /// The ladder of the health loop. `unhealthy` begins at the seed's stale threshold.
    pub fn ladder(&self) -> Ladder {
        Ladder {
            degraded_seconds: self.health.degraded_after_seconds as f64,
            unhealthy_seconds: self.reconciler.stale_threshold_seconds as f64,
            dead_seconds: self.health.dead_after_seconds as f64,
            resumption_seconds: self.health.resumption_window_seconds as f64,
        }
    }

    pub fn engines(&self) -> Engines {
        Engines::new(&self.engines)
    }

    pub fn price_table(&self) -> Prices {
        let mut all = Prices::built_in();
        all.retain(|p| self.prices.iter().all(|own| own.provider != p.provider));
        all.extend(self.prices.iter().cloned());
        Prices::new(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_and_no_address() {
        let config = |hosts: &str| Config::parse(&format!("[server]\nallowed_hosts = {hosts}\n"));
        assert!(config("['parhelia.example.com', 'parhelia.example.com:7717']").is_ok());
        for wrong in ["['https://parhelia.example.com']", "['*']", "['']"] {
            let error = config(wrong).unwrap_err().to_string();
            assert!(error.contains("server.allowed_hosts"), "{error}");
        }
    }

    #[test]
    fn the_address_of_the_database_is_checked_and_never_shown() {
        let good = Config::parse("[server]\ndatabase_url = 'postgres://ann:s3cret@h/d'").unwrap();
        assert!(!format!("{good:?}").contains("s3cret"));
        for bad in ["'mysql://ann:s3cret@h/d'", "postgres://ann:s3cret@h/d", "['postgres://ann:s3cret@h/d']"]
        {
            let error = Config::parse(&format!("[server]\ndatabase_url = {bad}\n")).unwrap_err().to_string();
            assert!(error.contains("database_url") && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn clickhouse_has_an_address_without_credentials_and_a_password_that_is_never_shown() {
        let of = |text: &str| Config::parse(&format!("[clickhouse]\n{text}\n"));
        let good = of("url = 'https://ch:8443/'\npassword = 's3cret'\ndatabase = 'fleet_1'").unwrap();
        assert!(!format!("{good:?}").contains("s3cret"));
        assert!(!serde_json::to_string(&good).unwrap().contains("s3cret"));
        assert_eq!(of("password = 'secret:CH'").unwrap().clickhouse.password.unwrap().secret(), Some("CH"));
        for wrong in
            ["url = 'ch:8123'", "url = 'http://ann:s3cret@ch:8123'", "url = 'http://ch:8123?user=ann'"]
        {
            let error = of(wrong).unwrap_err().to_string();
            assert!(error.contains("clickhouse.url") && !error.contains("s3cret"), "{error}");
        }
        assert!(of("database = 'a b'").unwrap_err().to_string().contains("clickhouse.database"));
        assert!(of("password = 's3cret\npassword = 1").unwrap_err().to_string().find("s3cret").is_none());
        assert!(of("heartbeat_seconds = 31").is_err());
    }

    #[test]
    fn the_defaults_are_the_seeds_own() {
        let config = Config::parse("").unwrap();
        assert_eq!(config.reconciler.poll_interval_seconds, 60);
        assert_eq!(config.reconciler.orphan_grace_period_seconds, 120);
        assert_eq!(config.reconciler.stale_threshold_seconds, 300);
        assert_eq!(config.reconciler.max_reconcile_batch, 100);
        assert!(!config.reconciler.auto_terminate_orphans && !config.reconciler.auto_terminate_stale);
        assert_eq!(config.reconciler.max_silent_hours, 4.0);
        assert_eq!(config.ladder(), Ladder::default());
    }

    #[test]
    fn a_mistake_names_the_key_and_where_it_stands() {
        let unknown = Config::parse("[reconciler]\npoll_interval = 5\n").unwrap_err().to_string();
        assert!(unknown.contains("poll_interval") && unknown.contains("line 2"), "{unknown}");
        let range = Config::parse("[reconciler]\npoll_interval_seconds = 0\n").unwrap_err().to_string();
        assert!(range.contains("it must be from 1 to 3600 (line 2 of the configuration)"), "{range}");
        let ladder = Config::parse("[reconciler]\nstale_threshold_seconds = 900\n").unwrap_err().to_string();
        assert!(ladder.contains("dead_after_seconds (600)"), "{ladder}");
        assert!(Config::parse("[reconciler]\nmax_silent_hours = nan\n").is_err());
        assert!(
            Config::parse("[[prices]]\nprovider='x'\neffective_from='2026-01-01T00:00:00Z'\nsandbox_hour=-1")
                .is_err()
        );
    }

    #[test]
    fn docker_is_on_off_or_automatic_and_its_host_is_an_address() {
        let of = |text: &str| Config::parse(&format!("[docker]\n{text}\n"));
        assert_eq!(Config::parse("").unwrap().docker.enabled, Switch::Auto);
        assert_eq!(of("enabled = true").unwrap().docker.enabled, Switch::On);
        assert_eq!(of("enabled = false").unwrap().docker.enabled, Switch::Off);
        assert_eq!(of("enabled = 'auto'").unwrap().docker.enabled, Switch::Auto);
        let error = of("enabled = 'maybe'").unwrap_err().to_string();
        assert!(error.contains("true, false or \"auto\"") && error.contains("line 2"), "{error}");
        assert!(of("host = '/var/run/docker.sock'").unwrap_err().to_string().contains("unix:///path"));
        assert!(of("host = 'tcp://build-7:2376'\ncert_path = '/etc/parhelia/docker'").is_ok());
        assert!(of("supervisor = 'mount'").is_ok());
        assert!(of("supervisor = 'yes'").is_err());
        assert!(of("remove_after_seconds = 31536001").is_err());
    }

    #[test]
    fn own_prices_replace_the_built_in_ones_of_that_provider_only() {
        let config = Config::parse(
            "[[prices]]\nprovider = 'process'\neffective_from = '2026-01-01T00:00:00Z'\nsandbox_hour = 0.5\n",
        )
        .unwrap();
        let table = config.price_table();
        let now = "2026-02-01T00:00:00Z".parse().unwrap();
        assert_eq!(table.rate_per_hour("process", &Default::default(), now), 0.5);
        assert!(table.rate_per_hour("modal", &Default::default(), now) > 0.0);
    }
}
