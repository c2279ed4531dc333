//! One seed: what happens in which order, and what is checked after each step. Time is event-driven: it jumps
//! to whatever comes next, a loop's own timer, a heartbeat, or a happening.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use parhelia_core::config::Config;
use parhelia_core::cost::Price;
use parhelia_core::event::Event;
use parhelia_core::heartbeat::Sample;
use parhelia_core::ids::ContainerId;
use parhelia_core::time::{Clock, plus_seconds};
use parhelia_providers::fake::{FakeProvider, Faults, ListFault, World};
use parhelia_server::loops::health::Observer;
use parhelia_server::service::{Caller, Service};
use parhelia_store::{ContainerFilter, EventFilter, Store, StoreError, sqlite};

use crate::breakage::Breakage;
use crate::database::Ledger;
use crate::edge::{Dice, SimClock};
use crate::interrupt::{Progress, Work};
use crate::invariants::{Moment, Witness};
use crate::memory::Snapshot;
use crate::server::{Pass, Server, Surroundings};

pub(crate) const INSTANCE: &str = "11111111-1111-4111-8111-111111111111";
pub(crate) const FOREIGN: &str = "22222222-2222-4222-8222-222222222222";
pub(crate) const HOME_ENGINE: &str = "engine-1";
pub(crate) const OTHER_ENGINE: &str = "engine-2";

const HOUR: Duration = Duration::from_secs(3600);
/// How often in a world the registry is remembered.
const SNAPSHOTS: u32 = 3;
/// At the end every fault stops; by then everything must have come to rest.
const HEALING: Duration = Duration::from_secs(900);
/// A health pass this late is noticed by the server itself (three periods and a margin), whatever its period.
const NOTICED: Duration = Duration::from_secs(300);
/// Somebody silent was heard: the health loop looks after this long.
const GOOD_NEWS: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub seed: u64,
    pub hours: u64,
    /// A contract that is broken on purpose.
    pub breakage: Option<Breakage>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    pub steps: u64,
    pub simulated_seconds: u64,
    pub events: u64,
    pub faults: u64,
    pub crashes: u64,
    /// How often a server was replaced while it slept, and how many of its writes were refused after that.
    pub replaced: u64,
    pub refused: u64,
    /// Moments whose registry was rebuilt from the history, and was the same.
    pub remembered: u64,
    /// What broke, with the last events before it.
    pub broken: Option<String>,
    /// A digest of every step and every event: equal for equal seeds.
    pub trace: u64,
}

pub(crate) struct Sim {
    settings: Settings,
    pub(crate) world: Surroundings,
    /// The store without a server in between, to look at it.
    store: Store,
    pub(crate) server: Option<Server>,
    /// When the next server comes, while there is none.
    restart_at: Duration,
    /// Servers that were replaced while they slept: their writes must be refused.
    pub(crate) sleepers: Vec<Server>,
    /// What the last server had heard; no real one gets that.
    former: Option<Arc<Observer>>,
    pub(crate) witness: Witness,
    heard_until: i64,
    judged: bool,
    pub(crate) listable_since: Option<Duration>,
    calm_since: Option<Duration>,
    up_since: Duration,
    steady_since: Duration,
    pub(crate) stormy: bool,
    pub(crate) healing: bool,
    pub(crate) weather_until: Duration,
    pub(crate) next_happening: Duration,
    next_beat: Duration,
    next_tidying: Duration,
    end: Duration,
    /// How many agents the people of this world want.
    pub(crate) fleet: usize,
    /// Who does not beat, and until when.
    pub(crate) mute: BTreeMap<String, Duration>,
    /// Everything that was told, and the registry at a few moments, to be found again in it.
    told: Vec<Event>,
    remembered: Vec<Snapshot>,
    trace: DefaultHasher,
    pub(crate) outcome: Outcome,
}

/// Runs one seed to its end, or to the first broken invariant.
pub fn run(settings: Settings) -> Outcome {
    // Tokio's clock stands still: a call that hangs is let go when its time has come in the simulation.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(async {
            let mut sim = Sim::new(settings).map_err(|e| e.to_string())?;
            Ok(sim.live().await)
        }),
        Err(e) => Err(e.to_string()),
    };
    outcome.unwrap_or_else(|e: String| Outcome {
        broken: Some(format!("the world could not be made: {e}")),
        ..Outcome::default()
    })
}

/// Settings as people have them: the defaults, and stricter and laxer ones.
fn config(dice: &Dice) -> Config {
    let mut config = Config::default();
    config.reconciler.auto_terminate_orphans = dice.chance(30);
    config.reconciler.auto_terminate_stale = dice.chance(20);
    config.reconciler.max_silent_hours = if dice.chance(50) { 4.0 } else { 0.5 };
    let (degraded, stale, dead, resumption) = match dice.roll(4) {
        0 => (90, 120, 180, 300),
        1 => (120, 200, 400, 60),
        _ => (120, 300, 600, 300),
    };
    config.health.degraded_after_seconds = degraded;
    config.reconciler.stale_threshold_seconds = stale;
    config.health.dead_after_seconds = dead;
    config.health.resumption_window_seconds = resumption;
    config.health.check_interval_seconds = dice.pick(&[10, 30, 30, 60]).copied().unwrap_or(10);
    config.health.heartbeat_interval_seconds = dice.pick(&[30, 60, 60, 60]).copied().unwrap_or(30);
    config.retention.raw_heartbeat_hours = 1;
    config.retention.cycle_hours = 1;
    config.retention.event_days = 1;
    config.prices = vec![price()];
    config
}

fn price() -> Price {
    Price {
        provider: "fake".to_owned(),
        effective_from: parhelia_core::Timestamp::UNIX_EPOCH,
        sandbox_hour: 0.5,
        cpu_core_second: 0.000_1,
        memory_gib_second: 0.0,
        gpu_second: BTreeMap::new(),
        default_cpu_cores: 1.0,
        default_memory_mb: 0,
    }
}

/// Most fleets are small, some are not.
fn fleet(dice: &Dice) -> usize {
    let size = if dice.chance(10) { 8 + dice.roll(8) } else { 2 + dice.roll(4) };
    size as usize
}

impl Sim {
    fn new(settings: Settings) -> Result<Self, StoreError> {
        let dice = Arc::new(Dice::new(settings.seed));
        let clock = Arc::new(SimClock::new());
        let database = Arc::new(sqlite::Inline::open(Path::new(":memory:"))?);
        let mut fake = World::new(HOME_ENGINE);
        fake.create_is_idempotent = dice.chance(50);
        let config = Arc::new(config(&dice));
        let world = Surroundings {
            provider: FakeProvider::in_memory("fake", fake, clock.clone()),
            instance: INSTANCE,
            ledger: Arc::new(Ledger::default()),
            breakage: settings.breakage,
            config: config.clone(),
            database: database.clone(),
            clock,
            dice,
        };
        let start = world.clock.monotonic();
        Ok(Self {
            settings,
            store: Store::new(database),
            server: None,
            restart_at: start,
            sleepers: Vec::new(),
            former: None,
            witness: Witness::new(&config, INSTANCE),
            heard_until: 0,
            judged: false,
            listable_since: None,
            calm_since: None,
            up_since: start,
            steady_since: start,
            stormy: false,
            healing: false,
            weather_until: start + world.dice.seconds(60, 1200),
            next_happening: start + world.dice.seconds(1, 10),
            next_beat: start,
            next_tidying: start + HOUR,
            end: start + HOUR * u32::try_from(settings.hours).unwrap_or(u32::MAX),
            fleet: fleet(&world.dice),
            mute: BTreeMap::new(),
            told: Vec::new(),
            remembered: Vec::new(),
            trace: DefaultHasher::new(),
            outcome: Outcome::default(),
            world,
        })
    }

    pub(crate) fn now(&self) -> Duration {
        self.world.clock.monotonic()
    }

    async fn live(&mut self) -> Outcome {
        let start = self.now();
        if let Err(e) = self.store.this_instance(INSTANCE, self.world.clock.now()).await {
            self.outcome.broken = Some(e.to_string());
        }
        while self.outcome.broken.is_none() {
            let next = self.next_at();
            self.world.clock.advance(next.saturating_sub(self.now()));
            if self.now() >= self.end + HEALING {
                break;
            }
            self.outcome.steps += 1;
            let step = self.step().await;
            let done = match (self.world.ledger.take_usurped(), step) {
                (Some(usurped), _) => Err(usurped),
                (None, Ok(())) => self.check().await,
                (None, Err(e)) => Err(e),
            };
            if let Err(e) = done {
                self.fail(e).await;
            }
        }
        let rested = self.calm_since.is_some_and(|since| self.now().saturating_sub(since) > HEALING / 2);
        if self.outcome.broken.is_none() && !rested {
            self.fail("it did not come to rest in the end".to_owned()).await;
        }
        if self.outcome.broken.is_none()
            && let Err(e) = self.remember().await
        {
            self.fail(e).await;
        }
        self.outcome.faults += self.world.ledger.failed_writes.load(Ordering::Relaxed);
        self.outcome.refused = self.world.ledger.refused.load(Ordering::Relaxed);
        self.outcome.simulated_seconds = self.now().saturating_sub(start).as_secs();
        self.outcome.trace = self.trace.finish();
        std::mem::take(&mut self.outcome)
    }

    fn next_at(&self) -> Duration {
        let server = self.server.as_ref().map_or(self.restart_at, Server::wakes_at);
        let sleepers = self.sleepers.iter().filter_map(|s| s.asleep_until);
        let own = [self.weather_until, self.next_happening, self.next_beat, self.next_tidying, server];
        own.into_iter().chain(sleepers).chain([self.end + HEALING]).min().unwrap_or(self.end)
    }

    /// The first thing that is due.
    async fn step(&mut self) -> Result<(), String> {
        let now = self.now();
        if now >= self.next_tidying {
            self.mark(0);
            self.tidy();
        } else if now >= self.weather_until || (now >= self.end && !self.healing) {
            self.mark(1);
            self.healing |= now >= self.end;
            if self.healing {
                self.restart_at = self.restart_at.min(now);
                let asleep = self.server.iter_mut().filter_map(|server| server.asleep_until.as_mut());
                asleep.for_each(|until| *until = now);
            }
            self.weather_turns();
        } else if let Some(late) = self.sleepers.iter().position(|s| s.asleep_until.is_some_and(|t| now >= t))
        {
            self.mark(2);
            let server = self.sleepers.swap_remove(late);
            self.wakes_too_late(server).await?;
        } else if self.server.is_none() && now >= self.restart_at {
            self.mark(3);
            self.start_server().await.map_err(|e| e.to_string())?;
        } else if let Some(server) = self.server.take_if(|server| now >= server.wakes_at()) {
            self.serve(server).await?;
        } else if now >= self.next_beat {
            self.mark(8);
            self.beat();
        } else if now >= self.next_happening {
            self.mark(9);
            self.happen();
        }
        Ok(())
    }

    fn mark(&mut self, kind: u8) {
        (kind, self.now().as_millis()).hash(&mut self.trace);
    }

    async fn start_server(&mut self) -> Result<(), StoreError> {
        let ages = self.settings.breakage == Some(Breakage::OutageAges);
        let server = Server::start(&self.world, self.former.take().filter(|_| ages)).await?;
        self.server = Some(server);
        self.up_since = self.now();
        self.steady_since = self.now();
        Ok(())
    }

    /// Lets the loop that is due do its work, if nothing happens to its server meanwhile.
    async fn serve(&mut self, mut server: Server) -> Result<(), String> {
        let now = self.now();
        if server.asleep_until.take().is_some() {
            self.mark(4);
            self.steady_since = now;
            if now.saturating_sub(server.fell_asleep_at) > NOTICED {
                self.up_since = now;
            }
            self.server = Some(server);
        } else if now >= server.next_health {
            self.mark(5);
            server.next_health = now + Duration::from_secs(self.world.config.health.check_interval_seconds);
            let work = server.health_pass();
            self.server = Some(server);
            match self.ask(work) {
                Some(Ok(_)) => self.judged = true,
                Some(Err(e)) => self.store_failed(&e)?,
                None => {}
            }
        } else if now >= server.next_retention {
            self.mark(6);
            server.next_retention = now + Duration::from_secs(self.world.config.retention.interval_seconds);
            let work = server.retention_pass();
            self.server = Some(server);
            if let Some(Err(e)) = self.ask(work) {
                self.store_failed(&e)?;
            }
        } else {
            self.mark(7);
            self.reconcile(server).await?;
        }
        Ok(())
    }

    async fn reconcile(&mut self, mut server: Server) -> Result<(), String> {
        let breaths = self.breaths(10);
        let now = self.now();
        match self.go_on(&mut server, breaths).await {
            Progress::Done(pass) => {
                server.schedule_pass(&pass, now);
                self.server = Some(server);
                if let Err(e) = &pass {
                    self.store_failed(e)?;
                }
            }
            Progress::Waiting => {
                server.next_pass =
                    now + Duration::from_secs(self.world.config.reconciler.provider_timeout_seconds);
                self.server = Some(server);
            }
            Progress::OutOfBreath => match self.world.dice.roll(4) {
                0 | 1 => self.dies(server),
                2 => self.put_to_sleep(server),
                // Something else gets its turn in the middle of this pass.
                _ => {
                    server.next_pass = now + Duration::from_millis(self.world.dice.roll(3000));
                    self.server = Some(server);
                }
            },
        }
        Ok(())
    }

    /// Begins a pass, or goes on with the one that waits for its provider or was left in the middle.
    async fn go_on(&self, server: &mut Server, breaths: u64) -> Progress<Pass> {
        let mut work = match server.under_way.take() {
            Some(work) => {
                let left_for = self.now().saturating_sub(server.left_at);
                tokio::time::advance(left_for + Duration::from_millis(1)).await;
                work
            }
            None => server.pass(),
        };
        let progress = work.go_on(breaths);
        if !matches!(progress, Progress::Done(_)) {
            server.under_way = Some(work);
            server.left_at = self.now();
        }
        progress
    }

    /// A server that was replaced while it slept goes on as if it still led.
    async fn wakes_too_late(&mut self, mut server: Server) -> Result<(), String> {
        let resumed = server.under_way.is_some();
        match self.go_on(&mut server, u64::MAX).await {
            Progress::Waiting => {
                let patience = self.world.config.reconciler.provider_timeout_seconds;
                server.asleep_until = Some(self.now() + Duration::from_secs(patience));
                self.sleepers.push(server);
                return Ok(());
            }
            // It may have been left after its last write.
            Progress::Done(Ok(_)) if resumed => {}
            Progress::Done(Ok(_)) => return Err("a pass of a replaced server was not refused".to_owned()),
            Progress::Done(Err(StoreError::Fenced { .. })) | Progress::OutOfBreath => {}
            Progress::Done(Err(e)) => self.store_failed(&e)?,
        }
        match server.health_pass().go_on(u64::MAX) {
            Progress::Done(Err(StoreError::Fenced { .. })) => Ok(()),
            Progress::Done(Err(e)) => self.store_failed(&e),
            // Nobody's health had changed: it wrote nothing. The ledger would know.
            _ => Ok(()),
        }
    }

    fn dies(&mut self, server: Server) {
        self.outcome.crashes += 1;
        self.former = Some(server.observer().clone());
        let dice = &self.world.dice;
        let away = if dice.chance(80) { dice.seconds(0, 5) } else { dice.seconds(5, 1200) };
        self.restart_at = self.now() + away;
    }

    pub(crate) fn put_to_sleep(&mut self, mut server: Server) {
        self.outcome.faults += 1;
        let now = self.now();
        let dice = &self.world.dice;
        server.fell_asleep_at = now;
        if self.healing {
            self.server = Some(server);
        } else if dice.chance(50) {
            server.asleep_until = Some(now + dice.seconds(1, 1200));
            self.server = Some(server);
        } else {
            self.outcome.replaced += 1;
            self.restart_at = now + dice.seconds(1, 20);
            server.asleep_until = Some(self.restart_at + dice.seconds(1, 1800));
            self.former = Some(server.observer().clone());
            self.sleepers.push(server);
        }
    }

    /// After how many breaths something happens to whoever works now.
    fn breaths(&self, percent: u64) -> u64 {
        let dice = &self.world.dice;
        let unlucky = !self.healing && if self.stormy { dice.chance(percent) } else { dice.roll(1000) < 1 };
        if unlucky { dice.roll(40) } else { u64::MAX }
    }

    /// The service of a server that can be reached.
    pub(crate) fn door(&self) -> Option<Arc<Service>> {
        self.server.as_ref().filter(|s| s.asleep_until.is_none()).map(|s| s.service.clone())
    }

    /// Has the server do something; it may die meanwhile.
    pub(crate) fn ask<T>(&mut self, mut work: Work<T>) -> Option<T> {
        match work.go_on(self.breaths(2)) {
            Progress::Done(done) => Some(done),
            Progress::OutOfBreath | Progress::Waiting => {
                if let Some(server) = self.server.take() {
                    self.dies(server);
                }
                None
            }
        }
    }

    /// Whatever a person is told, the request may have poked the reconciler.
    pub(crate) fn asked(&mut self) {
        let now = self.now();
        if self.world.dice.chance(90) {
            self.server.iter_mut().for_each(|server| server.poke(now));
        }
    }

    /// Only a store that was made to fail may fail; who slept on its answer may hear of it late.
    fn store_failed(&mut self, error: &StoreError) -> Result<(), String> {
        self.steady_since = self.now();
        self.listable_since = None;
        self.calm_since = None;
        match error {
            StoreError::Unavailable { .. } if self.world.ledger.failed_writes.load(Ordering::Relaxed) > 0 => {
                Ok(())
            }
            other => Err(format!("a loop failed: {other}")),
        }
    }

    /// Every agent that can be heard sends its heartbeat.
    fn beat(&mut self) {
        let now = self.now();
        self.next_beat = now + Duration::from_secs(self.world.config.health.heartbeat_interval_seconds);
        let Some(service) = self.door() else { return };
        self.mute.retain(|_, until| *until > now);
        let wall = self.world.clock.now();
        let fleet = self.world.provider.world();
        let beats = |s: &&parhelia_providers::fake::FakeSandbox| {
            s.ended_at.is_none()
                && !s.removed
                && s.visible_at <= wall
                && s.tags.instance == INSTANCE
                && !self.mute.contains_key(&s.sandbox_id)
        };
        let ids: Vec<ContainerId> =
            fleet.sandboxes.iter().filter(beats).map(|s| s.tags.container.clone()).collect();
        drop(fleet);
        if ids.is_empty() {
            return;
        }
        if self.settings.breakage == Some(Breakage::HeartbeatsLost) {
            ids.iter().for_each(|id| self.witness.arrived(id, now));
            return;
        }
        let samples = ids.iter().cloned().map(Sample::bare).collect();
        match self.ask(Work::new(async move { service.heartbeats(samples, &Caller::admin("agents")).await }))
        {
            Some(Ok(receipt)) => {
                let refused = |at: usize| receipt.rejected.iter().any(|no| no.index == at);
                for (at, id) in ids.iter().enumerate() {
                    if receipt.rejected.is_empty() || !refused(at) {
                        self.witness.arrived(id, now);
                    }
                }
                if let Some(server) = &mut self.server
                    && server.observer().good_news.notified().now_or_never().is_some()
                {
                    server.next_health = server.next_health.min(now + GOOD_NEWS);
                }
            }
            Some(Err(_)) => self.steady_since = now,
            None => {}
        }
    }

    /// What is long over is forgotten, by the provider and by the checker.
    fn tidy(&mut self) {
        self.next_tidying = self.now() + HOUR;
        let before = plus_seconds(self.world.clock.now(), -2 * 3600);
        self.witness.forget(&mut self.world.provider.world(), before);
        self.world.ledger.touch();
    }

    /// Since when there is what the invariants ask for.
    fn conditions(&mut self) -> Moment {
        let now = self.now();
        let (faults, home) = {
            let world = self.world.provider.world();
            (world.faults, world.identity == HOME_ENGINE)
        };
        let awake = self.server.as_ref().is_some_and(|server| server.asleep_until.is_none());
        let listable = awake && faults.list == ListFault::None;
        let calm = listable && home && faults == Faults::default() && !self.world.ledger.fails();
        self.listable_since = listable.then(|| self.listable_since.unwrap_or(now));
        self.calm_since = calm.then(|| self.calm_since.unwrap_or(now));
        Moment {
            at: now,
            wall: self.world.clock.now(),
            listable_since: self.listable_since,
            calm_since: self.calm_since,
            up_since: self.up_since,
            steady_since: self.steady_since,
        }
    }

    /// At a few moments of each world the registry is kept, as everybody would have seen it.
    async fn remember_now(&mut self) -> Result<(), String> {
        let due = self.end / (SNAPSHOTS + 1) * (self.remembered.len() as u32 + 1);
        if self.now() >= due && self.remembered.len() < SNAPSHOTS as usize {
            let rows = self.registry().await?;
            let prices = self.world.config.price_table();
            self.remembered.push(Snapshot::take(&rows, self.heard_until, self.world.clock.now(), &prices));
        }
        Ok(())
    }

    async fn registry(&self) -> Result<Vec<parhelia_core::container::Container>, String> {
        self.store.containers(&ContainerFilter::default()).await.map_err(|e| e.to_string())
    }

    /// The registry at every remembered moment is in the history (contract 9).
    async fn remember(&mut self) -> Result<(), String> {
        let rows = self.registry().await?;
        let prices = self.world.config.price_table();
        self.outcome.remembered = self.remembered.len() as u64;
        self.remembered.iter().try_for_each(|then| then.compare(&rows, &self.told, &prices))
    }

    async fn check(&mut self) -> Result<(), String> {
        let moment = self.conditions();
        if self.world.ledger.take_changed() {
            self.read(&moment).await?;
        }
        if std::mem::take(&mut self.judged) {
            self.witness.ladder_holds(&moment)?;
        }
        self.witness.check(&self.world.provider.world(), &moment)
    }

    /// New events, and the rows as they are now. Those that are no longer active are read one last time.
    async fn read(&mut self, moment: &Moment) -> Result<(), String> {
        let tail =
            EventFilter { after_id: Some(self.heard_until), limit: Some(i64::MAX), ..EventFilter::default() };
        let events = self.store.events(&tail).await.map_err(|e| e.to_string())?;
        for event in &events {
            line(event).hash(&mut self.trace);
        }
        self.outcome.events += events.len() as u64;
        self.heard_until = events.last().map_or(self.heard_until, |e| e.id);
        self.told.extend(events.iter().cloned());
        self.remember_now().await?;
        let active = self.store.tracked("fake").await.map_err(|e| e.to_string())?;
        let ended: Vec<ContainerId> = self
            .witness
            .rows()
            .filter(|row| row.state.is_active() && !active.iter().any(|a| a.id == row.id))
            .map(|row| row.id.clone())
            .collect();
        let ended = match ended.is_empty() {
            true => Vec::new(),
            false => self.store.tracked_by_ids("fake", &ended, &[]).await.map_err(|e| e.to_string())?,
        };
        let heard = self.witness.hear(&events, moment);
        self.witness.read(active.into_iter().chain(ended), moment.at);
        heard
    }

    async fn fail(&mut self, what: String) {
        let mut told = format!("after {:.2}h: {what}\n", self.now().as_secs_f64() / 3600.0);
        told += &format!("{:?}\n", self.world.provider.world().faults);
        // Whom it is about, if it names somebody: its whole history.
        let named =
            what.split(|c: char| !c.is_alphanumeric() && c != '-').find(|word| word.starts_with("c-"));
        if let Some(id) = named {
            let id = Some(id.to_owned());
            let filter = EventFilter { container_id: id, limit: Some(100), ..EventFilter::default() };
            let events = self.store.events(&filter).await.unwrap_or_default();
            told += &format!("its events:\n{}\n", lines(&events));
        }
        let filter = EventFilter { limit: Some(25), newest_first: true, ..EventFilter::default() };
        let mut last = self.store.events(&filter).await.unwrap_or_default();
        last.reverse();
        self.outcome.broken = Some(format!("{told}the last events:\n{}", lines(&last)));
    }
}

fn lines(events: &[Event]) -> String {
    events.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn line(event: &Event) -> String {
    format!(
        "  {} {} {} {} -> {} {}",
        event.timestamp,
        event.event_type,
        event.container_id.as_deref().unwrap_or("-"),
        event.old_value.as_deref().unwrap_or("-"),
        event.new_value.as_deref().unwrap_or("-"),
        event.message.as_deref().unwrap_or(""),
    )
}
