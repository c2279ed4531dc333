//! What `/api/admin` answers about jobs. Names are in camel case here, as in the sentinels.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{JobActivity, JobStatus, Startup};
use crate::word_enum;

/// `GET /api/admin/recovery/jobs/heartbeats`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeats {
    pub jobs: Vec<JobHeartbeat>,
    pub summary: HeartbeatSummary,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobHeartbeat {
    pub job_id: Uuid,
    pub last_heartbeat: Option<Timestamp>,
    pub age_seconds: Option<i64>,
    /// `fresh`, `stale` or `dead`; one that was reattached is fresh.
    pub status: JobStatus,
    pub agent_engine: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatSummary {
    pub total: i64,
    pub fresh: i64,
    pub stale: i64,
    pub dead: i64,
}

/// `GET /api/admin/recovery/jobs/stale`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaleJobs {
    pub stale_jobs: Vec<StaleJob>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaleJob {
    pub job_id: Uuid,
    pub last_heartbeat: Option<Timestamp>,
    pub age_minutes: Option<f64>,
    pub workspace_path: Option<String>,
    pub recommended_action: String,
}

/// `GET /api/admin/jobs/{id}/health`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobHealth {
    pub job_id: Uuid,
    pub heartbeat_status: JobStatus,
    pub last_heartbeat: Option<Timestamp>,
    pub age_seconds: Option<i64>,
    pub sentinel_file_exists: bool,
    pub workspace_exists: bool,
    /// The agent's own session is known, so that it can be resumed with its context.
    pub session_data_exists: bool,
}

word_enum!(
    /// How far a recovery is.
    RecoveryPhase {
        /// Nobody has looked at every job yet.
        Classifying = "classifying",
        /// Some are uncertain, and watched.
        Watching = "watching",
        Finished = "finished",
    }
);

word_enum!(
    /// What a start found of a job.
    RecoveryFinding {
        Reattached = "reattached",
        /// It had ended, with a result.
        Ended = "ended",
        Gone = "gone",
        Watched = "watched",
    }
);

/// `GET /api/admin/recovery/jobs/status`: what the last start found, and how every job is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryStatus {
    pub recovery: RecoveryProgress,
    /// Those that are not over, and those that this start has found.
    pub jobs: Vec<RecoveryJob>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryProgress {
    pub phase: RecoveryPhase,
    pub started_at: Option<Timestamp>,
    /// Every job had been looked at once.
    pub classified_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub total: i64,
    pub reattached: i64,
    pub ended: i64,
    pub gone: i64,
    pub watched: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryJob {
    pub job_id: Uuid,
    pub name: Option<String>,
    pub agent_engine: String,
    pub status: JobStatus,
    pub status_reason: Option<String>,
    pub activity: JobActivity,
    pub waiting_reason: Option<String>,
    pub last_heartbeat: Option<Timestamp>,
    /// What this start found; absent for what began after it.
    pub finding: Option<RecoveryFinding>,
    pub watched_until: Option<Timestamp>,
    pub watched_because: Option<String>,
    pub reattached_at: Option<Timestamp>,
    pub reattached_count: i64,
    pub reattach_ms: Option<i64>,
}

word_enum!(
    /// What a sentinel file is.
    SentinelState {
        Read = "read",
        Missing = "missing",
        Empty = "empty",
        Corrupt = "corrupt",
    }
);

word_enum!(
    /// What a lock says.
    LockWord {
        /// Its supervisor lives.
        Held = "held",
        /// Its supervisor is gone, for certain.
        Free = "free",
        Unknown = "unknown",
    }
);

/// `GET /api/admin/recovery/jobs/sentinels`: the files of every job that is not over, and of every directory that
/// still has a sentinel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sentinels {
    pub sentinels: Vec<SentinelView>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SentinelView {
    pub job_id: Uuid,
    pub path: String,
    pub state: SentinelState,
    /// Why it cannot be read.
    pub problem: Option<String>,
    pub lock: LockWord,
    /// Why the lock says nothing.
    pub doubt: Option<String>,
    pub age_seconds: Option<i64>,
    /// There is a row of it.
    pub recorded: bool,
    /// The file itself.
    pub sentinel: Option<serde_json::Value>,
}

/// `GET /api/admin/recovery/jobs/metrics`: of the recovery after the last start, and of all jobs on record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryMetrics {
    pub total: i64,
    pub reattached: i64,
    /// Had ended meanwhile, with their results.
    pub ended: i64,
    pub failed: i64,
    pub watched: i64,
    pub mean_reattach_ms: Option<f64>,
    /// Of those that are decided, the part that lost nothing; absent when there are none.
    pub success_rate: Option<f64>,
    pub jobs_by_status: BTreeMap<String, i64>,
    pub waiting: i64,
}

/// `GET /api/admin/recovery/jobs/failed`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedJobs {
    /// Newest first.
    pub failed_jobs: Vec<FailedJob>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedJob {
    pub job_id: Uuid,
    pub name: Option<String>,
    pub agent_engine: String,
    pub status: JobStatus,
    pub reason: Option<String>,
    pub exit_code: Option<i64>,
    pub failed_at: Option<Timestamp>,
    pub last_heartbeat: Option<Timestamp>,
    pub resume: ResumeOption,
}

/// How it could go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResumeOption {
    /// The agent goes on where it was; otherwise the same command is run again.
    pub with_session: bool,
    pub session_id: Option<String>,
    pub command: String,
}

/// `POST /api/admin/recovery/jobs/resume`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResumeJob {
    /// Its id, a unique prefix of it, its container's id, or its name.
    pub job_id: String,
    /// With the earlier one's context: the agent's own session. Without it the same command is run again.
    #[serde(default = "yes")]
    pub from_checkpoint: bool,
}

const fn yes() -> bool {
    true
}

/// `GET /api/admin/startup-log`: the last ten starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartupLog {
    /// Newest first.
    pub startups: Vec<Startup>,
}
