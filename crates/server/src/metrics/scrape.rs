//! One scrape: the store is asked at most once a second, for a bounded time, and never for more than a twentieth of
//! the time; the kernel is asked for what the process uses; then everything is written down. It works without the
//! store.

use std::time::Duration;

use tracing::debug;

use super::fleet::Figures;
use super::{Metrics, Server};
use crate::http::App;
use crate::service::{ListQuery, ServiceError};

pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How long the store may take; after that it counts as away.
const PATIENCE: Duration = Duration::from_secs(2);
const LEAST_AGE: Duration = Duration::from_secs(1);
/// What was read is good for this many times as long as reading it took.
const REST: u32 = 20;

/// Until when the last reading holds, on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Reading {
    good_until: Option<Duration>,
}

pub(crate) async fn scrape(app: &App) -> String {
    let metrics = &app.metrics;
    {
        let clock = app.service.clock.as_ref();
        let mut reading = metrics.reading.lock().await;
        let began = clock.monotonic();
        if reading.good_until.is_none_or(|until| began >= until) {
            metrics.read_store(app).await;
            let took = clock.monotonic().saturating_sub(began);
            reading.good_until = Some(began + LEAST_AGE.max(took * REST));
        }
        metrics.server.look(app);
        metrics.clickhouse.look(clock.now());
    }
    let mut text = String::with_capacity(32 << 10);
    if let Err(error) = prometheus_client::encoding::text::encode(&mut text, &metrics.registry) {
        debug!(%error, "the metrics could not be written");
    }
    text
}

impl Metrics {
    async fn read_store(&self, app: &App) {
        let asked = tokio::time::timeout(PATIENCE, figures(app)).await;
        match asked {
            Ok(Ok(figures)) => {
                self.fleet.set(&figures, app.service.providers.keys().cloned());
                self.server.store_up.set(1);
            }
            trouble => {
                debug!(?trouble, "the store said nothing to the scrape");
                self.fleet.forget();
                self.server.store_up.set(0);
            }
        }
    }
}

async fn figures(app: &App) -> Result<Figures, ServiceError> {
    let service = &app.service;
    service.ready().await?;
    let listed = service.containers(ListQuery::default()).await?;
    let (terminated, spent_usd) = service.store.terminated_totals().await?;
    let totals = listed.totals.unwrap_or_default();
    Ok(Figures {
        suspects: totals.suspected,
        foreign: totals.foreign,
        active: listed.containers,
        terminated,
        spent_usd,
        jobs: service.store.job_counts().await?,
    })
}

impl Server {
    fn look(&self, app: &App) {
        let service = &app.service;
        let writes = service.store.writes();
        self.store_writes.inc_by(writes.done.saturating_sub(self.store_writes.get()));
        self.store_failures.inc_by(writes.failed.saturating_sub(self.store_failures.get()));
        self.store_queue.set(service.store.queue_depth() as i64);
        self.refusal_queue.set(service.refusals_waiting() as i64);
        self.streams.set(app.hub.streams() as i64);
        let epoch = service.epoch();
        self.leads.set(i64::from(epoch.is_some()));
        self.epoch.set(epoch.unwrap_or(0));
        self.started.set(app.info.started_at.as_millisecond() as f64 / 1000.0);
        let used = Usage::now();
        self.resident.set(used.resident_bytes);
        self.cpu.inc_by((used.cpu_seconds - self.cpu.get()).max(0.0));
        self.fds.set(used.open_fds);
    }
}

/// What the kernel says of this process; 0 where it says nothing.
#[derive(Debug, Default)]
struct Usage {
    resident_bytes: i64,
    cpu_seconds: f64,
    open_fds: i64,
}

impl Usage {
    fn now() -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        let statm = read("statm");
        let pages: i64 = statm.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
        let stat = read("stat");
        // The name of the program may hold anything; what follows its last parenthesis begins with field 3.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: f64 = rest.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum();
        // The descriptor that reads the directory is not one of ours.
        let fds = std::fs::read_dir("/proc/self/fd").map_or(0, |dir| dir.count().saturating_sub(1));
        Self {
            resident_bytes: pages * rustix::param::page_size() as i64,
            cpu_seconds: ticks / rustix::param::clock_ticks_per_second().max(1) as f64,
            open_fds: fds as i64,
        }
    }
}
