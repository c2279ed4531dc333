//! The reconciler's decision: what a provider shows, beside what we recorded, gives a plan.
//!
//! `plan` is pure and synchronous. It owns every choice: the executor performs the actions one by one and
//! chooses nothing. It refuses to conclude anything from silence: a failed listing, a partial listing, a
//! listing by another identity and an unanswered inspection all change nothing.

mod missing;
mod plan;
mod removal;
mod row;
mod stop;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::config;
use crate::cost::Prices;
use crate::event::NewEvent;
use crate::ids::ContainerId;
use crate::sandbox::{Listing, Resources, Sandbox};
use crate::state::{ContainerState, CostSource, Desired, Health, TerminationReason};

pub use plan::plan;
pub use removal::{Removals, removals};

/// The columns of a container that reconciling reads.
#[derive(Debug, Clone, PartialEq)]
pub struct Tracked {
    pub id: ContainerId,
    pub provider_identity: Option<String>,
    pub sandbox_id: Option<String>,
    pub task_id: Option<String>,
    pub state: ContainerState,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub terminated_at: Option<Timestamp>,
    pub exit_code: Option<i64>,
    pub termination_reason: Option<TerminationReason>,
    pub suspected_at: Option<Timestamp>,
    pub desired: Desired,
    pub desired_at: Option<Timestamp>,
    pub desired_reason: Option<TerminationReason>,
    pub stop_grace_seconds: Option<i64>,
    pub stop_seen_at: Option<Timestamp>,
    /// When the provider took the request: its grace runs from here.
    pub stopping_at: Option<Timestamp>,
    pub stop_confirmed_at: Option<Timestamp>,
    pub stop_attempts: i64,
    pub stop_attempted_at: Option<Timestamp>,
    pub stop_error: Option<String>,
    pub create_attempts: i64,
    pub create_attempted_at: Option<Timestamp>,
    pub last_heartbeat_at: Option<Timestamp>,
    pub silent_alerted_at: Option<Timestamp>,
    pub health: Health,
    pub keep: bool,
    pub region: Option<String>,
    pub resources: Resources,
    pub cost_accrued_usd: f64,
    pub cost_rate_per_hour: Option<f64>,
    pub cost_source: CostSource,
}

/// The columns that the reconciler owns, as it would have them. Only the reconciler can build one.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    pub state: ContainerState,
    pub provider_identity: Option<String>,
    pub sandbox_id: Option<String>,
    pub started_at: Option<Timestamp>,
    pub terminated_at: Option<Timestamp>,
    pub exit_code: Option<i64>,
    pub termination_reason: Option<TerminationReason>,
    pub stop_confirmed_at: Option<Timestamp>,
    pub region: Option<String>,
    pub resources: Resources,
    pub cost_accrued_usd: f64,
    pub cost_rate_per_hour: Option<f64>,
    pub cost_source: CostSource,
}

impl Observed {
    pub fn of(row: &Tracked) -> Self {
        Self {
            state: row.state,
            provider_identity: row.provider_identity.clone(),
            sandbox_id: row.sandbox_id.clone(),
            started_at: row.started_at,
            terminated_at: row.terminated_at,
            exit_code: row.exit_code,
            termination_reason: row.termination_reason,
            stop_confirmed_at: row.stop_confirmed_at,
            region: row.region.clone(),
            resources: row.resources.clone(),
            cost_accrued_usd: row.cost_accrued_usd,
            cost_rate_per_hour: row.cost_rate_per_hour,
            cost_source: row.cost_source,
        }
    }
}

/// What the provider answered to the listing.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Unreachable { error: String },
    Listed(Listing),
}

/// What it answered about one sandbox, asked by id.
#[derive(Debug, Clone, PartialEq)]
pub enum Inspected {
    Absent,
    Present(Box<Sandbox>),
    Unknown {
        why: String,
    },
    /// Many had to be asked about: this one is in one of the next passes.
    NotAsked,
}

/// What the reconciler remembers of a provider between two passes; a row of `providers`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProviderMemory {
    pub identity: Option<String>,
    /// Since when it does not answer.
    pub unreachable_since: Option<Timestamp>,
    /// Since when the breaker is open, how many complete listings have agreed since, and when the last did.
    pub breaker_since: Option<Timestamp>,
    pub breaker_agreed: i64,
    pub breaker_agreed_at: Option<Timestamp>,
}

/// Everything that a decision is made of.
#[derive(Debug, Clone)]
pub struct View<'a> {
    pub provider: &'a str,
    pub create_is_idempotent: bool,
    pub create_settles_seconds: i64,
    /// For how long this observer has known of the newest create of those that were never seen. It counts by itself: a
    /// date that was written before the clock was set says nothing.
    pub unseen_seconds: &'a HashMap<ContainerId, f64>,
    pub answer: &'a Answer,
    /// Every row that is not terminated, and every terminated one whose sandbox or tag the listing shows
    /// without an end.
    pub rows: &'a [Tracked],
    pub inspected: &'a HashMap<ContainerId, Inspected>,
    pub memory: &'a ProviderMemory,
    /// The instances whose sandboxes are ours: this one, and those that were adopted.
    pub ours: &'a BTreeSet<String>,
    /// Foreign sandboxes that are recorded already, and alive at the last look.
    pub known_foreign: &'a HashSet<String>,
    pub settings: &'a config::Reconciler,
    pub prices: &'a Prices,
    /// How long this observer has been watching: inside the resumption window silence condemns nobody.
    pub observer_seconds: f64,
    pub resumption_seconds: f64,
}

/// A sandbox that gets a row at first sight.
#[derive(Debug, Clone, PartialEq)]
pub struct Discovered {
    /// Our id from its tag; `None` when another row has that id, and a new one must be made.
    pub id: Option<ContainerId>,
    pub sandbox: Sandbox,
    pub observed: Observed,
    pub created_at: Timestamp,
    pub suspected_at: Timestamp,
}

/// One thing to do. Each is recorded in its own transaction; a failed one is planned again next time.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Write what was observed, with its events. Refused when the state is no longer `expect`.
    Record { id: ContainerId, expect: ContainerState, observed: Observed, events: Vec<NewEvent> },
    /// Give a sandbox without a record one.
    Register { found: Box<Discovered>, events: Vec<NewEvent> },
    /// Show a sandbox of another instance.
    Foreign { sandbox: Box<Sandbox>, identity: String, event: Option<NewEvent> },
    /// A foreign sandbox has ended.
    ForeignGone { sandbox_id: String },
    /// A policy wants it gone: set the desired state, as a person would.
    Desire { id: ContainerId, reason: TerminationReason, grace_seconds: i64, message: String },
    /// Ask the provider for it: attempt number `attempt`, claimed first.
    Create { id: ContainerId, attempt: i64 },
    /// Close an intent whose outcome nobody knows, and open a successor under a new id.
    CreateLost { id: ContainerId, observed: Observed, event: NewEvent },
    /// Ask the provider to end it. The receipt `seen` is written before the first attempt.
    Stop { id: ContainerId, sandbox_id: Option<String>, grace_seconds: i64, attempt: i64 },
    /// Say that it has been silent for too long.
    AlertSilent { id: ContainerId, event: NewEvent },
    /// Something that concerns the provider as a whole.
    Announce { event: NewEvent },
}

/// Why nothing happens to something that is not yet as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Waiting {
    pub id: Option<ContainerId>,
    pub why: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub sandboxes: i64,
    pub rows: i64,
    pub suspected: i64,
    pub orphans: i64,
    pub adopted: i64,
    pub started: i64,
    pub terminated: i64,
    pub corrections: i64,
    pub foreign: i64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Ask the provider about these by id, add the answers to the view, and plan again.
    pub inspect: Vec<(ContainerId, Option<String>)>,
    pub actions: Vec<Action>,
    pub waiting: Vec<Waiting>,
    /// When to look again at the latest; `None` is the ordinary poll.
    pub wake_at: Option<Timestamp>,
    /// Something is being started or stopped: look again soon.
    pub busy: bool,
    pub memory: ProviderMemory,
    pub counts: Counts,
}

impl Plan {
    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |old| old.min(at)));
    }

    fn wait(&mut self, id: &ContainerId, why: impl Into<String>) {
        self.waiting.push(Waiting { id: Some(id.clone()), why: why.into() });
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Record { id, expect, observed, events } => {
                write!(f, "record {id} {expect} -> {}", observed.state)?;
                if let Some(reason) = observed.termination_reason {
                    write!(f, " ({reason})")?;
                }
                if let Some(code) = observed.exit_code {
                    write!(f, " exit {code}")?;
                }
                let events: Vec<_> = events.iter().map(|e| e.event_type.as_str()).collect();
                write!(f, " [{}]", events.join(", "))
            }
            Action::Register { found, .. } => {
                write!(f, "register {} as {}", found.sandbox.sandbox_id, found.observed.state)?;
                if found.id.is_none() {
                    write!(f, " under a new id")?;
                }
                Ok(())
            }
            Action::Foreign { sandbox, .. } => {
                write!(f, "foreign {} of {}", sandbox.sandbox_id, sandbox.tags.instance)
            }
            Action::ForeignGone { sandbox_id } => write!(f, "foreign {sandbox_id} gone"),
            Action::Desire { id, reason, grace_seconds, .. } => {
                write!(f, "desire {id} terminated ({reason}, grace {grace_seconds}s)")
            }
            Action::Create { id, attempt } => write!(f, "create {id} attempt {attempt}"),
            Action::CreateLost { id, .. } => write!(f, "create lost {id}: successor under a new id"),
            Action::Stop { id, grace_seconds, attempt, .. } => {
                write!(f, "stop {id} grace {grace_seconds}s attempt {attempt}")
            }
            Action::AlertSilent { id, .. } => write!(f, "alert {id} silent"),
            Action::Announce { event } => write!(f, "announce {}", event.event_type),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, _) in &self.inspect {
            writeln!(f, "inspect {id}")?;
        }
        for action in &self.actions {
            writeln!(f, "{action}")?;
        }
        for waiting in &self.waiting {
            match &waiting.id {
                Some(id) => writeln!(f, "waiting {id}: {}", waiting.why)?,
                None => writeln!(f, "waiting: {}", waiting.why)?,
            }
        }
        Ok(())
    }
}
