//! One seed: what happens, in which order, and what is checked after each step.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use parhelia_core::config::Config;
use parhelia_core::event::{Event, EventType, NewEvent, Source};
use parhelia_core::ids::ContainerId;
use parhelia_core::reconcile::Tracked;
use parhelia_core::sandbox::SandboxSpec;
use parhelia_core::state::{ContainerState, TerminationReason};
use parhelia_core::time::{Clock, plus_seconds};
use parhelia_providers::fake::{
    CreateFault, FakeProvider, Faults, InspectFault, ListFault, StopFault, World,
};
use parhelia_server::entropy::Entropy;
use parhelia_server::loops::Context;
use parhelia_server::loops::health::Observer;
use parhelia_server::loops::reconciler::Reconciler;
use parhelia_store::{EventFilter, Fence, NewContainer, Owner, Store, StoreError, sqlite};

use crate::edge::{Dice, SimClock};
use crate::interrupt::{MortalDatabase, MortalProvider, die_after};
use crate::invariants::{Witness, settled};

const INSTANCE: &str = "11111111-1111-4111-8111-111111111111";
const FOREIGN: &str = "22222222-2222-4222-8222-222222222222";

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub seed: u64,
    pub hours: u64,
    /// Break contract 1 on purpose: a failed listing or inspection is taken for absence.
    pub failure_is_absence: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    pub steps: u64,
    pub simulated_seconds: u64,
    pub faults: u64,
    pub crashes: u64,
    /// What broke, with the last events before it.
    pub broken: Option<String>,
    /// A digest of the whole history: equal for equal seeds.
    pub history: Vec<String>,
}

struct Sim {
    settings: Settings,
    dice: Arc<Dice>,
    clock: Arc<SimClock>,
    store: Store,
    provider: FakeProvider,
    config: Arc<Config>,
    server: Reconciler,
    /// A server that was replaced while it slept: its writes must be refused.
    sleeper: Option<Reconciler>,
    witness: Witness,
    heard_until: i64,
    /// Every row as last read: the active ones are read anew each time, a terminated one when it becomes so.
    rows: BTreeMap<ContainerId, Tracked>,
    listable_since: Option<Timestamp>,
    outcome: Outcome,
}

/// Runs one seed to its end, or to the first broken invariant.
pub fn run(settings: Settings) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    match runtime {
        Ok(runtime) => runtime.block_on(async {
            match Sim::new(settings).await {
                Ok(mut sim) => sim.live().await,
                Err(e) => Outcome {
                    broken: Some(format!("the world could not be made: {e}")),
                    ..Outcome::default()
                },
            }
        }),
        Err(e) => Outcome { broken: Some(format!("no runtime: {e}")), ..Outcome::default() },
    }
}

impl Sim {
    async fn new(settings: Settings) -> Result<Self, StoreError> {
        let dice = Arc::new(Dice::new(settings.seed));
        let clock = Arc::new(SimClock::new());
        let store = Store::new(Arc::new(MortalDatabase(sqlite::Inline::open(Path::new(":memory:"))?)));
        store.this_instance(INSTANCE, clock.now()).await?;
        let mut world = World::new("engine-1");
        world.create_is_idempotent = dice.chance(50);
        world.create_settles_seconds = 30;
        let provider = FakeProvider::in_memory("fake", world, clock.clone());
        let mut config = Config::default();
        config.reconciler.auto_terminate_orphans = dice.chance(30);
        let config = Arc::new(config);
        let fence = Fence { owner_id: String::new(), epoch: 0 };
        let server = reconciler(settings, &store, &fence, &config, &clock, &dice, &provider);
        let mut sim = Self {
            settings,
            dice,
            clock,
            store,
            provider,
            config,
            server,
            sleeper: None,
            witness: Witness::default(),
            heard_until: 0,
            rows: BTreeMap::new(),
            listable_since: None,
            outcome: Outcome::default(),
        };
        sim.restart().await?;
        Ok(sim)
    }

    /// A new server takes the lead under a new epoch; the old one is gone, or only asleep.
    async fn restart(&mut self) -> Result<(), StoreError> {
        let now = self.clock.now();
        let owner_id = self.dice.uuid();
        let lease_until = plus_seconds(now, 60);
        self.store
            .register_owner(&Owner {
                id: owner_id.clone(),
                home_id: "home".into(),
                host: "sim".into(),
                boot_id: "boot".into(),
                epoch: 0,
                started_at: now,
                lease_until,
                ended_at: None,
                version: "sim".into(),
            })
            .await?;
        let epoch = self.store.take_leadership(&owner_id, lease_until, now, true).await?;
        let fence = Fence { owner_id, epoch };
        let next = reconciler(
            self.settings,
            &self.store,
            &fence,
            &self.config,
            &self.clock,
            &self.dice,
            &self.provider,
        );
        let old = std::mem::replace(&mut self.server, next);
        self.sleeper = self.dice.chance(50).then_some(old);
        Ok(())
    }

    async fn live(&mut self) -> Outcome {
        let end = self.settings.hours * 3600;
        let mut last_pass = 0;
        while self.outcome.simulated_seconds < end && self.outcome.broken.is_none() {
            self.outcome.steps += 1;
            if let Err(e) = self.step(&mut last_pass).await {
                self.fail(e).await;
            }
        }
        if self.outcome.broken.is_none()
            && let Err(e) = self.heal().await
        {
            self.fail(e).await;
        }
        self.heard_until = 0;
        if let Ok(events) = self.recent(i64::MAX).await {
            self.outcome.history = events.iter().map(line).collect();
        }
        std::mem::take(&mut self.outcome)
    }

    async fn step(&mut self, last_pass: &mut u64) -> Result<(), String> {
        let seconds = 1 + self.dice.roll(30);
        self.clock.advance(seconds as i64 * 1000);
        self.outcome.simulated_seconds += seconds;
        self.happen().await.map_err(|e| e.to_string())?;
        // Hints come at random; the timer comes for certain.
        let due = self.outcome.simulated_seconds - *last_pass >= 60;
        if due || self.dice.chance(40) {
            *last_pass = self.outcome.simulated_seconds;
            self.pass().await?;
        }
        self.check().await
    }

    /// One pass of the server, which may die anywhere in it.
    async fn pass(&mut self) -> Result<(), String> {
        if let Some(sleeper) = self.sleeper.take_if(|_| self.dice.chance(20)) {
            match sleeper.pass("late").await {
                Err(StoreError::Fenced { .. }) => {}
                other => return Err(format!("a server without the lead was not refused: {other:?}")),
            }
        }
        let breaths = self.dice.chance(15).then(|| self.dice.roll(40));
        match die_after(breaths, self.server.pass("sim")).await {
            Some(Ok(_)) => Ok(()),
            Some(Err(e)) => Err(format!("a pass failed: {e}")),
            None => {
                self.outcome.crashes += 1;
                self.restart().await.map_err(|e| e.to_string())
            }
        }
    }

    /// Something happens in the world, or to it.
    async fn happen(&mut self) -> Result<(), StoreError> {
        match self.dice.roll(100) {
            0..25 => self.want_one().await?,
            25..35 => self.unwant_one().await?,
            35..45 => self.one_exits(),
            45..48 => self.one_vanishes(),
            48..51 => self.stranger(INSTANCE),
            51..53 => self.stranger(FOREIGN),
            53..70 => self.misbehave(),
            70..85 => self.set_faults(Faults::default()),
            85..87 => {
                let seconds = self.dice.roll(7200) as i64 - 3600;
                self.clock.jump_wall(seconds * 1000);
                // A late arrival is late by time that passes, whatever our clock is set to.
                for sandbox in &mut self.provider.world().sandboxes {
                    sandbox.visible_at = plus_seconds(sandbox.visible_at, seconds);
                }
                self.outcome.faults += 1;
                // The rule of two minutes is about time that passed, not about a clock that was set.
                self.listable_since = self.listable_since.map(|_| self.clock.now());
                self.witness.clock_was_set();
            }
            87..88 => self.change_identity(),
            _ => {}
        }
        Ok(())
    }

    async fn want_one(&mut self) -> Result<(), StoreError> {
        let now = self.clock.now();
        let id = self.dice.container_id(now);
        let event = NewEvent::new(EventType::ContainerCreated, Source::User, "wanted")
            .container(&id)
            .change("none", ContainerState::Created);
        let row = NewContainer::intent("fake", spec(id, INSTANCE), now);
        self.store.register(row, vec![event], now).await
    }

    async fn unwant_one(&mut self) -> Result<(), StoreError> {
        let active: Vec<_> = self.rows.values().filter(|r| r.state.is_active()).collect();
        if active.is_empty() {
            return Ok(());
        }
        let id = active[self.dice.roll(active.len() as u64) as usize].id.clone();
        let event = NewEvent::new(EventType::StopRequested, Source::User, "unwanted").container(&id);
        let now = self.clock.now();
        self.store
            .desire_termination(None, &id, "sim", TerminationReason::Manual, 10, now, event)
            .await
            .map(drop)
    }

    fn one_exits(&mut self) {
        let now = self.clock.now();
        let code = self.dice.roll(3) as i64;
        self.with_one_alive(|s| {
            s.ended_at = Some(now);
            s.exit_code = Some(code);
        });
    }

    fn one_vanishes(&mut self) {
        self.outcome.faults += 1;
        self.with_one_alive(|s| s.removed = true);
    }

    fn with_one_alive(&self, change: impl FnOnce(&mut parhelia_providers::fake::FakeSandbox)) {
        let now = self.clock.now();
        let mut world = self.provider.world();
        let alive: Vec<String> = world.alive(now).map(|s| s.sandbox_id.clone()).collect();
        if alive.is_empty() {
            return;
        }
        let chosen = &alive[self.dice.roll(alive.len() as u64) as usize];
        if let Some(sandbox) = world.sandboxes.iter_mut().find(|s| s.sandbox_id == *chosen) {
            change(sandbox);
        }
    }

    /// A sandbox that nobody recorded.
    fn stranger(&mut self, instance: &str) {
        self.outcome.faults += 1;
        let now = self.clock.now();
        let id = self.dice.container_id(now);
        self.provider.world().start(&spec(id, instance), now, now);
    }

    fn misbehave(&mut self) {
        self.outcome.faults += 1;
        let list = [
            ListFault::None,
            ListFault::Error,
            ListFault::Hang,
            ListFault::Empty,
            ListFault::Half,
            ListFault::Partial,
        ];
        let inspect = [InspectFault::None, InspectFault::None, InspectFault::Error, InspectFault::Hang];
        let create = [
            CreateFault::None,
            CreateFault::LostBefore,
            CreateFault::LostAfter,
            CreateFault::Late(5 + self.dice.roll(20) as i64),
            CreateFault::Reject,
            CreateFault::Hang,
        ];
        let stop = [StopFault::None, StopFault::Error, StopFault::Ignore, StopFault::LostAfter];
        let pick = |n: usize| self.dice.roll(n as u64) as usize;
        let faults = Faults {
            list: list[pick(list.len())],
            inspect: inspect[pick(inspect.len())],
            create: create[pick(create.len())],
            stop: stop[pick(stop.len())],
            slow_millis: 0,
        };
        self.set_faults(faults);
    }

    fn set_faults(&mut self, faults: Faults) {
        self.provider.world().faults = faults;
        let truthful = faults.list == ListFault::None && self.provider.world().identity == "engine-1";
        self.listable_since = match (truthful, self.listable_since) {
            (true, None) => Some(self.clock.now()),
            (true, since) => since,
            (false, _) => None,
        };
    }

    /// Another engine answers for a while: it has nothing of ours, and says nothing about what was.
    fn change_identity(&mut self) {
        self.outcome.faults += 1;
        {
            let mut world = self.provider.world();
            let next = if world.identity == "engine-1" { "engine-2" } else { "engine-1" };
            world.identity = next.into();
        }
        let faults = self.provider.world().faults;
        self.set_faults(faults);
    }

    async fn check(&mut self) -> Result<(), String> {
        let events = self.recent(i64::MAX).await.map_err(|e| e.to_string())?;
        self.heard_until = events.last().map_or(self.heard_until, |e| e.id);
        self.witness.hear(&events);
        let rows = self.read_rows().await.map_err(|e| e.to_string())?;
        let now = self.clock.now();
        self.witness.check(&self.provider.world(), &rows, INSTANCE, self.listable_since, now)
    }

    /// Every fault ends; within half an hour everything must be as it should be.
    async fn heal(&mut self) -> Result<(), String> {
        self.provider.world().identity = "engine-1".into();
        self.set_faults(Faults::default());
        self.sleeper = None;
        for _ in 0..180 {
            self.clock.advance(10_000);
            self.server.pass("heal").await.map_err(|e| e.to_string())?;
            self.check().await?;
        }
        let rows = self.read_rows().await.map_err(|e| e.to_string())?;
        settled(&self.provider.world(), &rows, self.clock.now())
    }

    async fn read_rows(&mut self) -> Result<Vec<Tracked>, StoreError> {
        let active = self.store.tracked("fake").await?;
        let mut ended: Vec<ContainerId> =
            self.rows.values().filter(|r| r.state.is_active()).map(|r| r.id.clone()).collect();
        let still: HashSet<&ContainerId> = active.iter().map(|r| &r.id).collect();
        ended.retain(|id| !still.contains(id));
        let ended = self.store.tracked_by_ids("fake", &ended, &[]).await?;
        for row in active.into_iter().chain(ended) {
            self.rows.insert(row.id.clone(), row);
        }
        Ok(self.rows.values().cloned().collect())
    }

    async fn recent(&self, limit: i64) -> Result<Vec<Event>, StoreError> {
        let filter =
            EventFilter { after_id: Some(self.heard_until), limit: Some(limit), ..EventFilter::default() };
        self.store.events(&filter).await
    }

    async fn fail(&mut self, what: String) {
        let filter = EventFilter { limit: Some(25), newest_first: true, ..EventFilter::default() };
        let mut last = self.store.events(&filter).await.unwrap_or_default();
        last.reverse();
        let events: Vec<String> = last.iter().map(line).collect();
        let faults = self.provider.world().faults;
        self.outcome.broken = Some(format!("{what}\n{faults:?}\nthe last events:\n{}", events.join("\n")));
    }
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

fn spec(id: parhelia_core::ids::ContainerId, instance: &str) -> SandboxSpec {
    SandboxSpec {
        container_id: id,
        instance_id: instance.to_owned(),
        task_id: None,
        session_id: None,
        name: None,
        image: None,
        command: vec!["work".into()],
        env: Default::default(),
        workdir: None,
        labels: Default::default(),
        resources: Default::default(),
        idle_timeout_seconds: None,
        tmux_session: None,
        surroundings: Default::default(),
    }
}

fn reconciler(
    settings: Settings,
    store: &Store,
    fence: &Fence,
    config: &Arc<Config>,
    clock: &Arc<SimClock>,
    dice: &Arc<Dice>,
    provider: &FakeProvider,
) -> Reconciler {
    let context = Context {
        store: store.clone(),
        fence: fence.clone(),
        config: config.clone(),
        clock: clock.clone(),
        entropy: dice.clone(),
        observer: Arc::new(Observer::new(clock.clone())),
        metrics: Arc::default(),
    };
    let provider =
        MortalProvider { inner: Arc::new(provider.clone()), failure_is_absence: settings.failure_is_absence };
    Reconciler::new(context, Arc::new(provider))
}
