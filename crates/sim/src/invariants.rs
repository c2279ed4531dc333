//! What must hold after every step, judged from the outside: the provider's world beside the store, and the
//! heartbeats that arrived beside what the health loop says. All ages are counted in time that passed, never
//! by the wall clock.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use parhelia_core::config::Config;
use parhelia_core::event::{Event, EventType, Source};
use parhelia_core::ids::ContainerId;
use parhelia_core::reconcile::Tracked;
use parhelia_core::state::{ContainerState, Desired, Health};
use parhelia_providers::fake::{FakeSandbox, World};

use crate::intents::Intents;
use crate::wishes::Wishes;

/// Seen within this long after the provider can be listed.
const UNSEEN: Duration = Duration::from_secs(120);
/// Without faults, the record and the world agree after this long: longer than every wait of the planner.
const SETTLED: Duration = Duration::from_secs(300);

/// From when until when a server was there to listen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch {
    pub(crate) since: Duration,
    pub(crate) until: Duration,
}

/// The moment of a check, and since when what holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) at: Duration,
    pub(crate) wall: Timestamp,
    /// Since when a running server can list the provider and gets the truth.
    pub(crate) listable_since: Option<Duration>,
    /// Since when there are no faults at all.
    pub(crate) calm_since: Option<Duration>,
    /// Since when the server that leads (or led last) has been there to listen.
    pub(crate) up_since: Duration,
    /// The same before it slept, while it is at a pass that began before that.
    pub(crate) left_asleep: Option<Watch>,
    /// The same, but for any failure that may have made it begin anew.
    pub(crate) steady_since: Duration,
}

/// When a heartbeat was acknowledged, and the earliest time by the wall clock that may be recorded of it: one that was not
/// acknowledged after it may have been kept all the same, and the clock may have been set back between the two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) at: Duration,
    pub(crate) wall: Timestamp,
}

/// What the checker remembers between two steps.
#[derive(Debug)]
pub(crate) struct Witness {
    instance: &'static str,
    dead: Duration,
    degraded: Duration,
    /// Nobody is ended for a silence that is shorter.
    endable: Duration,
    /// Whoever is silent for longer is called dead.
    surely_dead: Duration,
    /// Every row that is not over, and those that ended not long ago.
    rows: BTreeMap<ContainerId, Tracked>,
    by_sandbox: HashMap<String, ContainerId>,
    told: HashMap<String, ContainerState>,
    arrivals: HashMap<String, Arrival>,
    /// Since when somebody is on the ladder.
    patients: HashMap<ContainerId, Duration>,
    unseen_since: BTreeMap<String, Duration>,
    wrong_since: BTreeMap<ContainerId, Duration>,
    stopped: HashSet<String>,
    pub(crate) wishes: Wishes,
    intents: Intents,
    forgotten: usize,
    started: usize,
    /// Rows or events have been read since they were last compared.
    uncompared: bool,
}

impl Witness {
    pub(crate) fn new(config: &Config, instance: &'static str) -> Self {
        let seconds = Duration::from_secs;
        let health = &config.health;
        let stale = config.reconciler.stale_threshold_seconds;
        let slowest = health.dead_after_seconds.max(health.resumption_window_seconds);
        Self {
            instance,
            dead: seconds(health.dead_after_seconds),
            degraded: seconds(health.degraded_after_seconds),
            endable: seconds(stale.min(health.resumption_window_seconds)),
            surely_dead: seconds(slowest + 3 * health.check_interval_seconds + 1),
            rows: BTreeMap::new(),
            by_sandbox: HashMap::new(),
            told: HashMap::new(),
            arrivals: HashMap::new(),
            patients: HashMap::new(),
            unseen_since: BTreeMap::new(),
            wrong_since: BTreeMap::new(),
            stopped: HashSet::new(),
            wishes: Wishes::new(config),
            intents: Intents::default(),
            forgotten: 0,
            started: 0,
            uncompared: false,
        }
    }

    /// A heartbeat was acknowledged.
    pub(crate) fn arrived(&mut self, id: &ContainerId, now: Arrival) {
        match self.arrivals.get_mut(id.as_str()) {
            Some(last) => *last = now,
            None => drop(self.arrivals.insert(id.to_string(), now)),
        }
    }

    /// One was sent, and nobody knows what became of it.
    pub(crate) fn may_have_arrived(&mut self, id: &ContainerId, wall: Timestamp) {
        if let Some(last) = self.arrivals.get_mut(id.as_str()) {
            last.wall = last.wall.min(wall);
        }
    }

    fn last_arrival(&self, id: &str) -> Option<Duration> {
        self.arrivals.get(id).map(|arrival| arrival.at)
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &Tracked> {
        self.rows.values()
    }

    pub(crate) fn row(&self, id: &ContainerId) -> Option<&Tracked> {
        self.rows.get(id)
    }

    /// The rows as they are now: those that are not over, and those that have become so since.
    pub(crate) fn read(&mut self, rows: impl Iterator<Item = Tracked>, at: Duration) {
        self.uncompared = true;
        for row in rows {
            if let Some(sandbox) = &row.sandbox_id
                && !self.by_sandbox.contains_key(sandbox)
            {
                self.by_sandbox.insert(sandbox.clone(), row.id.clone());
            }
            if on_the_ladder(&row) {
                if !self.patients.contains_key(&row.id) {
                    self.patients.insert(row.id.clone(), at);
                }
            } else {
                self.patients.remove(&row.id);
            }
            self.rows.insert(row.id.clone(), row);
        }
    }

    /// What has ended long ago is no longer looked at; neither is what the provider has forgotten. It keeps
    /// what somebody may still ask for by name.
    pub(crate) fn forget(&mut self, world: &mut World, before: Timestamp) {
        let count = world.sandboxes.len();
        let asked_for =
            |s: &FakeSandbox| self.rows.get(&s.tags.container).is_some_and(|r| r.state.is_active());
        world.sandboxes.retain(|s| asked_for(s) || (!s.removed && s.ended_at.is_none_or(|at| at > before)));
        self.forgotten += count - world.sandboxes.len();
        let there: HashSet<&str> = world.sandboxes.iter().map(|s| s.sandbox_id.as_str()).collect();
        self.rows.retain(|_, row| {
            let kept = row.state.is_active() || row.sandbox_id.as_deref().is_some_and(|s| there.contains(s));
            if !kept {
                self.told.remove(row.id.as_str());
                self.arrivals.remove(row.id.as_str());
                self.wrong_since.remove(&row.id);
            }
            kept
        });
        self.by_sandbox.retain(|_, id| self.rows.contains_key(id));
    }

    /// Folds new events into the states that they tell, and judges what they claim.
    pub(crate) fn hear(&mut self, events: &[Event], now: &Moment) -> Result<(), String> {
        self.uncompared = true;
        for event in events {
            let Some(id) = &event.container_id else { continue };
            if event.event_type == EventType::ContainerDead {
                self.was_silent(id, self.dead, "called dead", now)?;
            }
            if event.event_type == EventType::StopRequested {
                self.is_rightly_unwanted(id, event, now)?;
            }
            self.intents.hear(event);
            // Health has a word in common with the states.
            if event.source == Source::HealthMonitor {
                continue;
            }
            let Some(Ok(new)) = event.new_value.as_ref().map(|v| v.parse::<ContainerState>()) else {
                continue;
            };
            let before = self.told.insert(id.clone(), new);
            let claims = event.old_value.as_deref().unwrap_or("none");
            if before.is_some_and(|before| before != new && before.as_str() != claims) {
                return Err(format!("{id} was {before:?} by its events, and one says {claims} -> {new}"));
            }
        }
        Ok(())
    }

    fn is_rightly_unwanted(&mut self, id: &str, event: &Event, now: &Moment) -> Result<(), String> {
        let row = ContainerId::parse(id).ok().and_then(|id| self.rows.get(&id));
        let state = self.told.get(id).copied();
        self.wishes.hear(event, row, state, self.arrivals.get(id).copied(), now)?;
        let for_silence = matches!(event.details["reason"].as_str(), Some("stale" | "silent"));
        let by_itself = event.source == Source::Reconciler && for_silence;
        if by_itself && state != Some(ContainerState::Created) && !self.was_decided_before_a_sleep(id, now) {
            self.was_silent(id, self.endable, "ended for its silence", now)?;
        }
        Ok(())
    }

    /// Our own absence is nobody's silence.
    fn was_silent(&self, id: &str, least: Duration, what: &str, now: &Moment) -> Result<(), String> {
        let arrival = self.last_arrival(id);
        let since = arrival.unwrap_or_default().max(now.up_since);
        let silent = now.at.saturating_sub(since);
        if silent >= least {
            return Ok(());
        }
        Err(format!(
            "{id} was {what} after {}s of silence; its last heartbeat arrived {:?}s ago, the server is up for {}s",
            silent.as_secs(),
            arrival.map(|at| now.at.saturating_sub(at).as_secs()),
            now.at.saturating_sub(now.up_since).as_secs(),
        ))
    }

    /// Who decides to end somebody, and sleeps before that is written, writes it when it wakes: what it decided was right
    /// if the silence was long enough by then, and nothing has changed since (no heartbeat, nobody who calls it healthy).
    fn was_decided_before_a_sleep(&self, id: &str, now: &Moment) -> bool {
        let Some(watch) = now.left_asleep else { return false };
        let heard = self.last_arrival(id).unwrap_or_default();
        let called = ContainerId::parse(id).ok().and_then(|id| self.rows.get(&id)).map(|row| row.health);
        called.is_some_and(|health| health != Health::Healthy)
            && watch.until.saturating_sub(heard.max(watch.since)) >= self.endable
    }

    pub(crate) fn check(&mut self, world: &World, now: &Moment) -> Result<(), String> {
        self.every_change_is_told()?;
        self.nothing_stays_unseen(world, now)?;
        self.only_the_unwanted_end(world)?;
        self.no_living_one_is_buried(world)?;
        self.nothing_starts_twice(world, now)?;
        self.everything_settles(world, now)
    }

    fn every_change_is_told(&mut self) -> Result<(), String> {
        if !std::mem::take(&mut self.uncompared) {
            return Ok(());
        }
        for row in self.rows.values() {
            let told = self.told.get(row.id.as_str());
            if told != Some(&row.state) {
                return Err(format!("{} is {} and its events say {told:?}", row.id, row.state));
            }
        }
        self.wishes.are_kept(&self.rows)
    }

    fn nothing_stays_unseen(&mut self, world: &World, now: &Moment) -> Result<(), String> {
        let mut still = BTreeMap::new();
        for sandbox in living(world).filter(|s| s.tags.instance == self.instance) {
            let row = self.row_of(&sandbox.sandbox_id);
            let seen = row.is_some_and(|row| row.state.is_active());
            let (false, Some(listable)) = (seen, now.listable_since) else { continue };
            // A late arrival is looked for from when it is there.
            let arrived = sandbox.visible_at <= now.wall;
            let since = self.unseen_since.get(&sandbox.sandbox_id).filter(|_| arrived).unwrap_or(&now.at);
            let since = (*since).max(listable);
            if now.at.saturating_sub(since) > UNSEEN {
                let age = now.at.saturating_sub(since).as_secs();
                let state = row.map(|row| row.state);
                return Err(format!(
                    "{} is alive and was not seen for {age}s (record: {state:?})",
                    sandbox.sandbox_id
                ));
            }
            still.insert(sandbox.sandbox_id.clone(), since);
        }
        self.unseen_since = still;
        Ok(())
    }

    fn only_the_unwanted_end(&mut self, world: &World) -> Result<(), String> {
        if world.stops.len() == self.stopped.len() {
            return Ok(());
        }
        for id in world.stops.keys() {
            if self.stopped.contains(id) {
                continue;
            }
            let sandbox = world.sandboxes.iter().find(|s| s.sandbox_id == *id);
            if sandbox.is_some_and(|s| s.tags.instance != self.instance) {
                return Err(format!("{id} of another instance was ended"));
            }
            let by_tag = || self.rows.get(&sandbox?.tags.container);
            match self.row_of(id).or_else(by_tag) {
                Some(row) if row.desired == Desired::Terminated && self.wishes.were_told_of(&row.id) => {}
                Some(row) => return Err(format!("{id} ({}) was ended although it is wanted", row.id)),
                None => return Err(format!("{id} was ended and nobody asked for that")),
            }
            self.stopped.insert(id.clone());
        }
        Ok(())
    }

    /// The fake's inspections tell the truth or fail: so nothing alive is ever recorded as terminated.
    fn no_living_one_is_buried(&self, world: &World) -> Result<(), String> {
        for sandbox in world.sandboxes.iter().filter(|s| s.ended_at.is_none() && !s.removed) {
            if let Some(row) = self.row_of(&sandbox.sandbox_id)
                && !row.state.is_active()
            {
                let id = &sandbox.sandbox_id;
                return Err(format!("{id} is alive and {} is recorded as terminated", row.id));
            }
        }
        Ok(())
    }

    fn nothing_starts_twice(&mut self, world: &World, now: &Moment) -> Result<(), String> {
        let (rows, by_sandbox) = (&self.rows, &self.by_sandbox);
        self.intents.check(world, |sandbox| rows.get(by_sandbox.get(sandbox)?), now)?;
        let started = world.sandboxes.len() + self.forgotten;
        if started == self.started {
            return Ok(());
        }
        self.started = started;
        match world.starts.iter().find(|(_, starts)| **starts > 1) {
            Some((id, starts)) => Err(format!("{id} was started {starts} times for one intent")),
            None => Ok(()),
        }
    }

    /// While nothing fails: what was to end has ended, and the record agrees with the world.
    fn everything_settles(&mut self, world: &World, now: &Moment) -> Result<(), String> {
        let Some(calm) = now.calm_since else {
            self.wrong_since.clear();
            return Ok(());
        };
        let alive_now: Vec<&str> =
            living(world).filter(|s| s.visible_at <= now.wall).map(|s| s.sandbox_id.as_str()).collect();
        for row in self.rows.values() {
            // What another engine has cannot be settled while that engine is away.
            let elsewhere = row.provider_identity.as_ref().is_some_and(|i| *i != world.identity);
            let over = row.state == ContainerState::Terminated;
            let alive = row.sandbox_id.as_deref().is_some_and(|id| alive_now.contains(&id));
            let unended = row.desired == Desired::Terminated && !over;
            if elsewhere || (alive != over && !unended) {
                if !self.wrong_since.is_empty() {
                    self.wrong_since.remove(&row.id);
                }
                continue;
            }
            let since = *self.wrong_since.entry(row.id.clone()).or_insert(now.at);
            if now.at.saturating_sub(since.max(calm)) > SETTLED {
                let sandbox = if alive { "alive" } else { "gone" };
                return Err(format!(
                    "{} is {} and its sandbox is {sandbox}, and nothing has failed for {}s: {row:?}",
                    row.id,
                    row.state,
                    SETTLED.as_secs(),
                ));
            }
        }
        Ok(())
    }

    /// After a pass of the health loop: who is heard is healthy, and who is silent for good is called dead.
    pub(crate) fn ladder_holds(&self, now: &Moment) -> Result<(), String> {
        for (id, since) in &self.patients {
            let Some(row) = self.rows.get(id) else { continue };
            let arrival = self.last_arrival(id.as_str());
            if let Some(at) = arrival.filter(|at| *at >= now.steady_since)
                && now.at.saturating_sub(at) < self.degraded
                && row.health != Health::Healthy
            {
                let ago = now.at.saturating_sub(at).as_secs();
                return Err(format!("{id} was heard {ago}s ago and is called {}", row.health));
            }
            let heard = arrival.unwrap_or_default().max(*since).max(now.steady_since);
            let silent = now.at.saturating_sub(heard);
            if silent > self.surely_dead && row.health != Health::Dead {
                return Err(format!("{id} is silent for {}s and called {}", silent.as_secs(), row.health));
            }
        }
        Ok(())
    }

    fn row_of(&self, sandbox_id: &str) -> Option<&Tracked> {
        self.rows.get(self.by_sandbox.get(sandbox_id)?)
    }
}

fn on_the_ladder(row: &Tracked) -> bool {
    matches!(row.state, ContainerState::Running | ContainerState::Orphaned | ContainerState::Unknown)
}

/// What the engine that answers now has alive, or is about to have.
fn living(world: &World) -> impl Iterator<Item = &FakeSandbox> {
    let here = |s: &&FakeSandbox| s.engine.is_empty() || s.engine == world.identity;
    world.sandboxes.iter().filter(|s| s.ended_at.is_none() && !s.removed).filter(here)
}
