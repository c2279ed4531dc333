//! The registry as it was: the history folded up to a moment (contract 9). It owns what an event must keep so that
//! this is exact, and refuses to guess: what the history does not tell is left empty.
//!
//! Three things change a container, each told by its own events: the reconciler's columns (the event keeps them
//! as [`Recorded`]), its health, and what is wanted of it. Retention takes the oldest events away, so of a
//! container that is older than the horizon the first event *after* the moment says how it was before; and when
//! nothing has changed since, it was as its row is now.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::ContainerView;
use crate::container::Container;
use crate::cost::Prices;
use crate::event::{Event, EventType, NewEvent};
use crate::reconcile::Observed;
use crate::sandbox::Resources;
use crate::state::{ContainerState, CostSource, Desired, Health, TerminationReason};
use crate::time::seconds_between;

/// In the details of an event: the reconciler's columns after the change that it tells of.
pub const RECORD: &str = "record";

/// What an event keeps of the row that it changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminated_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<TerminationReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_confirmed_at: Option<Timestamp>,
    /// US dollars, counted up to `cost_at`.
    pub cost_usd: f64,
    pub cost_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_hour_usd: Option<f64>,
    pub cost_source: CostSource,
}

impl Recorded {
    /// `cost_at` is the moment up to which its cost was counted.
    pub fn of(observed: &Observed, cost_at: Timestamp) -> Self {
        Self {
            sandbox_id: observed.sandbox_id.clone(),
            started_at: observed.started_at,
            terminated_at: observed.terminated_at,
            exit_code: observed.exit_code,
            reason: observed.termination_reason,
            stop_confirmed_at: observed.stop_confirmed_at,
            cost_usd: observed.cost_accrued_usd,
            cost_at,
            cost_per_hour_usd: observed.cost_rate_per_hour,
            cost_source: observed.cost_source,
        }
    }

    /// Of an intent: nothing has run yet.
    pub fn intent(cost_per_hour_usd: Option<f64>, now: Timestamp) -> Self {
        Self {
            sandbox_id: None,
            started_at: None,
            terminated_at: None,
            exit_code: None,
            reason: None,
            stop_confirmed_at: None,
            cost_usd: 0.0,
            cost_at: now,
            cost_per_hour_usd,
            cost_source: CostSource::Estimated,
        }
    }

    fn in_event(event: &Event) -> Option<Self> {
        event.details.get(RECORD).and_then(|kept| Self::deserialize(kept).ok())
    }

    /// What had been spent at a moment, given whether it was still counting then.
    fn cost_at(&self, at: Timestamp, counting: bool) -> f64 {
        let (Some(started), Some(rate)) = (self.started_at, self.cost_per_hour_usd) else {
            return self.cost_usd;
        };
        if !counting || self.cost_source == CostSource::Reported {
            return self.cost_usd;
        }
        // Nothing is spent before the start, whatever the clock was set to meanwhile.
        let more = seconds_between(self.cost_at.max(started), at.max(started));
        (self.cost_usd + rate * more / 3600.0).max(0.0)
    }
}

impl NewEvent {
    /// Keeps the row as this change leaves it.
    pub fn recording(mut self, record: &Recorded) -> Self {
        self.record(record);
        self
    }

    pub fn record(&mut self, record: &Recorded) {
        if let (Some(details), Ok(kept)) = (self.details.as_object_mut(), serde_json::to_value(record)) {
            details.insert(RECORD.to_owned(), kept);
        }
    }
}

/// Which of a container's three stories an event belongs to.
fn tells_state(kind: EventType) -> bool {
    use EventType::*;
    matches!(
        kind,
        ContainerCreated
            | ContainerStarted
            | ContainerAdopted
            | ContainerStopped
            | ContainerTerminated
            | ContainerSuspected
            | OrphanDetected
            | StateDriftCorrected
            | CreateFailed
            | CreateLost
    )
}

fn tells_health(kind: EventType) -> bool {
    use EventType::*;
    matches!(
        kind,
        ContainerHealthy | ContainerDegraded | ContainerUnhealthy | ContainerDead | ContainerRecovered
    )
}

/// Who wanted it gone, and since when.
#[derive(Debug, Clone, PartialEq)]
struct Wish {
    at: Timestamp,
    by: Option<String>,
    reason: Option<TerminationReason>,
    grace_seconds: Option<i64>,
}

/// What the events up to the moment say of one container.
#[derive(Debug, Clone, Default, PartialEq)]
struct Told {
    state: Option<ContainerState>,
    health: Option<Health>,
    wish: Option<Wish>,
    record: Option<Recorded>,
    seen_at: Option<Timestamp>,
    sent_at: Option<Timestamp>,
    attempts: i64,
    error: Option<String>,
}

/// What the first events after the moment say of how it was before them.
#[derive(Debug, Clone, Default, PartialEq)]
struct Later {
    /// It was not there yet.
    born: bool,
    state: Option<ContainerState>,
    health: Option<Health>,
    wished: bool,
}

/// The history of all containers around one moment. Feed it the events in order, first those up to the moment
/// with [`Self::tell`], then the others with [`Self::tell_later`].
#[derive(Debug, Default)]
pub struct History {
    told: BTreeMap<String, Told>,
    later: BTreeMap<String, Later>,
}

impl History {
    pub fn tell(&mut self, event: &Event) {
        let Some(id) = &event.container_id else { return };
        let told = self.told.entry(id.clone()).or_default();
        let new = event.new_value.as_deref();
        if tells_state(event.event_type) {
            told.state = new.and_then(|word| word.parse().ok()).or(told.state);
        } else if tells_health(event.event_type) {
            told.health = new.and_then(|word| word.parse().ok()).or(told.health);
        }
        match event.event_type {
            EventType::StopRequested => {
                let text = |key: &str| event.details.get(key).and_then(|v| v.as_str());
                told.wish = Some(Wish {
                    at: event.timestamp,
                    by: text("by").map(str::to_owned),
                    reason: text("reason").and_then(|word| word.parse().ok()),
                    grace_seconds: event.details.get("grace_seconds").and_then(serde_json::Value::as_i64),
                });
            }
            EventType::StopSeen => told.seen_at = told.seen_at.or(Some(event.timestamp)),
            EventType::StopSent => {
                told.sent_at = told.sent_at.or(Some(event.timestamp));
                told.error = None;
            }
            EventType::StopFailed => told.error = event.message.clone(),
            _ => {}
        }
        if let Some(attempt) = event.details.get("attempt").and_then(serde_json::Value::as_i64)
            && matches!(event.event_type, EventType::StopSeen | EventType::StopSent | EventType::StopFailed)
        {
            told.attempts = attempt;
        }
        if let Some(record) = Recorded::in_event(event) {
            told.record = Some(record);
        }
    }

    pub fn tell_later(&mut self, event: &Event) {
        let Some(id) = &event.container_id else { return };
        let later = self.later.entry(id.clone()).or_default();
        let old = event.old_value.as_deref();
        if tells_state(event.event_type) && later.state.is_none() && !later.born {
            later.state = old.and_then(|word| word.parse().ok());
            // `none` and `foreign` are no states: it had no row.
            later.born = later.state.is_none();
        } else if tells_health(event.event_type) && later.health.is_none() {
            later.health = old.and_then(|word| word.parse().ok());
        }
        later.wished |= event.event_type == EventType::StopRequested;
    }

    /// Every row that there was at the moment, as it was then. `rows` are those of now, for what never changes.
    pub fn registry(&self, rows: Vec<Container>, at: Timestamp, prices: &Prices) -> Vec<ContainerView> {
        rows.into_iter().filter_map(|row| self.one(row, at, prices)).collect()
    }

    fn one(&self, row: Container, at: Timestamp, prices: &Prices) -> Option<ContainerView> {
        let none = Told::default();
        let told = self.told.get(row.id.as_str()).unwrap_or(&none);
        let later = self.later.get(row.id.as_str()).cloned().unwrap_or_default();
        if later.born && told.state.is_none() {
            return None;
        }
        let state = told.state.or(later.state).unwrap_or(row.state);
        let health = told.health.or(later.health).unwrap_or(row.health_status);
        let counting =
            matches!(state, ContainerState::Running | ContainerState::Orphaned | ContainerState::Unknown);
        let mut then = Container {
            state,
            health_status: health,
            // Not in the history.
            consecutive_failures: 0,
            last_heartbeat_at: None,
            cpu_percent: None,
            memory_percent: None,
            memory_used_mb: None,
            disk_percent: None,
            uptime_seconds: None,
            suspected_at: row.suspected_at.filter(|since| *since <= at),
            ..row
        };
        wanted(&mut then, told, later.wished);
        match &told.record {
            Some(record) => {
                then.sandbox_id = record.sandbox_id.clone();
                then.started_at = record.started_at;
                then.terminated_at = record.terminated_at;
                then.exit_code = record.exit_code;
                then.termination_reason = record.reason;
                then.stop_confirmed_at = record.stop_confirmed_at;
                then.cost_rate_per_hour = record.cost_per_hour_usd;
                then.cost_source = record.cost_source;
                then.cost_accrued_usd = record.cost_at(at, counting);
            }
            None => from_prices(&mut then, at, counting, prices),
        }
        then.updated_at = at;
        Some(ContainerView {
            sandbox: then.sandbox_id.clone(),
            health: then.health_status,
            task: then.task_id.clone(),
            task_title: None,
            age: seconds_between(then.created_at, at).max(0.0) as i64,
            cost: then.cost_accrued_usd,
            suspected: then.state == ContainerState::Unknown,
            record: then,
        })
    }
}

fn wanted(then: &mut Container, told: &Told, wished_later: bool) {
    match &told.wish {
        Some(wish) => {
            then.desired = Desired::Terminated;
            then.desired_at = Some(wish.at);
            then.desired_by = wish.by.clone();
            then.desired_reason = wish.reason;
            then.stop_grace_seconds = wish.grace_seconds;
        }
        None if wished_later || then.desired == Desired::Running => {
            then.desired = Desired::Running;
            then.desired_at = None;
            then.desired_by = None;
            then.desired_reason = None;
            then.stop_grace_seconds = None;
        }
        // It was wanted before the history begins.
        None => {}
    }
    then.stop_seen_at = told.seen_at;
    then.stopping_at = told.sent_at;
    then.stop_attempts = told.attempts;
    then.stop_attempted_at = None;
    then.stop_error = told.error.clone();
}

/// Of a row whose last change is older than the history: what never changed since, at the prices of then.
fn from_prices(then: &mut Container, at: Timestamp, counting: bool, prices: &Prices) {
    if then.state == ContainerState::Created {
        then.started_at = None;
        then.cost_accrued_usd = 0.0;
    } else if !counting {
        return;
    }
    then.terminated_at = None;
    then.exit_code = None;
    then.termination_reason = None;
    then.stop_confirmed_at = None;
    if let (CostSource::Estimated, Some(started)) = (then.cost_source, then.started_at) {
        let resources = Resources {
            cpu_cores: then.cpu_cores,
            memory_mb: then.memory_mb,
            gpu_type: then.gpu_type.clone(),
        };
        then.cost_accrued_usd = prices.cost(&then.provider, &resources, started, at);
        then.cost_rate_per_hour = Some(prices.rate_per_hour(&then.provider, &resources, at));
    }
}

/// Where a history in the order of its ids divides into what had happened by then and what came after: behind the
/// last event that is not later. A clock that was set back makes a moment come twice; the last time counts.
pub fn divide(events: &[Event], at: Timestamp) -> (&[Event], &[Event]) {
    let happened = events.iter().rposition(|event| event.timestamp <= at).map_or(0, |last| last + 1);
    events.split_at(happened)
}

/// The whole of it over a history in memory.
pub fn rebuild(rows: Vec<Container>, events: &[Event], at: Timestamp, prices: &Prices) -> Vec<ContainerView> {
    let (before, after) = divide(events, at);
    let mut history = History::default();
    before.iter().for_each(|event| history.tell(event));
    after.iter().for_each(|event| history.tell_later(event));
    history.registry(rows, at, prices)
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
