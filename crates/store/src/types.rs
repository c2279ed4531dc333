//! What the verbs take and give that is not already a type of the core.

use std::collections::BTreeMap;

use jiff::Timestamp;
use parhelia_core::alert::DeliveryState;
use parhelia_core::container::Container;
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::ids::{ContainerId, DeliveryId};
use parhelia_core::job::api::CancelReceipts;
use parhelia_core::job::{Job, JobActivity, JobStatus};
use parhelia_core::reconcile::{Counts, Discovered, Waiting};
use parhelia_core::sandbox::{Resources, SandboxSpec};
use parhelia_core::state::{ContainerState, CostSource, Health, TerminationReason, WorkerState};
use parhelia_core::word_enum;
use uuid::Uuid;

/// Proof that a loop carries into each of its writes: of leadership, or (see [`Fence::of_owner`]) of being the
/// server of its home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    pub owner_id: String,
    pub epoch: i64,
}

impl Fence {
    /// No election gives this epoch.
    const OWNER: i64 = -1;

    /// The fence of a server that reconciles what only its own home can see, whoever leads. It holds until the
    /// owner has ended or the next server of its home has ended it.
    pub fn of_owner(owner_id: impl Into<String>) -> Self {
        Self { owner_id: owner_id.into(), epoch: Self::OWNER }
    }

    pub(crate) fn is_owners(&self) -> bool {
        self.epoch == Self::OWNER
    }
}

/// One running server process; a row of `owners`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub id: String,
    pub home_id: String,
    pub host: String,
    pub boot_id: String,
    pub epoch: i64,
    pub started_at: Timestamp,
    pub lease_until: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub version: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leadership {
    pub owner_id: String,
    pub epoch: i64,
    pub lease_until: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    pub id: String,
    pub is_self: bool,
    /// When this store first knew of it.
    pub created_at: Timestamp,
    pub adopted_at: Option<Timestamp>,
    pub adopted_by: Option<String>,
    /// How many of its sandboxes are alive here as foreign.
    pub foreign_alive: i64,
}

/// The job of a container that is about to get its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    pub id: Uuid,
    pub name: Option<String>,
    pub engine: String,
    pub origin_id: Option<Uuid>,
    pub agent_session: Option<String>,
    pub timeout_seconds: Option<i64>,
    pub interactive: bool,
    pub created_by: String,
}

/// Which jobs, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Empty: all.
    pub statuses: Vec<JobStatus>,
    pub engine: Option<String>,
    pub prefix: Option<String>,
    pub before: Option<(Timestamp, Uuid)>,
    pub limit: Option<i64>,
}

/// Which jobs to show, newest first. Everything narrows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShownFilter {
    pub statuses: Vec<JobStatus>,
    pub engine: Option<String>,
    /// Exact.
    pub name: Option<String>,
    pub activity: Option<JobActivity>,
    /// Not over, or over no earlier than this.
    pub over_since: Option<Timestamp>,
    pub id: Option<Uuid>,
    /// Only those whose directory has not gone.
    pub uncleaned: bool,
    pub before: Option<(Timestamp, Uuid)>,
    pub limit: Option<i64>,
}

/// A job with what its container knows.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownJob {
    pub job: Job,
    pub state: ContainerState,
    pub command: Vec<String>,
    pub provider: String,
    pub termination_reason: Option<TerminationReason>,
    /// As the reconciler saw it.
    pub exit_code: Option<i64>,
    /// Once it is wanted gone.
    pub receipts: Option<CancelReceipts>,
}

/// How many jobs have one status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobCount {
    pub status: JobStatus,
    pub jobs: i64,
    pub waiting: i64,
}

/// A container about to get its row. Columns that are not here begin at their defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct NewContainer {
    pub id: ContainerId,
    /// The job that it runs, if it is to be one.
    pub job: Option<NewJob>,
    pub provider: String,
    pub provider_identity: Option<String>,
    pub sandbox_id: Option<String>,
    pub instance_id: String,
    pub name: Option<String>,
    pub worker_id: Option<String>,
    pub task_id: Option<String>,
    /// The title of a task that is not known yet.
    pub task_title: Option<String>,
    pub session_id: Option<String>,
    pub state: ContainerState,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub terminated_at: Option<Timestamp>,
    pub exit_code: Option<i64>,
    pub termination_reason: Option<TerminationReason>,
    pub suspected_at: Option<Timestamp>,
    pub stop_confirmed_at: Option<Timestamp>,
    pub create_attempts: i64,
    pub create_attempted_at: Option<Timestamp>,
    pub resources: Resources,
    pub region: Option<String>,
    pub cost_accrued_usd: f64,
    pub cost_rate_per_hour: Option<f64>,
    pub cost_source: CostSource,
    pub image: Option<String>,
    pub command: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub keep: bool,
    pub spec: Option<SandboxSpec>,
    pub metadata: serde_json::Value,
}

impl NewContainer {
    /// An intent of ours: to be created by the reconciler from its specification.
    pub fn intent(provider: impl Into<String>, spec: SandboxSpec, created_at: Timestamp) -> Self {
        Self {
            id: spec.container_id.clone(),
            job: None,
            provider: provider.into(),
            provider_identity: None,
            sandbox_id: None,
            instance_id: spec.instance_id.clone(),
            name: spec.name.clone(),
            worker_id: None,
            task_id: spec.task_id.clone(),
            task_title: None,
            session_id: spec.session_id.clone(),
            state: ContainerState::Created,
            created_at,
            started_at: None,
            terminated_at: None,
            exit_code: None,
            termination_reason: None,
            suspected_at: None,
            stop_confirmed_at: None,
            create_attempts: 0,
            create_attempted_at: None,
            resources: spec.resources.clone(),
            region: None,
            cost_accrued_usd: 0.0,
            cost_rate_per_hour: None,
            cost_source: CostSource::Estimated,
            image: spec.image.clone(),
            command: spec.command.clone(),
            labels: spec.labels.clone(),
            keep: false,
            spec: Some(spec),
            metadata: serde_json::json!({}),
        }
    }

    /// A sandbox that the provider showed and that had no row. `id` is the one in its tag, or a new one when
    /// another row has that.
    pub fn found(id: ContainerId, provider: impl Into<String>, found: &Discovered) -> Self {
        let (sandbox, observed) = (&found.sandbox, &found.observed);
        Self {
            id,
            job: None,
            provider: provider.into(),
            provider_identity: observed.provider_identity.clone(),
            sandbox_id: Some(sandbox.sandbox_id.clone()),
            instance_id: sandbox.tags.instance.clone(),
            name: sandbox.name.clone(),
            worker_id: None,
            task_id: sandbox.tags.task.clone(),
            task_title: None,
            session_id: None,
            state: observed.state,
            created_at: found.created_at,
            started_at: observed.started_at,
            terminated_at: observed.terminated_at,
            exit_code: observed.exit_code,
            termination_reason: observed.termination_reason,
            suspected_at: Some(found.suspected_at),
            stop_confirmed_at: observed.stop_confirmed_at,
            create_attempts: 0,
            create_attempted_at: None,
            resources: observed.resources.clone(),
            region: observed.region.clone(),
            cost_accrued_usd: observed.cost_accrued_usd,
            cost_rate_per_hour: observed.cost_rate_per_hour,
            cost_source: observed.cost_source,
            image: sandbox.image.clone(),
            command: sandbox.command.clone(),
            labels: sandbox.labels.clone(),
            keep: false,
            spec: None,
            metadata: serde_json::json!({}),
        }
    }
}

/// That a container should end.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish<'w> {
    pub by: &'w str,
    pub reason: TerminationReason,
    pub grace_seconds: i64,
    /// Told if it is the first.
    pub event: NewEvent,
}

/// What somebody who ends a container for its silence knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    pub heard: Option<Timestamp>,
    pub health: Health,
}

/// What a request to end a container came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DesireOutcome {
    /// It was not wanted gone before, or is now wanted gone sooner.
    Set,
    AlreadyWanted,
    AlreadyTerminated,
    NotFound,
}

/// Which containers to list. Empty means all; every field narrows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerFilter {
    pub states: Vec<ContainerState>,
    pub health: Vec<Health>,
    pub provider: Option<String>,
    pub task_id: Option<String>,
    pub session_id: Option<String>,
    pub active_only: bool,
    /// Orphans, and what is suspected of being one.
    pub orphans: bool,
    /// With or without the `c-`.
    pub id_prefix: Option<String>,
    /// Counted from the newest: the first page holds the newest ones.
    pub limit: Option<i64>,
    /// Only what was created before this one. Neither of the two ever changes, so page after page shows every
    /// container once, whatever else happens to them meanwhile.
    pub before: Option<(Timestamp, ContainerId)>,
}

/// A page of containers, newest last.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerPage {
    pub rows: Vec<Container>,
    /// The place `before` which the next page begins; `None`: there is none.
    pub next: Option<(Timestamp, ContainerId)>,
}

/// What the totals of a list need of each container.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    pub provider: String,
    pub state: ContainerState,
    pub started_at: Option<Timestamp>,
    pub resources: Resources,
    pub cost_accrued_usd: f64,
    pub cost_rate_per_hour: Option<f64>,
    pub cost_source: CostSource,
    pub labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContainerStats {
    pub total: i64,
    pub by_state: BTreeMap<ContainerState, i64>,
    /// Of those that are not terminated: a terminated one keeps its last health, which says nothing now.
    pub by_health: BTreeMap<Health, i64>,
    pub total_cost_usd: f64,
    pub oldest_running: Option<OldestRunning>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldestRunning {
    pub id: ContainerId,
    pub started_at: Timestamp,
}

/// Which events to read. With `after_id` and oldest first it is the tail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    pub container_id: Option<String>,
    pub task_id: Option<String>,
    pub session_id: Option<String>,
    pub event_type: Option<EventType>,
    pub source: Option<Source>,
    /// At or after.
    pub since: Option<Timestamp>,
    /// Before.
    pub until: Option<Timestamp>,
    pub after_id: Option<i64>,
    /// The seed's 100 when absent.
    pub limit: Option<i64>,
    pub newest_first: bool,
}

/// A row of `tasks`.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    pub id: String,
    pub title: String,
    pub state: String,
    pub session_id: Option<String>,
    pub attempt: i64,
    pub retry_count: i64,
    pub crash_count: i64,
    pub failure_reason: Option<String>,
    pub metadata: serde_json::Value,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A row of `workers`.
#[derive(Debug, Clone, PartialEq)]
pub struct Worker {
    pub id: String,
    pub task_id: Option<String>,
    pub state: WorkerState,
    pub container_id: Option<ContainerId>,
    pub session_id: Option<String>,
    pub last_heartbeat_at: Option<Timestamp>,
    pub health_status: Health,
    pub terminated_at: Option<Timestamp>,
    pub exit_code: Option<i64>,
    pub metadata: serde_json::Value,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A sandbox of another instance, as it was last seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Foreign {
    pub provider: String,
    pub sandbox_id: String,
    pub provider_identity: String,
    pub instance_id: String,
    pub container_id: ContainerId,
    pub task_id: Option<String>,
    pub name: Option<String>,
    pub created_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub resources: Resources,
    pub region: Option<String>,
    pub command: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub first_seen_at: Timestamp,
    pub last_seen_at: Timestamp,
    pub gone_at: Option<Timestamp>,
}

word_enum!(
    /// How a pass of the reconciler ended.
    CycleOutcome {
        Ok = "ok",
        /// The provider did not answer; nothing was concluded.
        Unreachable = "unreachable",
        /// It broke off on our side.
        Failed = "failed",
    }
);

/// A pass of the reconciler over one provider, about to be recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCycle {
    /// Why it ran: `timer`, `request`, `start`, …
    pub trigger: String,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    pub duration_ms: i64,
    pub outcome: CycleOutcome,
    pub error: Option<String>,
    pub counts: Counts,
    pub actions: i64,
    pub failures: i64,
    pub waiting: Vec<Waiting>,
    pub next_at: Option<Timestamp>,
}

/// A row of `reconcile_cycles`.
#[derive(Debug, Clone, PartialEq)]
pub struct Cycle {
    pub id: i64,
    pub provider: String,
    pub trigger: String,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    pub duration_ms: i64,
    pub outcome: CycleOutcome,
    pub error: Option<String>,
    pub counts: Counts,
    pub actions: i64,
    pub failures: i64,
    pub waiting: Vec<Waiting>,
    pub next_at: Option<Timestamp>,
}

/// What one bounded step of retention did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionReport {
    /// Raw heartbeats folded and deleted.
    pub folded: i64,
    /// Hours written or added to.
    pub hours: i64,
    /// There may be more: as many as allowed were taken.
    pub more: bool,
}

/// A reader of the history goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderMove {
    pub reader: String,
    /// Where it was believed to be.
    pub from: i64,
    pub to: i64,
}

/// An event that an alert is to be told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDelivery {
    pub id: DeliveryId,
    pub alert: String,
    pub event_id: i64,
}

/// What became of an attempt to deliver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempted {
    pub state: DeliveryState,
    /// The receiver's, if it answered.
    pub status: Option<i64>,
    pub error: Option<String>,
    /// For one that is pending again.
    pub next_attempt_at: Option<Timestamp>,
}
