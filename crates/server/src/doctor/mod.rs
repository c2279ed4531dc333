//! The probes of `parhelia doctor`. Each looks at one thing, live, for a bounded time; all run side by side. What
//! was found is judged in `core::doctor`. The server runs them for itself; the command runs those that need no
//! server when there is none. Nothing is repaired, and nothing is left behind.

pub mod disk;
pub mod machine;
pub mod tls;

use std::path::Path;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parhelia_core::api::ServerInfo;
use parhelia_core::config::{Config, Switch};
use parhelia_core::doctor::{self, Check, DoctorReport, Finding, size};
use parhelia_core::time::{Clock, seconds_between};
use parhelia_providers::Provider;
use parhelia_providers::docker::engine::Address;
use parhelia_providers::docker::{DockerConfig, DockerProvider, Supervisor};
use parhelia_providers::process::jobdir::PROTOCOL;
use parhelia_store::sqlite::examine;

use crate::relay::clickhouse::ClickHouse;
use crate::service::Service;

/// What any one probe may take. Whatever has not answered by then does not work.
pub const PATIENCE: Duration = Duration::from_secs(5);

pub type Probe<'a> = (String, BoxFuture<'a, Finding>);

/// Runs all at once; their answers stand in the order in which they were given.
pub async fn run(probes: Vec<Probe<'_>>, clock: &dyn Clock) -> Vec<Check> {
    let asking = probes.into_iter().map(|(area, probe)| async move {
        let began = clock.monotonic();
        let finding = match tokio::time::timeout(PATIENCE, probe).await {
            Ok(finding) => finding,
            Err(_) => Finding::error(
                format!("no answer within {}s", PATIENCE.as_secs()),
                "it hangs: look at what it waits for (a dead network disk, an engine that is stuck)",
            ),
        };
        let took_ms = clock.monotonic().saturating_sub(began).as_secs_f64() * 1000.0;
        finding.check(area, took_ms)
    });
    futures::future::join_all(asking).await
}

async fn probe_clickhouse(clickhouse: &ClickHouse, behind_seconds: f64) -> Finding {
    let version = clickhouse.ask_anywhere("SELECT version()").await;
    let version = version.map(|text| text.trim().to_owned()).map_err(|trouble| trouble.to_string());
    doctor::projection(clickhouse.url(), version, behind_seconds)
}

/// A probe that waits for the disk has a thread of its own, which may hang without holding anybody up.
pub fn blocking(work: impl FnOnce() -> Finding + Send + 'static) -> BoxFuture<'static, Finding> {
    async move {
        match tokio::task::spawn_blocking(work).await {
            Ok(finding) => finding,
            Err(error) => Finding::error(format!("the probe broke off: {error}"), "report this"),
        }
    }
    .boxed()
}

pub fn probe<'a>(area: impl Into<String>, finding: BoxFuture<'a, Finding>) -> Probe<'a> {
    (area.into(), finding)
}

impl Service {
    /// This server's own surroundings.
    pub async fn doctor(&self, info: &ServerInfo) -> DoctorReport {
        let home = Path::new(&info.home).to_owned();
        let mut probes = vec![probe("store", self.probe_store(&home).boxed())];
        for (name, handle) in &self.providers {
            probes.push(probe(format!("provider {name}"), probe_provider(handle.provider.as_ref()).boxed()));
        }
        probes.extend(disk::probes(&home));
        probes.push(probe("clock", self.probe_clock(info).boxed()));
        probes.push(probe("listening", listening(&self.config, info).boxed()));
        if let Some(path) = self.config.server.tls_cert.clone() {
            let now = self.clock.now();
            probes.push(probe("certificate", blocking(move || tls::expiry(&path, now))));
        }
        if let Some(clickhouse) = &self.clickhouse {
            let behind = self.metrics.clickhouse.lag_seconds(self.clock.now());
            probes.push(probe("clickhouse", probe_clickhouse(clickhouse, behind).boxed()));
        }
        probes.push(probe("tokens", self.probe_tokens().boxed()));
        probes.push(probe(
            "supervisors",
            blocking({
                let home = home.clone();
                move || supervisors(&home)
            }),
        ));
        probes.extend(machine::probes());
        DoctorReport {
            asked_at: self.clock.now(),
            version: info.version.clone(),
            checks: run(probes, self.clock.as_ref()).await,
        }
    }

    async fn probe_store(&self, home: &Path) -> Finding {
        if let Err(error) = self.store.probe().await {
            let fix = match self.config.server.database_url.is_some() {
                true => "check the shared database; this server goes on by itself as soon as it can",
                false => "check the disk of the home (free space, permissions)",
            };
            return Finding::error(error.to_string(), fix);
        }
        let waiting = self.store.queue_depth();
        if self.config.server.database_url.is_some() {
            return Finding::ok(format!(
                "the shared database answers and takes writes; {waiting} writes wait"
            ));
        }
        let path = home.join("parhelia.sqlite3");
        match tokio::task::spawn_blocking(move || store_file(&path)).await {
            Ok(finding) => Finding { found: format!("{}; {waiting} writes wait", finding.found), ..finding },
            Err(error) => Finding::error(format!("the probe broke off: {error}"), "report this"),
        }
    }

    /// Since the start, beside the files of the home, and beside a shared database.
    async fn probe_clock(&self, info: &ServerInfo) -> Finding {
        let now = self.clock.now();
        let sane = doctor::sane(now);
        if sane.verdict != doctor::Verdict::Ok {
            return sane;
        }
        if self.config.server.database_url.is_some() {
            let before = self.clock.now();
            match self.store.database_time().await {
                Ok(Some(theirs)) => {
                    let half = seconds_between(before, self.clock.now()) / 2.0;
                    let ours = parhelia_core::time::plus_seconds(before, half as i64);
                    let skew = doctor::skew(ours, theirs, "the database");
                    if skew.verdict != doctor::Verdict::Ok {
                        return skew;
                    }
                }
                Ok(None) => {}
                Err(error) => return Finding::warning(error.to_string(), "see the check of the store"),
            }
        }
        // The clock began with the server.
        let lived = seconds_between(info.started_at, now);
        doctor::jump(lived - self.clock.monotonic().as_secs_f64())
    }

    async fn probe_tokens(&self) -> Finding {
        let now = self.clock.now();
        match self.store.tokens(false, i64::MAX).await {
            Ok(all) => {
                let valid: Vec<_> = all.iter().filter(|token| token.is_valid(now)).collect();
                let endless = valid.iter().filter(|token| token.expires_at.is_none()).count();
                Finding::ok(format!("{} hold, {endless} of them until they are revoked", valid.len()))
            }
            Err(error) => Finding::error(error.to_string(), "see the check of the store"),
        }
    }
}

async fn listening(config: &Config, info: &ServerInfo) -> Finding {
    let address = info.listen.as_deref();
    let loopback = address
        .and_then(|address| address.parse::<std::net::SocketAddr>().ok())
        .is_some_and(|address| address.ip().is_loopback());
    doctor::listening(address, loopback, config.server.tls_cert.is_some())
}

async fn probe_provider(provider: &dyn Provider) -> Finding {
    match provider.probe().await {
        Ok(found) => Finding::ok(found),
        Err(error) => Finding::error(error.to_string(), fix_of(provider.name())),
    }
}

fn fix_of(provider: &str) -> String {
    match provider.split(':').next() {
        Some("docker") => {
            "start the engine and let this user open its socket, or set docker.enabled = false; \
                           its containers are left as they are meanwhile"
                .to_owned()
        }
        Some("process") => "check that the jobs directory of the home is there and can be read".to_owned(),
        _ => format!("see 'parhelia why {provider}'"),
    }
}

/// The file of the store, looked at from outside; works while a server has it open, and without one.
pub fn store_file(path: &Path) -> Finding {
    if !path.exists() {
        return Finding::ok("no database yet; the first server makes it");
    }
    let of = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        std::fs::metadata(name).map_or(0, |file| file.len())
    };
    match examine(path) {
        Ok(seen) => Finding::ok(format!(
            "SQLite {}, journal {}, schema {} of {}, {} and a log of {}",
            seen.sqlite,
            seen.journal_mode,
            seen.version,
            seen.known,
            size(of("")),
            size(of("-wal"))
        )),
        Err(error) => Finding::error(error.to_string(), "do what it says; a backup can be put in its place"),
    }
}

/// Whether a shared database can be reached at all; its address is never repeated.
pub async fn reach_database(url: &str) -> Result<String, String> {
    parhelia_store::postgres::reach(url).await.map_err(|error| error.to_string())
}

fn supervisors(home: &Path) -> Finding {
    match parhelia_providers::process::protocols(home) {
        Ok(protocols) => doctor::supervisors(&protocols, PROTOCOL),
        Err(error) => Finding::error(
            format!("the jobs directory cannot be read: {error}"),
            "check the permissions of {home}/jobs",
        ),
    }
}

/// Docker without a server: as one would find it. `None` when it is off, or nothing speaks for an engine here.
pub async fn docker(config: &Config, home: &Path, clock: std::sync::Arc<dyn Clock>) -> Option<Finding> {
    let env = |name: &str| std::env::var(name).ok();
    if config.docker.enabled == Switch::Off {
        return None;
    }
    let address = match Address::find(config.docker.host.as_deref(), config.docker.cert_path.as_deref(), env)
    {
        Ok(address) => address,
        Err(reason) => {
            return Some(Finding::error(reason, "correct docker.host, or set docker.enabled = false"));
        }
    };
    let named = config.docker.host.is_some() || env("DOCKER_HOST").is_some_and(|host| !host.is_empty());
    let there = matches!(&address, Address::Unix(path) if path.exists());
    if config.docker.enabled == Switch::Auto && !named && !there {
        return None;
    }
    let provider = DockerProvider::new(DockerConfig {
        address,
        timeout: PATIENCE,
        pull: false,
        remove_after_seconds: config.docker.remove_after_seconds,
        secrets: home.join("secrets"),
        supervisor: Supervisor {
            mode: parhelia_core::config::DockerSupervisor::Off,
            binary: Path::new("parhelia").to_owned(),
            door: home.join("door"),
            heartbeat_interval_seconds: config.health.heartbeat_interval_seconds,
        },
        clock,
    });
    Some(probe_provider(&provider).await)
}
