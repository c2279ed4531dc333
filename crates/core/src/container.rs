//! The record of one container: the seed's columns, and what contract 14 (desired state, receipts) adds.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::ContainerId;
use crate::sandbox::SandboxSpec;
use crate::state::{ContainerState, CostSource, Desired, Health, TerminationReason};

/// A row of `containers`, whole. Field names are the column names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Container {
    pub id: ContainerId,
    pub provider: String,
    /// Which engine, account or home has it: only a listing by the same one says anything about it.
    pub provider_identity: Option<String>,
    pub sandbox_id: Option<String>,
    pub instance_id: String,
    pub name: Option<String>,
    pub worker_id: Option<String>,
    pub task_id: Option<String>,
    pub session_id: Option<String>,

    pub state: ContainerState,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub terminated_at: Option<Timestamp>,
    pub exit_code: Option<i64>,
    pub termination_reason: Option<TerminationReason>,
    /// First seen without a record of ours (then it is suspected, later an orphan).
    pub suspected_at: Option<Timestamp>,

    pub desired: Desired,
    pub desired_at: Option<Timestamp>,
    pub desired_by: Option<String>,
    pub desired_reason: Option<TerminationReason>,
    pub stop_grace_seconds: Option<i64>,
    /// Receipts of contract 12: the loop has seen the request, the provider has taken it, it is gone.
    pub stop_seen_at: Option<Timestamp>,
    pub stopping_at: Option<Timestamp>,
    pub stop_confirmed_at: Option<Timestamp>,
    pub stop_attempts: i64,
    pub stop_attempted_at: Option<Timestamp>,
    pub stop_error: Option<String>,

    /// How often the provider was asked to create it, and when last: the intent of contract 2.
    pub create_attempts: i64,
    pub create_attempted_at: Option<Timestamp>,

    pub last_heartbeat_at: Option<Timestamp>,
    pub health_status: Health,
    pub consecutive_failures: i64,
    pub cpu_percent: Option<f64>,
    pub memory_percent: Option<f64>,
    pub memory_used_mb: Option<i64>,
    pub disk_percent: Option<f64>,
    pub uptime_seconds: Option<i64>,

    pub cpu_cores: Option<f64>,
    pub memory_mb: Option<i64>,
    pub gpu_type: Option<String>,
    pub region: Option<String>,

    pub cost_accrued_usd: f64,
    pub cost_rate_per_hour: Option<f64>,
    pub cost_source: CostSource,

    pub image: Option<String>,
    pub command: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub keep: bool,
    /// What to ask the provider for; `None` on rows that we did not create.
    pub spec: Option<SandboxSpec>,
    pub metadata: serde_json::Value,
    pub updated_at: Timestamp,
}
