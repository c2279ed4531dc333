//! One seed: what happens in which order, and what is checked after each step. Time is event-driven: it jumps
//! to whatever comes next, a loop's own timer, a heartbeat, or a happening.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parhelia_core::config::Config;
use parhelia_core::cost::Price;
use parhelia_core::event::Event;
use parhelia_core::time::{Clock, plus_seconds};
use parhelia_providers::fake::{FakeProvider, World};
use parhelia_server::loops::health::Observer;
use parhelia_store::{Store, StoreError, sqlite};

use crate::breakage::Breakage;
use crate::database::Ledger;
use crate::edge::{Dice, SimClock};
use crate::invariants::{Watch, Witness};
use crate::memory::Snapshot;
use crate::server::{Server, Surroundings};
use crate::session_invariants::SessionWitness;

pub(crate) const INSTANCE: &str = "11111111-1111-4111-8111-111111111111";
pub(crate) const FOREIGN: &str = "22222222-2222-4222-8222-222222222222";
pub(crate) const HOME_ENGINE: &str = "engine-1";
pub(crate) const OTHER_ENGINE: &str = "engine-2";

const HOUR: Duration = Duration::from_secs(3600);
/// At the end every fault stops; by then everything must have come to rest.
const HEALING: Duration = Duration::from_secs(900);

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub seed: u64,
    pub hours: u64,
    /// One world in so many has sessions; 0: none.
    pub sessions_in: u64,
    /// A contract that is broken on purpose.
    pub breakage: Option<Breakage>,
}

/// One world in so many has a provider that does not keep its word on how late a create can arrive.
const TOO_LATE_IN: u64 = 5;
/// Where nothing else is said.
pub const SESSIONS_IN: u64 = 8;

impl Settings {
    fn has_sessions(&self) -> bool {
        self.sessions_in > 0 && self.seed.is_multiple_of(self.sessions_in)
    }

    /// Creates arrive after they were given up. Not where there are sessions: it makes a second living thing of a task,
    /// which nobody could prevent.
    pub(crate) fn has_too_late(&self) -> bool {
        self.seed.is_multiple_of(TOO_LATE_IN) && !self.has_sessions()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    pub steps: u64,
    pub simulated_seconds: u64,
    /// Those of them in which there were sessions too.
    pub session_seconds: u64,
    pub events: u64,
    pub faults: u64,
    pub crashes: u64,
    /// How often a server was replaced while it slept, and how many of its writes were refused after that.
    pub replaced: u64,
    pub refused: u64,
    pub sessions: u64,
    /// How often an owner of sessions found that it had been replaced.
    pub refused_owners: u64,
    /// Moments whose registry was rebuilt from the history, and was the same.
    pub remembered: u64,
    /// What broke, with the last events before it.
    pub broken: Option<String>,
    /// A digest of every step and every event: equal for equal seeds.
    pub trace: u64,
}

pub(crate) struct Sim {
    pub(crate) settings: Settings,
    pub(crate) world: Surroundings,
    /// The store without a server in between, to look at it.
    pub(crate) store: Store,
    pub(crate) server: Option<Server>,
    /// When the next server comes, while there is none.
    pub(crate) restart_at: Duration,
    /// Servers that were replaced while they slept: their writes must be refused.
    pub(crate) sleepers: Vec<Server>,
    /// What the last server had heard; no real one gets that.
    pub(crate) former: Option<Arc<Observer>>,
    pub(crate) witness: Witness,
    pub(crate) heard_until: i64,
    pub(crate) sessions: SessionWitness,
    /// Another server, with sessions of its own.
    pub(crate) has_peer: bool,
    pub(crate) peer: Option<Server>,
    pub(crate) peer_restart_at: Duration,
    pub(crate) home: String,
    /// Never, where this world has none.
    pub(crate) next_session_happening: Duration,
    pub(crate) judged: bool,
    pub(crate) listable_since: Option<Duration>,
    pub(crate) calm_since: Option<Duration>,
    pub(crate) up_since: Duration,
    /// How long the server had listened when it fell asleep in the pass of the reconciler that it is still at.
    pub(crate) left_asleep: Option<Watch>,
    pub(crate) steady_since: Duration,
    pub(crate) stormy: bool,
    pub(crate) healing: bool,
    pub(crate) weather_until: Duration,
    pub(crate) next_happening: Duration,
    pub(crate) next_beat: Duration,
    pub(crate) next_tidying: Duration,
    pub(crate) end: Duration,
    /// How many agents the people of this world want.
    pub(crate) fleet: usize,
    /// Who does not beat, and until when.
    pub(crate) mute: BTreeMap<String, Duration>,
    /// Everything that was told, and the registry at a few moments, to be found again in it.
    pub(crate) told: Vec<Event>,
    pub(crate) remembered: Vec<Snapshot>,
    pub(crate) trace: DefaultHasher,
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
            sessions: SessionWitness::default(),
            has_peer: settings.has_sessions() && world.dice.chance(50),
            peer: None,
            peer_restart_at: start,
            home: "home".to_owned(),
            next_session_happening: match settings.has_sessions() {
                true => start + world.dice.seconds(1, 60),
                false => Duration::MAX,
            },
            judged: false,
            listable_since: None,
            calm_since: None,
            up_since: start,
            left_asleep: None,
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
        if self.settings.has_sessions() {
            self.outcome.session_seconds = self.outcome.simulated_seconds;
        }
        self.outcome.trace = self.trace.finish();
        std::mem::take(&mut self.outcome)
    }

    fn next_at(&self) -> Duration {
        let server = self.server.as_ref().map_or(self.restart_at, Server::wakes_at);
        let sleepers = self.sleepers.iter().filter_map(|s| s.asleep_until);
        let happenings = [self.next_happening, self.next_session_happening];
        let own = [self.weather_until, self.next_beat, self.next_tidying, server];
        let own = own.into_iter().chain(happenings).chain(self.peer_at());
        own.chain(sleepers).chain([self.end + HEALING]).min().unwrap_or(self.end)
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
                self.peer_restart_at = self.peer_restart_at.min(now);
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
        } else if self.peer_at().is_some_and(|at| now >= at) {
            self.mark(10);
            self.serve_peer().await?;
        } else if now >= self.next_beat {
            self.mark(8);
            self.beat();
        } else if now >= self.next_happening {
            self.mark(9);
            self.happen();
        } else if now >= self.next_session_happening {
            self.mark(11);
            self.session_happens().await?;
        }
        Ok(())
    }

    pub(crate) fn mark(&mut self, kind: u8) {
        (kind, self.now().as_millis()).hash(&mut self.trace);
    }

    /// What is long over is forgotten, by the provider and by the checker.
    fn tidy(&mut self) {
        self.next_tidying = self.now() + HOUR;
        let before = plus_seconds(self.world.clock.now(), -2 * 3600);
        self.witness.forget(&mut self.world.provider.world(), before);
        self.sessions.forget();
        self.world.ledger.touch();
    }
}
