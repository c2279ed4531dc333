//! The shapes that cross the HTTP API, shared by the server and every client. Field names are the column
//! names; what a screen shows under another name (`sandbox`, `health`, `task`, `age`, `cost`) is there too.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::container::Container;
use crate::event::Event;
use crate::heartbeat::{Heartbeat, HeartbeatHour, Sample};
use crate::ids::ContainerId;
use crate::reconcile::Waiting;
use crate::sandbox::{Resources, VolumeMount};
use crate::word_enum;

pub use crate::why::Why;

/// `POST /api/v1/containers`: one sandbox, please.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    #[serde(default = "process")]
    pub provider: String,
    #[serde(default)]
    pub image: Option<String>,
    #[serde(default)]
    pub name: Option<String>,
    pub command: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub workdir: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub resources: Resources,
    #[serde(default)]
    pub task_id: Option<String>,
    #[serde(default)]
    pub task_title: Option<String>,
    #[serde(default)]
    pub idle_timeout_seconds: Option<u64>,
    /// Never terminate it for silence alone.
    #[serde(default)]
    pub keep: bool,
    #[serde(default)]
    pub tmux_session: Option<String>,
    /// Docker: whose rights it has inside.
    #[serde(default)]
    pub user: Option<String>,
    /// Docker: the network that it is attached to.
    #[serde(default)]
    pub network: Option<String>,
    #[serde(default)]
    pub volumes: Vec<VolumeMount>,
    /// Names; the server resolves them when it makes the sandbox.
    #[serde(default)]
    pub secrets: Vec<String>,
}

fn process() -> String {
    "process".to_owned()
}

/// A container as every door shows it: its record, with the cost counted up to this moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ContainerView {
    #[serde(flatten)]
    pub record: Container,
    pub sandbox: Option<String>,
    pub health: crate::state::Health,
    pub task: Option<String>,
    pub task_title: Option<String>,
    /// Seconds since it was created.
    pub age: i64,
    /// US dollars so far.
    pub cost: f64,
    /// Its first grace is still running: seen, and not yet called an orphan.
    pub suspected: bool,
}

/// `GET /api/v1/containers`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ContainerList {
    pub containers: Vec<ContainerView>,
    /// With the first page only: what goes on from another (`before`) has the same ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<Totals>,
    /// There are older ones: ask for what was created `before` this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ContainerId>,
    /// The moment that was asked for: then everything is as it was, and not as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Timestamp>,
}

/// Over everything that matches, before `limit`; the foreign figures are over everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Totals {
    pub total: i64,
    pub running: i64,
    pub orphaned: i64,
    pub suspected: i64,
    pub cost_accrued_usd: f64,
    pub cost_per_hour_usd: f64,
    pub foreign: i64,
    pub foreign_cost_per_hour_usd: f64,
}

/// `GET /api/v1/containers/stats`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StatsView {
    pub total: i64,
    pub by_state: BTreeMap<String, i64>,
    pub by_health: BTreeMap<String, i64>,
    pub total_cost_usd: f64,
    pub oldest_running: Option<Timestamp>,
}

/// `POST /api/v1/containers/{id}/stop` and `…/terminate`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StopRequest {
    /// From SIGTERM to SIGKILL. 30 for stop, 10 for terminate, 0 is force.
    pub grace_seconds: Option<i64>,
    /// In a person's words, for the events.
    pub reason: Option<String>,
}

/// `POST /api/v1/heartbeats`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatBatch {
    pub heartbeats: Vec<Sample>,
}

/// Everything not in `rejected` is on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HeartbeatReceipt {
    pub accepted: usize,
    pub rejected: Vec<RejectedHeartbeat>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RejectedHeartbeat {
    /// Its place in the batch.
    pub index: usize,
    pub container_id: ContainerId,
    pub code: String,
    pub message: String,
}

/// `GET /api/v1/containers/{id}/heartbeats`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HeartbeatHistory {
    pub heartbeats: Vec<Heartbeat>,
    /// Older than the raw ones, an hour a row.
    pub hours: Vec<HeartbeatHour>,
}

/// `GET /api/v1/events`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EventList {
    pub events: Vec<Event>,
    /// Ask for what came `after` this to go on without a gap.
    pub last_id: i64,
}

word_enum!(
    CleanupKind {
        Orphans = "orphans",
        Dead = "dead",
    }
);

/// `POST /api/v1/cleanup`. Without `ids` it only shows what qualifies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CleanupRequest {
    pub kind: CleanupKind,
    #[serde(default)]
    pub older_than_seconds: Option<i64>,
    /// Exactly the ones that a person was shown. Each is checked again, at its provider, before it is ended.
    #[serde(default)]
    pub ids: Option<Vec<ContainerId>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CleanupReport {
    /// What qualifies (asked without ids).
    pub candidates: Vec<ContainerView>,
    /// What became of each (asked with ids).
    pub outcomes: Vec<CleanupOutcome>,
}

word_enum!(
    CleanupVerdict {
        /// It is to be ended; watch it until it is `terminated`.
        Requested = "requested",
        /// The provider says that it is gone already.
        AlreadyGone = "already_gone",
        /// It no longer qualifies (a heartbeat came, it was adopted).
        Skipped = "skipped",
        /// The provider could not be asked.
        Unverified = "unverified",
    }
);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CleanupOutcome {
    pub id: ContainerId,
    pub verdict: CleanupVerdict,
    pub message: String,
}

/// `GET /api/v1/reconciler`: read from the store, so it is true from any process and after a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ReconcilerStatus {
    pub running: bool,
    pub last_run_at: Option<Timestamp>,
    pub next_run_at: Option<Timestamp>,
    pub poll_interval_seconds: u64,
    pub auto_terminate_orphans: bool,
    pub auto_terminate_stale: bool,
    pub providers: Vec<ProviderStatus>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProviderStatus {
    pub name: String,
    pub identity: Option<String>,
    pub unreachable_since: Option<Timestamp>,
    pub breaker_since: Option<Timestamp>,
    pub breaker_agreed: i64,
    pub last_cycle: Option<CycleView>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CycleView {
    pub id: i64,
    pub provider: String,
    pub trigger: String,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    pub duration_ms: f64,
    pub outcome: String,
    pub error: Option<String>,
    pub provider_containers: i64,
    pub db_containers: i64,
    pub suspected: i64,
    pub orphans_detected: i64,
    pub adopted: i64,
    pub started: i64,
    pub terminated: i64,
    pub state_corrections: i64,
    pub foreign: i64,
    pub actions: i64,
    pub failures: i64,
    pub waiting: Vec<Waiting>,
    pub next_at: Option<Timestamp>,
}

/// `GET /api/v1/instances`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct InstanceView {
    pub id: String,
    pub is_self: bool,
    pub adopted_at: Option<Timestamp>,
    pub adopted_by: Option<String>,
    /// Alive and not ours.
    pub foreign: Vec<ForeignView>,
    pub cost: f64,
    pub cost_per_hour_usd: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ForeignView {
    pub provider: String,
    pub sandbox: String,
    pub container_id: String,
    pub task: Option<String>,
    pub name: Option<String>,
    pub age: i64,
    pub cost: f64,
    pub cost_per_hour_usd: f64,
    pub first_seen_at: Timestamp,
    pub last_seen_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct InstanceList {
    pub instances: Vec<InstanceView>,
}

/// `POST /api/v1/instances/{id}/adopt`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AdoptReport {
    pub instance: String,
    pub containers: Vec<ContainerId>,
}

/// `GET /api/v1/server`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ServerInfo {
    pub version: String,
    pub instance_id: String,
    pub home: String,
    pub home_id: String,
    pub owner_id: String,
    pub epoch: i64,
    /// Whether it runs the loops that there is only one of; another server on the same database may.
    #[serde(default = "yes")]
    pub leads: bool,
    pub started_at: Timestamp,
    /// The TCP address, when there is one.
    pub listen: Option<String>,
    pub on_demand: bool,
    pub providers: Vec<String>,
}

fn yes() -> bool {
    true
}

/// `application/problem+json`: the one shape of every error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Problem {
    #[serde(rename = "type", default)]
    pub kind: String,
    pub title: String,
    pub status: u16,
    pub detail: String,
    /// A stable word for programs.
    pub code: String,
    /// What to do about it.
    #[serde(default)]
    pub fix: String,
}

/// Headers of `GET /api/v1/containers/{id}/logs`, whose body is the output itself.
pub const HEADER_LOG_OFFSET: &str = "parhelia-log-offset";
pub const HEADER_LOG_NEXT: &str = "parhelia-log-next";
pub const HEADER_LOG_FINISHED: &str = "parhelia-log-finished";
