//! What must hold after every step, checked from the outside: the provider's world beside the store.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use parhelia_core::event::Event;
use parhelia_core::reconcile::Tracked;
use parhelia_core::state::{ContainerState, Desired};
use parhelia_core::time::seconds_between;
use parhelia_providers::fake::World;

/// Seen within this long after the provider can be listed.
const UNSEEN_SECONDS: f64 = 120.0;

/// What the checker remembers between two steps.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    told: HashMap<String, String>,
    unseen_since: BTreeMap<String, Timestamp>,
    stopped: HashSet<String>,
}

impl Witness {
    /// Folds new events into the states that they tell.
    pub(crate) fn hear(&mut self, events: &[Event]) {
        for event in events {
            let (Some(id), Some(new)) = (&event.container_id, &event.new_value) else { continue };
            if new.parse::<ContainerState>().is_ok() {
                self.told.insert(id.clone(), new.clone());
            }
        }
    }

    /// Ages measured with the old clock mean nothing under the new one.
    pub(crate) fn clock_was_set(&mut self) {
        self.unseen_since.clear();
    }

    /// `listable_since` is when the provider began to answer truthfully, if it does.
    pub(crate) fn check(
        &mut self,
        world: &World,
        rows: &[Tracked],
        instance: &str,
        listable_since: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), String> {
        let by_sandbox: HashMap<&str, &Tracked> =
            rows.iter().filter_map(|r| Some((r.sandbox_id.as_deref()?, r))).collect();
        self.every_change_is_told(rows)?;
        self.nothing_stays_unseen(world, &by_sandbox, instance, listable_since, now)?;
        self.only_the_unwanted_end(world, &by_sandbox, instance)?;
        no_living_one_is_buried(world, &by_sandbox)?;
        for (id, starts) in &world.starts {
            if *starts > 1 {
                return Err(format!("{id} was started {starts} times for one intent"));
            }
        }
        Ok(())
    }

    fn every_change_is_told(&self, rows: &[Tracked]) -> Result<(), String> {
        for row in rows {
            let told = self.told.get(row.id.as_str()).map(String::as_str);
            if told != Some(row.state.as_str()) {
                return Err(format!("{} is {} and its events say {told:?}", row.id, row.state));
            }
        }
        Ok(())
    }

    fn nothing_stays_unseen(
        &mut self,
        world: &World,
        by_sandbox: &HashMap<&str, &Tracked>,
        instance: &str,
        listable_since: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), String> {
        let mut still = BTreeMap::new();
        for sandbox in world.alive(now).filter(|s| s.tags.instance == instance) {
            let seen = by_sandbox.get(sandbox.sandbox_id.as_str()).is_some_and(|r| r.state.is_active());
            let (false, Some(listable)) = (seen, listable_since) else { continue };
            let since = *self.unseen_since.get(&sandbox.sandbox_id).unwrap_or(&now);
            let since = since.max(listable).max(sandbox.visible_at);
            if seconds_between(since, now) > UNSEEN_SECONDS {
                let record = by_sandbox.get(sandbox.sandbox_id.as_str()).map(|r| r.state);
                return Err(format!(
                    "{} is alive and recorded as {record:?} since {since}",
                    sandbox.sandbox_id
                ));
            }
            still.insert(sandbox.sandbox_id.clone(), since);
        }
        self.unseen_since = still;
        Ok(())
    }

    fn only_the_unwanted_end(
        &mut self,
        world: &World,
        by_sandbox: &HashMap<&str, &Tracked>,
        instance: &str,
    ) -> Result<(), String> {
        for id in world.stops.keys().filter(|id| !self.stopped.contains(*id)).cloned().collect::<Vec<_>>() {
            let sandbox = world.sandboxes.iter().find(|s| s.sandbox_id == id);
            if sandbox.is_some_and(|s| s.tags.instance != instance) {
                return Err(format!("{id} of another instance was ended"));
            }
            if let Some(row) = by_sandbox.get(id.as_str())
                && row.desired != Desired::Terminated
            {
                return Err(format!("{id} ({}) was ended although it is wanted", row.id));
            }
            self.stopped.insert(id);
        }
        Ok(())
    }
}

/// The fake's inspections tell the truth or fail: so nothing alive is ever recorded as terminated.
fn no_living_one_is_buried(world: &World, by_sandbox: &HashMap<&str, &Tracked>) -> Result<(), String> {
    for sandbox in world.sandboxes.iter().filter(|s| s.ended_at.is_none() && !s.removed) {
        if let Some(row) = by_sandbox.get(sandbox.sandbox_id.as_str())
            && !row.state.is_active()
        {
            return Err(format!("{} is alive and {} is recorded as terminated", sandbox.sandbox_id, row.id));
        }
    }
    Ok(())
}

/// After everything has healed: what was to end has ended, and the record agrees with the world.
pub(crate) fn settled(world: &World, rows: &[Tracked], now: Timestamp) -> Result<(), String> {
    let alive: HashSet<&str> = world.alive(now).map(|s| s.sandbox_id.as_str()).collect();
    // What another engine has cannot be settled while that engine is away.
    for row in rows.iter().filter(|r| r.provider_identity.as_deref().is_none_or(|i| i == world.identity)) {
        let here = row.sandbox_id.as_deref().is_some_and(|s| alive.contains(s));
        // A policy may have asked for its end only just now.
        let asked_long_ago = row.desired_at.is_none_or(|at| seconds_between(at, now).abs() > 60.0);
        if row.desired == Desired::Terminated && asked_long_ago && row.state != ContainerState::Terminated {
            return Err(format!("{} should be terminated and is {}: {row:?}", row.id, row.state));
        }
        if here != (row.state != ContainerState::Terminated) {
            let sandbox = if here { "alive" } else { "gone" };
            return Err(format!("{} is {} and its sandbox is {sandbox}: {row:?}", row.id, row.state));
        }
    }
    Ok(())
}
