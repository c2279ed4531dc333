//! Who is to end, because who wanted it: each wish is judged by what it claims to be about. And what people were promised.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use parhelia_core::config::Config;
use parhelia_core::container::Container;
use parhelia_core::event::{Event, Source};
use parhelia_core::ids::ContainerId;
use parhelia_core::reconcile::Tracked;
use parhelia_core::state::{ContainerState, Desired, Health};
use parhelia_core::time::seconds_between;

use crate::happenings::PERSON;
use crate::invariants::{Arrival, Moment};

#[derive(Debug)]
pub(crate) struct Wishes {
    ends_orphans: bool,
    ends_stale: bool,
    max_silent_seconds: f64,
    /// When the clock was set, and what it had shown until then.
    settings: Vec<(Duration, Timestamp)>,
    /// Whose end was ever asked for, as the events tell it.
    told: HashSet<String>,
    /// Whose end people have asked for, whatever they were answered.
    asked: HashSet<String>,
    /// What people were told is done; of what runs, those that were not looked for yet.
    fresh: Vec<ContainerId>,
    runs: BTreeSet<ContainerId>,
    ends: BTreeSet<ContainerId>,
}

impl Wishes {
    pub(crate) fn new(config: &Config) -> Self {
        let policies = &config.reconciler;
        Self {
            ends_orphans: policies.auto_terminate_orphans,
            ends_stale: policies.auto_terminate_stale,
            max_silent_seconds: policies.max_silent_hours * 3600.0,
            settings: Vec::new(),
            told: HashSet::new(),
            asked: HashSet::new(),
            fresh: Vec::new(),
            runs: BTreeSet::new(),
            ends: BTreeSet::new(),
        }
    }

    pub(crate) fn clock_is_set(&mut self, at: Duration, before: Timestamp) {
        self.settings.push((at, before));
    }

    pub(crate) fn ask_end(&mut self, id: &str) {
        self.asked.insert(id.to_owned());
    }

    pub(crate) fn acknowledged_run(&mut self, id: ContainerId) {
        self.fresh.push(id);
    }

    pub(crate) fn acknowledged_end(&mut self, id: ContainerId) {
        self.ends.insert(id);
    }

    pub(crate) fn were_told_of(&self, id: &ContainerId) -> bool {
        self.told.contains(id.as_str())
    }

    /// A request to end somebody. `row` and `state`: how it was before.
    pub(crate) fn hear(
        &mut self,
        event: &Event,
        row: Option<&Tracked>,
        state: Option<ContainerState>,
        arrival: Option<Arrival>,
        now: &Moment,
    ) -> Result<(), String> {
        let Some(id) = event.container_id.clone() else { return Ok(()) };
        let reason = event.details["reason"].as_str().unwrap_or_default();
        // What belongs to a session ends with it, in the name of whoever cancels that.
        let by_hand = event.details["by"].as_str() == Some(PERSON) && event.task_id.is_none();
        if by_hand && reason == "manual" && !self.asked.contains(&id) {
            return Err(format!("{id} is to end as a person wished, and nobody did"));
        }
        self.told.insert(id.clone());
        if event.source != Source::Reconciler {
            return Ok(());
        }
        let Some(row) = row else { return Err(format!("{id} is to end and has no record")) };
        let wrong = match reason {
            "orphan_cleanup" if !self.ends_orphans => "the end of orphans is off".to_owned(),
            "orphan_cleanup" if state != Some(ContainerState::Orphaned) => {
                format!("it is {}", state.map_or("nothing", ContainerState::as_str))
            }
            "stale" if !self.ends_stale => "the end of the stale is off".to_owned(),
            "stale" | "silent" if row.keep => "it is to be kept".to_owned(),
            "stale" if !matches!(row.health, Health::Unhealthy | Health::Dead) => {
                format!("it is called {}", row.health)
            }
            "silent" if row.health != Health::Dead && state != Some(ContainerState::Created) => {
                format!("it is called {}", row.health)
            }
            "silent" => {
                let silent = self.longest_silence(row, arrival, now);
                if silent >= self.max_silent_seconds {
                    return Ok(());
                }
                format!("it was silent for {silent}s")
            }
            "orphan_cleanup" | "stale" => return Ok(()),
            _ => "that is no reason of the reconciler".to_owned(),
        };
        Err(format!("{id} is to end as '{reason}', and {wrong}"))
    }

    /// By the wall clock, as silences of hours are counted: whoever decided may have read it at any moment since the last
    /// heartbeat, and it may have been set back after that.
    fn longest_silence(&self, row: &Tracked, arrival: Option<Arrival>, now: &Moment) -> f64 {
        let since = arrival.map(|arrival| arrival.at).unwrap_or_default();
        let shown = self.settings.iter().filter(|(at, _)| *at >= since).map(|(_, wall)| *wall);
        let latest = shown.fold(now.wall, Timestamp::max);
        let known = [arrival.map(|a| a.wall), row.started_at, row.suspected_at, row.create_attempted_at];
        known.into_iter().flatten().max().map_or(0.0, |heard| seconds_between(heard, latest))
    }

    /// What was acknowledged is in the record from then on.
    pub(crate) fn are_kept(&mut self, rows: &BTreeMap<ContainerId, Tracked>) -> Result<(), String> {
        for id in self.fresh.drain(..) {
            if !rows.contains_key(&id) {
                return Err(broken_run(&id));
            }
            self.runs.insert(id);
        }
        match rows.values().find(|row| row.desired != Desired::Terminated && self.ends.contains(&row.id)) {
            Some(row) => Err(broken_end(&row.id)),
            None => Ok(()),
        }
    }

    /// The same in the end, of everything that there ever was.
    pub(crate) fn were_kept(&self, rows: &[Container]) -> Result<(), String> {
        let there: HashSet<&ContainerId> = rows.iter().map(|row| &row.id).collect();
        let gone = self.runs.iter().find(|id| !there.contains(id));
        let lives = rows.iter().find(|row| row.desired != Desired::Terminated && self.ends.contains(&row.id));
        match (gone, lives) {
            (Some(id), _) => Err(broken_run(id)),
            (None, Some(row)) => Err(broken_end(&row.id)),
            (None, None) => Ok(()),
        }
    }
}

fn broken_run(id: &ContainerId) -> String {
    format!("{id} was accepted, and there is no record of it")
}

fn broken_end(id: &ContainerId) -> String {
    format!("the end of {id} was accepted, and it is still wanted")
}
