//! Jobs: one execution of a command under a supervisor, and what is known of it. Its liveness comes from the
//! files that the supervisor writes (seed 001); its container has the rest.

pub mod admin;
pub mod api;
pub mod classify;
pub mod recovery;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ids::ContainerId;
use crate::word_enum;

/// Job ids are made from container ids with it, so that a second create finds the first one's directory.
const NAMESPACE: Uuid = Uuid::from_u128(0x7061_7268_656c_4961_8a6f_6264_6972_0001);

/// The protocol of a job's directory; `docs/job-protocol.md`.
pub const PROTOCOL: u32 = if cfg!(feature = "next") { 2 } else { 1 };

/// The job of a container: always the same one.
pub fn job_id(container: &ContainerId) -> Uuid {
    Uuid::new_v5(&NAMESPACE, container.as_str().as_bytes())
}

word_enum!(
    /// How a job is, by its heartbeat while it lives and by its result afterwards.
    JobStatus {
        /// Asked for; its supervisor has not been seen yet.
        Pending = "pending",
        Fresh = "fresh",
        /// Silent for two minutes: alerted, and left alone.
        Stale = "stale",
        /// Silent for more than ten minutes, and nothing proves that it lives.
        Dead = "dead",
        /// Alive before this server was, and found again.
        Reattached = "reattached",
        /// It ended, and its result is known.
        Finished = "finished",
        /// It ended without success, or without a result.
        Failed = "failed",
    }
);

impl JobStatus {
    /// Nothing more will happen to it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Dead | Self::Finished | Self::Failed)
    }
}

word_enum!(
    /// What a job does, in the words of its sentinel.
    JobActivity {
        Running = "running",
        /// It needs a person.
        Waiting = "waiting",
        /// Between steps: being started or being ended.
        Processing = "processing",
    }
);

word_enum!(
    /// What counts as getting on.
    Sign {
        Output = "output",
        Cpu = "cpu",
    }
);

/// What a job asks of its supervisor, beyond the command. Part of `spec.json`: additive only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct JobAsk {
    pub engine: Option<String>,
    /// The agent's own session, for its resume arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_session: Option<String>,
    /// A pseudo-terminal of this size instead of pipes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Terminal>,
    /// Standard input comes from whoever is attached. Without it, it is empty.
    pub stdin: bool,
    /// It is ended after this long, with the reason `timeout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// Exit codes that mean: it needs a person.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting_codes: Vec<i64>,
    /// What counts as activity; empty: everything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub activity: Vec<Sign>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Terminal {
    pub rows: u16,
    pub cols: u16,
}

/// A row of `jobs`. The first part is written once, with the intent; the rest belongs to the jobs loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Job {
    pub id: Uuid,
    pub container_id: ContainerId,
    pub name: Option<String>,
    pub engine: String,
    /// The job that it continues.
    pub origin_id: Option<Uuid>,
    pub timeout_seconds: Option<i64>,
    pub interactive: bool,
    pub created_at: Timestamp,
    pub created_by: String,

    pub status: JobStatus,
    /// Since when it has that status.
    pub status_at: Timestamp,
    /// Why, in words.
    pub status_reason: Option<String>,
    pub activity: JobActivity,
    pub waiting_reason: Option<String>,
    pub waiting_since: Option<Timestamp>,
    /// The agent's own session, once it is known.
    pub agent_session: Option<String>,
    /// The last heartbeat that its sentinel told of.
    pub heartbeat_at: Option<Timestamp>,
    pub reattached_at: Option<Timestamp>,
    pub reattached_count: i64,
    /// From the start of the server to its being found again.
    pub reattach_ms: Option<i64>,
    pub ended_at: Option<Timestamp>,
    pub exit_code: Option<i64>,
    /// When its directory may go.
    pub cleanup_at: Option<Timestamp>,
    /// When it was given up: written by whoever cleans up, the loop never touches it.
    pub cleaned_at: Option<Timestamp>,
}

/// The columns of the jobs loop, whole: what it wants them to be.
#[derive(Debug, Clone, PartialEq)]
pub struct JobNote {
    pub status: JobStatus,
    pub status_at: Timestamp,
    pub status_reason: Option<String>,
    pub activity: JobActivity,
    pub waiting_reason: Option<String>,
    pub waiting_since: Option<Timestamp>,
    pub agent_session: Option<String>,
    pub heartbeat_at: Option<Timestamp>,
    pub reattached_at: Option<Timestamp>,
    pub reattached_count: i64,
    pub reattach_ms: Option<i64>,
    pub ended_at: Option<Timestamp>,
    pub exit_code: Option<i64>,
    pub cleanup_at: Option<Timestamp>,
}

impl Job {
    /// What the jobs loop wrote last, to change and write again.
    pub fn note(&self) -> JobNote {
        JobNote {
            status: self.status,
            status_at: self.status_at,
            status_reason: self.status_reason.clone(),
            activity: self.activity,
            waiting_reason: self.waiting_reason.clone(),
            waiting_since: self.waiting_since,
            agent_session: self.agent_session.clone(),
            heartbeat_at: self.heartbeat_at,
            reattached_at: self.reattached_at,
            reattached_count: self.reattached_count,
            reattach_ms: self.reattach_ms,
            ended_at: self.ended_at,
            exit_code: self.exit_code,
            cleanup_at: self.cleanup_at,
        }
    }
}

word_enum!(
    /// The steps of a start, in their order.
    StartStep {
        Store = "store",
        Leadership = "leadership",
        Jobs = "jobs",
        Sessions = "sessions",
        Orphans = "orphans",
    }
);

/// One start of a server, as `GET /api/admin/startup-log` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Startup {
    /// The server process that started.
    pub owner_id: String,
    pub host: String,
    pub version: String,
    pub started_at: Timestamp,
    /// Absent: it is still starting, or was ended in the middle.
    pub finished_at: Option<Timestamp>,
    pub steps: Vec<StepReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepReport {
    pub step: StartStep,
    pub at: Timestamp,
    pub duration_ms: i64,
    pub ok: bool,
    /// What was found, and what was set aside.
    pub message: String,
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub details: serde_json::Value,
}
