//! The shapes of jobs that cross the API.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Job, JobStatus, Terminal};
use crate::sandbox::Resources;
use crate::state::{ContainerState, TerminationReason};
use crate::word_enum;

/// `POST /api/v1/jobs`: run this as a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
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
    /// Names; the server resolves them when it starts the job.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Whose templates the command is made with. Without it the engine is only guessed from the program's name, and
    /// the command stays exactly as it was given.
    #[serde(default)]
    pub engine: Option<String>,
    /// The agent's own session, where its engine takes one.
    #[serde(default)]
    pub session: Option<String>,
    /// A pseudo-terminal of this size instead of pipes.
    #[serde(default)]
    pub terminal: Option<Terminal>,
    /// Standard input comes from whoever is attached.
    #[serde(default)]
    pub stdin: bool,
    /// It is ended after this long.
    #[serde(default)]
    pub timeout_seconds: Option<u64>,
    /// Never terminate it for silence alone.
    #[serde(default)]
    pub keep: bool,
}

fn process() -> String {
    "process".to_owned()
}

/// A job as every door shows it: its row, with what its container knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobView {
    #[serde(flatten)]
    pub job: Job,
    /// Of its container.
    pub state: ContainerState,
    pub command: Vec<String>,
    pub provider: String,
    /// Where its files are, when they are on the machine of this server and still there.
    pub directory: Option<String>,
    /// Seconds since it was asked for.
    pub age: i64,
    pub termination_reason: Option<TerminationReason>,
    /// Of its being ended, once somebody wants that.
    pub receipts: Option<CancelReceipts>,
}

/// What became of the wish to end it: each is empty until it is true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CancelReceipts {
    pub desired_at: Option<Timestamp>,
    pub desired_by: Option<String>,
    pub reason: Option<TerminationReason>,
    pub grace_seconds: Option<i64>,
    /// The loop has seen the wish.
    pub stop_seen_at: Option<Timestamp>,
    /// Its provider has taken it.
    pub stopping_at: Option<Timestamp>,
    /// It is gone, and everything that it started with it.
    pub stop_confirmed_at: Option<Timestamp>,
    pub stop_error: Option<String>,
}

/// `GET /api/v1/jobs`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobList {
    /// Newest first.
    pub jobs: Vec<JobView>,
    /// There are older ones: ask for what was created `before` this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Uuid>,
    pub totals: JobTotals,
}

/// Over all jobs, whatever was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobTotals {
    pub total: i64,
    /// Not over.
    pub open: i64,
    /// They need a person.
    pub waiting: i64,
    pub by_status: BTreeMap<String, i64>,
}

/// `POST /api/v1/jobs/{id}/resume`: a new job that goes on where that one was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResumeRequest {
    /// What is new for it; nothing of the earlier prompt is sent again where its engine can resume a session.
    pub arguments: Vec<String>,
}

/// `POST /api/v1/jobs/cleanup`. Without `ids` it only shows what qualifies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobCleanupRequest {
    /// Since its end; 0 is all that are over.
    pub older_than_seconds: Option<i64>,
    /// Only those; nothing that is not over ever qualifies.
    pub statuses: Vec<JobStatus>,
    /// Exactly the ones that a person was shown. Each is checked again before its directory goes.
    pub ids: Option<Vec<Uuid>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobCleanupReport {
    /// What qualifies (asked without ids).
    pub candidates: Vec<JobView>,
    /// What became of each (asked with ids).
    pub outcomes: Vec<JobCleanupOutcome>,
}

word_enum!(
    JobCleanupVerdict {
        /// Its directory and its output are gone.
        Cleaned = "cleaned",
        /// It does not qualify (any more).
        Skipped = "skipped",
        /// It could not be proven to be over, or its directory could not be removed.
        Failed = "failed",
    }
);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobCleanupOutcome {
    pub id: Uuid,
    pub verdict: JobCleanupVerdict,
    pub message: String,
}
