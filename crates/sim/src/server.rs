//! A simulated server process: the real loops and the real service over its own connection, and when each
//! loop wants to go on. It lives, dies in the middle of anything, or sleeps and wakes up late.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parhelia_core::config::Config;
use parhelia_core::time::{Clock, plus_seconds};
use parhelia_providers::fake::FakeProvider;
use parhelia_server::entropy::Entropy;
use parhelia_server::loops::driver::{self, BUSY_PERIOD, LEAST_PAUSE};
use parhelia_server::loops::health::{HealthLoop, Observer};
use parhelia_server::loops::lease::LEASE_SECONDS;
use parhelia_server::loops::reconciler::{PassReport, Reconciler};
use parhelia_server::loops::{Context, retention};
use parhelia_server::service::{ProviderHandle, Service};
use parhelia_store::sqlite::Inline;
use parhelia_store::{Fence, Owner, Store, StoreError};
use tokio::sync::watch;

use crate::breakage::{Breakage, misunderstood};
use crate::database::{Connection, Ledger};
use crate::edge::{Dice, SimClock};
use crate::interrupt::Work;
use crate::provider::Remote;
use crate::session_loop::Sessions;

/// What outlives every server.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    pub(crate) clock: Arc<SimClock>,
    pub(crate) dice: Arc<Dice>,
    pub(crate) config: Arc<Config>,
    pub(crate) provider: FakeProvider,
    pub(crate) instance: &'static str,
    pub(crate) database: Arc<Inline>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) breakage: Option<Breakage>,
}

pub(crate) type Pass = Result<PassReport, StoreError>;

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) context: Context,
    pub(crate) sessions: Sessions,
    reconciler: Arc<Reconciler>,
    requested: driver::SharedQueue,
    health: Arc<HealthLoop>,
    pub(crate) service: Arc<Service>,
    /// A pass of the reconciler that waits for its provider, or was left in the middle.
    pub(crate) under_way: Option<Work<Pass>>,
    pub(crate) left_at: Duration,
    pub(crate) next_pass: Duration,
    /// A hint came while a pass was under way: another one comes right after it.
    poked: bool,
    pub(crate) next_health: Duration,
    pub(crate) next_retention: Duration,
    /// Stopped by a signal until then; nothing of it runs and nothing reaches it.
    pub(crate) asleep_until: Option<Duration>,
    pub(crate) fell_asleep_at: Duration,
}

impl Server {
    /// Takes the lead under a new epoch. `observer`: that of the server before it, which no real one has.
    pub(crate) async fn start(
        world: &Surroundings,
        home: &str,
        observer: Option<Arc<Observer>>,
    ) -> Result<Self, StoreError> {
        let owner_id = Self::register(world, home).await?;
        let now = world.clock.now();
        let store = Store::new(world.database.clone());
        let epoch = store.take_leadership(&owner_id, plus_seconds(now, LEASE_SECONDS), now, true).await?;
        world.ledger.elected(epoch);
        Self::made(world, Fence { owner_id, epoch }, true, observer).await
    }

    /// A server at another home, which leads nothing and has sessions of its own.
    pub(crate) async fn join(world: &Surroundings, home: &str) -> Result<Self, StoreError> {
        let owner_id = Self::register(world, home).await?;
        Self::made(world, Fence::of_owner(owner_id), false, None).await
    }

    /// Whoever has the lock of a home is its only server.
    async fn register(world: &Surroundings, home: &str) -> Result<String, StoreError> {
        let now = world.clock.now();
        let store = Store::new(world.database.clone());
        let owner_id = world.dice.uuid();
        store
            .register_owner(&Owner {
                id: owner_id.clone(),
                home_id: home.to_owned(),
                host: "sim".into(),
                boot_id: "boot".into(),
                epoch: 0,
                started_at: now,
                lease_until: plus_seconds(now, LEASE_SECONDS),
                ended_at: None,
                version: "sim".into(),
            })
            .await?;
        for earlier in store.owners().await? {
            if earlier.home_id == home && earlier.id != owner_id {
                world.ledger.owner_ended(&earlier.id);
            }
        }
        store.supersede_owners(home, &owner_id, now).await?;
        Ok(owner_id)
    }

    async fn made(
        world: &Surroundings,
        fence: Fence,
        leads: bool,
        observer: Option<Arc<Observer>>,
    ) -> Result<Self, StoreError> {
        let Surroundings { clock, dice, .. } = world;
        let config = &misunderstood(world.breakage, &world.config);
        let connection = Connection {
            inner: world.database.clone(),
            ledger: world.ledger.clone(),
            dice: dice.clone(),
            epoch: leads.then_some(fence.epoch),
            owner: fence.owner_id.clone(),
            breakage: world.breakage,
        };
        let context = Context {
            store: Store::new(Arc::new(connection)),
            fence: fence.clone(),
            config: config.clone(),
            clock: clock.clone(),
            entropy: dice.clone(),
            observer: observer.unwrap_or_else(|| Arc::new(Observer::new(clock.clone()))),
            metrics: Arc::default(),
        };
        let remote =
            Remote { inner: world.provider.clone(), instance: world.instance, breakage: world.breakage };
        let reconciler = Arc::new(Reconciler::new(context.clone(), Arc::new(remote)));
        let (requests, requested) = driver::requests();
        let handle = ProviderHandle { provider: reconciler.provider().clone(), requests, shared: true };
        let service = Service::new(
            context.store.clone(),
            BTreeMap::from([("fake".to_owned(), handle)]),
            config.clone(),
            clock.clone(),
            dice.clone(),
            world.instance.to_owned(),
            context.observer.clone(),
            watch::channel(Some(fence.clone()).filter(|_| leads)).1,
            Arc::default(),
            watch::channel(false).1,
        );
        let service = Arc::new(service.owned_by(fence.owner_id));
        let now = clock.monotonic();
        Ok(Self {
            sessions: Sessions::start(&context.store, service.clone(), now).await?,
            health: Arc::new(HealthLoop::new(context.clone())),
            reconciler,
            requested,
            service,
            under_way: None,
            left_at: now,
            next_pass: now,
            poked: false,
            next_health: now,
            next_retention: now + Duration::from_secs(config.retention.interval_seconds),
            asleep_until: None,
            fell_asleep_at: Duration::ZERO,
            context,
        })
    }

    pub(crate) fn owner(&self) -> &str {
        &self.context.fence.owner_id
    }

    pub(crate) fn is_awake(&self) -> bool {
        self.asleep_until.is_none()
    }

    pub(crate) fn observer(&self) -> &Arc<Observer> {
        &self.context.observer
    }

    pub(crate) fn pass(&self) -> Work<Pass> {
        let reconciler = self.reconciler.clone();
        Work::new(async move { reconciler.pass("sim").await })
    }

    pub(crate) fn health_pass(&self) -> Work<Result<usize, StoreError>> {
        let health = self.health.clone();
        Work::new(async move { health.pass().await })
    }

    pub(crate) fn retention_pass(&self) -> Work<Result<(), StoreError>> {
        let context = self.context.clone();
        Work::new(async move { retention::pass(&context).await })
    }

    /// As the driver does: by the timer, sooner if the plan asks for it.
    pub(crate) fn schedule_pass(&mut self, pass: &Pass, now: Duration) {
        let poll = Duration::from_secs(self.context.config.reconciler.poll_interval_seconds);
        let pause = match pass {
            Ok(report) => driver::pause(report, poll, self.context.clock.as_ref()),
            Err(_) => BUSY_PERIOD,
        };
        let pause = if std::mem::take(&mut self.poked) { LEAST_PAUSE } else { pause.max(LEAST_PAUSE) };
        self.next_pass = now + pause;
    }

    /// Whether its service asked for a pass since this was last asked.
    pub(crate) fn was_poked(&self) -> bool {
        self.requested.try_lock().is_ok_and(|queue| queue.take_poke())
    }

    /// A hint or a request. It makes no pass that waits for its provider wait less, or more.
    pub(crate) fn poke(&mut self, now: Duration) {
        if self.under_way.is_some() {
            self.poked = true;
        } else {
            self.next_pass = self.next_pass.min(now + LEAST_PAUSE);
        }
    }

    /// What is to be done when, for who looks for the reason of something.
    pub(crate) fn due(&self) -> [(&'static str, Duration); 4] {
        [
            ("pass", self.next_pass),
            ("health", self.next_health),
            ("retention", self.next_retention),
            ("sessions", self.sessions.next_turn),
        ]
    }

    /// When something of it is to be done next.
    pub(crate) fn wakes_at(&self) -> Duration {
        let next = self.next_pass.min(self.next_health).min(self.next_retention).min(self.sessions.next_turn);
        self.asleep_until.map_or(next, |until| next.max(until))
    }
}
