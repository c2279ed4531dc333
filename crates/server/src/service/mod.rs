//! Every use case, once. HTTP, CLI, MCP and the dashboard are doors to this; none of them decides anything.
//!
//! The service owns what people and agents ask for: desired states, intents, adoption. It never touches a
//! column that a loop owns, and it never waits for the world: it records the wish, and the loops do it.

mod access;
mod alerts;
mod cascades;
mod cleanup;
mod containers;
mod error;
mod events;
mod heartbeats;
mod inbox;
mod instances;
mod job_cleanup;
mod jobs;
mod overview;
mod past;
mod reconciler;
mod recovery;
mod session_views;
mod sessions;
mod signals;
mod validate;
mod why;
mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parhelia_core::access::Role;
use parhelia_core::config::Config;
use parhelia_core::cost::Prices;
use parhelia_core::engine::Engines;
use parhelia_core::ids::ContainerId;
use parhelia_core::time::Clock;
use parhelia_providers::Provider;
use parhelia_store::Store;
use tokio::sync::watch;

use crate::entropy::Entropy;
use crate::loops::driver::PassRequests;
use crate::loops::election::Lead;
use crate::loops::health::Observer;
use crate::loops::jobs::JobNews;
use crate::metrics::Metrics;
use crate::relay::alerts::Posts;
use crate::relay::clickhouse::ClickHouse;

pub use access::{Refusal, denied, hash, may_touch, secret_hash};
pub(crate) use containers::Intent;
pub use containers::ListQuery;
pub use error::ServiceError;
pub use events::EventQuery;
pub(crate) use job_cleanup::cleaned;
pub(crate) use jobs::AskedJob;
pub use jobs::JobQuery;
pub use session_views::{SessionQuery, TaskQuery};
pub(crate) use sessions::{Held, heir, marks_of_next, started};
pub use signals::SignalQuery;

/// Who asks. Named in the events of what they did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub subject: String,
    pub role: Role,
    /// The only one that it may speak of.
    pub container: Option<ContainerId>,
}

impl Caller {
    /// Somebody who may do everything: the owner of the home, or the server itself.
    pub fn admin(subject: &str) -> Self {
        Self { subject: subject.to_owned(), role: Role::Admin, container: None }
    }
}

/// A provider and the loop that reconciles it.
#[derive(Debug, Clone)]
pub struct ProviderHandle {
    pub provider: Arc<dyn Provider>,
    pub requests: PassRequests,
    /// Reconciled by whoever leads; otherwise by this server, always.
    pub shared: bool,
}

#[derive(Debug)]
pub struct Service {
    pub(crate) store: Store,
    pub(crate) providers: BTreeMap<String, ProviderHandle>,
    pub(crate) config: Arc<Config>,
    pub(crate) prices: Prices,
    engines: Engines,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) instance_id: String,
    pub(crate) observer: Arc<Observer>,
    /// What this server leads, if it does.
    pub(crate) lead: Lead,
    pub(crate) metrics: Arc<Metrics>,
    /// Ends every long wait when the server stops.
    pub(crate) shutdown: watch::Receiver<bool>,
    /// Milliseconds of the monotonic clock at the last question that a person or program asked.
    last_asked: AtomicI64,
    last_stranger_poke: AtomicI64,
    guests: access::Guests,
    /// Every configured alert, and the means to try it.
    posts: Posts,
    pub(crate) clickhouse: Option<Arc<ClickHouse>>,
    /// What makes the jobs loops look, and how far the recovery is.
    pub(crate) job_news: Arc<JobNews>,
    /// This server, as the owner of sessions.
    pub(crate) owner_id: String,
    /// The program that a worker is: ourselves.
    pub(crate) program: String,
    /// Definitions that were read lately.
    cascades: cascades::Cascades,
    outlines: session_views::Outlines,
}

impl Service {
    #[allow(clippy::too_many_arguments, reason = "built once, at the start of a server")]
    pub fn new(
        store: Store,
        providers: BTreeMap<String, ProviderHandle>,
        config: Arc<Config>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        instance_id: String,
        observer: Arc<Observer>,
        lead: Lead,
        metrics: Arc<Metrics>,
        shutdown: watch::Receiver<bool>,
    ) -> Self {
        let (prices, engines) = (config.price_table(), config.engines());
        let last_asked = AtomicI64::new(millis(clock.as_ref()));
        Self {
            store,
            providers,
            config,
            prices,
            engines,
            clock,
            entropy,
            instance_id,
            observer,
            lead,
            metrics,
            shutdown,
            last_asked,
            last_stranger_poke: AtomicI64::new(i64::MIN / 2),
            guests: access::Guests::default(),
            posts: Posts::new(),
            clickhouse: None,
            job_news: Arc::default(),
            owner_id: String::new(),
            program: "parhelia".to_owned(),
            cascades: cascades::Cascades::default(),
            outlines: session_views::Outlines::default(),
        }
    }

    pub fn with_posts(self, posts: Posts) -> Self {
        Self { posts, ..self }
    }

    pub fn with_clickhouse(self, clickhouse: Option<Arc<ClickHouse>>) -> Self {
        Self { clickhouse, ..self }
    }

    pub fn with_jobs(self, job_news: Arc<JobNews>) -> Self {
        Self { job_news, ..self }
    }

    /// Sessions that are started here are this server's.
    pub fn owned_by(self, owner_id: impl Into<String>) -> Self {
        Self { owner_id: owner_id.into(), ..self }
    }

    /// What workers on this machine are started as.
    pub fn as_program(self, program: impl Into<String>) -> Self {
        Self { program: program.into(), ..self }
    }

    pub(crate) fn provider(&self, name: &str) -> Result<&ProviderHandle, ServiceError> {
        // On a shared database every home has its own process provider; `process` is the one here.
        let own = || {
            self.providers.iter().find(|(own, _)| own.strip_prefix(name).is_some_and(|r| r.starts_with(':')))
        };
        self.providers.get(name).or_else(|| own().map(|(_, handle)| handle)).ok_or_else(|| {
            let known: Vec<_> = self.providers.keys().map(String::as_str).collect();
            ServiceError::invalid(
                format!("there is no provider '{name}' here"),
                format!("use one of: {}", known.join(", ")),
            )
        })
    }

    /// The epoch that this server leads in, if it does.
    pub fn epoch(&self) -> Option<i64> {
        self.lead.borrow().as_ref().map(|fence| fence.epoch)
    }

    /// Does this server run the reconciler of that provider now?
    fn reconciles(&self, handle: &ProviderHandle) -> bool {
        !handle.shared || self.lead.borrow().is_some()
    }

    /// Makes the next pass over a provider come soon, wherever it is made.
    pub(crate) fn poke(&self, provider: &str) {
        match self.providers.get(provider) {
            Some(handle) if self.reconciles(handle) => handle.requests.poke(),
            _ => self.store.wake(provider),
        }
    }

    pub(crate) fn poke_all(&self) {
        self.providers.keys().for_each(|name| self.poke(name));
    }

    /// Another server asks for a pass: only what is reconciled here is meant.
    pub(crate) fn woken(&self, provider: &str) {
        if let Some(handle) = self.providers.get(provider).filter(|handle| self.reconciles(handle)) {
            handle.requests.poke();
        }
    }

    /// Notes that somebody asked something, which keeps a server that was started on demand.
    pub fn asked(&self) {
        self.last_asked.store(millis(self.clock.as_ref()), Ordering::Relaxed);
    }

    pub fn seconds_since_asked(&self) -> f64 {
        (millis(self.clock.as_ref()) - self.last_asked.load(Ordering::Relaxed)) as f64 / 1000.0
    }

    /// Is anything recorded that is not terminated, a session to go on with, or anybody still to be told of something?
    pub async fn has_work(&self) -> Result<bool, ServiceError> {
        Ok(self.store.live_count().await? > 0
            || self.store.unfinished_sessions().await? > 0
            || self.store.open_deliveries().await? > 0)
    }

    pub async fn ready(&self) -> Result<(), ServiceError> {
        Ok(self.store.probe().await?)
    }

    /// A heartbeat of somebody we do not know may be an orphan's: look, but not at every beat.
    pub(crate) fn stranger_heard(&self) {
        let now = millis(self.clock.as_ref());
        let last = self.last_stranger_poke.load(Ordering::Relaxed);
        let due = now - last >= 5_000;
        if due
            && self
                .last_stranger_poke
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.poke_all();
        }
    }
}

fn millis(clock: &dyn Clock) -> i64 {
    i64::try_from(clock.monotonic().as_millis()).unwrap_or(i64::MAX)
}
