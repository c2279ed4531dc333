//! Sessions: durable executions of cascades. This module owns the words and rows; what happens next is decided in
//! [`plan`], from these rows alone, so that any process may go on after a crash at any point.

pub mod answer;
pub mod api;
pub mod explain;
pub mod outline;
pub mod plan;
pub mod projection;
pub mod tell;

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::ids::{CheckpointId, ContainerId, SessionId, SignalId, TaskId, WaitId};
use crate::word_enum;

/// Servers that may die of a session, one after the other, before it is left to a person.
pub const MOST_DEATHS: i64 = 5;

/// What the table says a holder's lease is (seed 004); the owner's own lease is the one that is kept.
pub const LEASE_SECONDS: i64 = 60;

word_enum!(
    SessionStatus {
        Starting = "starting",
        Running = "running",
        /// Nothing of it runs, and it waits for something outside.
        Blocked = "blocked",
        Completed = "completed",
        Error = "error",
        /// Everything that it had started is confirmed gone.
        Cancelled = "cancelled",
        /// Its owner died, and nobody may go on with it before a person says so.
        Orphaned = "orphaned",
    }
);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a session cannot go from {from} to {to}")]
pub struct InvalidMove {
    pub from: SessionStatus,
    pub to: SessionStatus,
}

impl SessionStatus {
    /// Nothing more will happen to it; to go on is another session.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Error | Self::Cancelled)
    }

    /// The one transition function.
    pub fn to(self, to: Self) -> Result<Self, InvalidMove> {
        use SessionStatus::*;
        let legal = match (self, to) {
            (from, to) if from == to || from.is_over() => false,
            (_, Cancelled | Error | Orphaned) => true,
            (Starting, Running | Blocked | Completed) => true,
            (Running, Blocked | Completed) => true,
            (Blocked, Running | Completed) => true,
            (Orphaned, Running) => true,
            _ => false,
        };
        if legal { Ok(to) } else { Err(InvalidMove { from: self, to }) }
    }
}

word_enum!(
    /// What kind of thing a blocked session waits for.
    BlockedType {
        Signal = "signal",
        Hitl = "hitl",
        Sensor = "sensor",
        Approval = "approval",
        Checkpoint = "checkpoint",
    }
);

impl BlockedType {
    /// Whether a person is meant.
    pub fn is_for_a_person(self) -> bool {
        matches!(self, Self::Hitl | Self::Approval | Self::Checkpoint)
    }
}

word_enum!(
    /// A phase that has no row has not begun.
    PhaseStatus {
        Running = "running",
        Completed = "completed",
        /// Its `when` was not true.
        Skipped = "skipped",
        Failed = "failed",
        Cancelled = "cancelled",
    }
);

impl PhaseStatus {
    pub fn is_over(self) -> bool {
        self != Self::Running
    }

    /// Those that need it may begin.
    pub fn is_passed(self) -> bool {
        matches!(self, Self::Completed | Self::Skipped)
    }
}

word_enum!(
    TaskStatus {
        Pending = "pending",
        /// A worker has it and has not begun.
        Claimed = "claimed",
        Running = "running",
        Verifying = "verifying",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
    }
);

impl TaskStatus {
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

word_enum!(
    FailureReason {
        TaskFailed = "task_failed",
        VerificationFailed = "verification_failed",
        /// What it ran in died under it. Does not use up a retry, and is capped by itself.
        WorkerCrash = "worker_crash",
        Timeout = "timeout",
        Cancelled = "cancelled",
    }
);

word_enum!(
    AttemptStatus {
        /// From its intent on.
        Running = "running",
        Verifying = "verifying",
        Completed = "completed",
        Failed = "failed",
        /// It ended and needs a person; the next attempt goes on with the answer.
        Waiting = "waiting",
        Cancelled = "cancelled",
    }
);

impl AttemptStatus {
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Running | Self::Verifying)
    }
}

word_enum!(
    WaitStatus {
        Open = "open",
        /// Somebody answered, or a signal came; the session has yet to take it, or has.
        Answered = "answered",
        TimedOut = "timed_out",
        /// Nobody needs it any more: its session was cancelled, or went on by itself.
        Withdrawn = "withdrawn",
    }
);

/// A row of `sessions`: the seed's columns, and ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Session {
    pub session_id: SessionId,
    pub cascade_id: String,
    pub parent_session_id: Option<SessionId>,
    /// The phase of the parent that it is.
    pub parent_phase: Option<String>,
    pub name: Option<String>,

    pub status: SessionStatus,
    pub current_phase: Option<String>,
    pub depth: i64,

    pub blocked_type: Option<BlockedType>,
    pub blocked_on: Option<String>,
    pub blocked_description: Option<String>,
    pub blocked_since: Option<Timestamp>,
    pub blocked_timeout_at: Option<Timestamp>,

    /// The last sign of life of whoever advances it.
    pub heartbeat_at: Timestamp,
    pub heartbeat_lease_seconds: i64,

    pub cancel_requested: bool,
    pub cancel_reason: Option<String>,
    pub cancel_requested_at: Option<Timestamp>,
    pub cancel_requested_by: Option<String>,
    pub cancel_force: bool,
    pub cancel_grace_seconds: Option<i64>,
    /// When its owner saw the wish and passed it on.
    pub cancel_seen_at: Option<Timestamp>,
    /// When everything of it was confirmed gone.
    pub cancelled_at: Option<Timestamp>,

    pub error_message: Option<String>,
    pub error_phase: Option<String>,

    pub last_checkpoint_id: Option<CheckpointId>,
    pub resumable: bool,
    /// `false`: its owner's death leaves it `orphaned`.
    pub auto_resume: bool,
    /// The session that it continues, and from where.
    pub origin_id: Option<SessionId>,
    pub origin_phase: Option<String>,

    pub started_at: Timestamp,
    pub completed_at: Option<Timestamp>,
    pub updated_at: Timestamp,
    pub created_by: String,
    pub metadata: Value,

    /// The server that advances it, and the fencing token: it rises with every new owner.
    pub owner_id: Option<String>,
    pub owner_epoch: i64,
}

/// A row of `session_phases`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PhaseRow {
    /// Its place in the cascade, from 0.
    pub position: i64,
    pub name: String,
    pub status: PhaseStatus,
    pub started_at: Timestamp,
    pub completed_at: Option<Timestamp>,
    pub outputs: Value,
    pub error: Option<String>,
    pub child_session_id: Option<SessionId>,
}

/// A row of `tasks` that belongs to a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TaskRow {
    pub id: TaskId,
    pub session_id: SessionId,
    pub phase: String,
    /// Its place in the level, from 0.
    pub position: i64,
    /// What its file calls it.
    pub key: String,
    pub title: String,
    pub state: TaskStatus,
    /// The fencing token; 0 before the first.
    pub attempt: i64,
    pub retry_count: i64,
    pub crash_count: i64,
    pub failure_reason: Option<FailureReason>,
    pub error: Option<String>,
    /// Not before then.
    pub retry_at: Option<Timestamp>,
    pub exit_code: Option<i64>,
    pub outputs: Value,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
}

impl TaskRow {
    /// One that has not begun.
    pub fn pending(id: TaskId, session_id: SessionId, phase: &str, key: &str, title: String) -> Self {
        Self {
            id,
            session_id,
            phase: phase.to_owned(),
            position: 0,
            key: key.to_owned(),
            title,
            state: TaskStatus::Pending,
            attempt: 0,
            retry_count: 0,
            crash_count: 0,
            failure_reason: None,
            error: None,
            retry_at: None,
            exit_code: None,
            outputs: Value::Object(serde_json::Map::new()),
            started_at: None,
            completed_at: None,
        }
    }
}

/// A row of `attempts`: one execution of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AttemptRow {
    pub task_id: TaskId,
    pub attempt: i64,
    pub session_id: SessionId,
    pub phase: String,
    pub status: AttemptStatus,
    /// What it runs in; its job has the output.
    pub container_id: Option<ContainerId>,
    /// What its `verify` runs in.
    pub verify_container_id: Option<ContainerId>,
    /// Who claimed it, where a worker did.
    pub worker_id: Option<String>,
    pub exit_code: Option<i64>,
    pub failure_reason: Option<FailureReason>,
    pub message: Option<String>,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// A row of `waits`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WaitRow {
    pub id: WaitId,
    pub session_id: SessionId,
    pub phase: String,
    /// The task whose agent asked.
    pub task_id: Option<TaskId>,
    pub wait_type: BlockedType,
    /// A signal's name, a question's kind, …
    pub wait_on: String,
    pub description: String,
    /// What an answer must be: the question, as JSON.
    pub question: Value,
    pub on_timeout: String,
    pub default_value: Option<Value>,
    pub since: Timestamp,
    pub deadline: Option<Timestamp>,
    pub status: WaitStatus,
    pub answer: Option<Value>,
    pub answered_by: Option<String>,
    pub answer_reason: Option<String>,
    pub answered_at: Option<Timestamp>,
    pub signal_id: Option<SignalId>,
}

/// A row of `signals`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SignalRow {
    pub id: SignalId,
    pub name: String,
    /// Meant for one session; absent: for whoever waits for it, or the next who does.
    pub session_id: Option<SessionId>,
    pub payload: Value,
    pub fired_at: Timestamp,
    pub fired_by: String,
    /// How many waits it has ended.
    pub deliveries: i64,
    pub delivered_at: Option<Timestamp>,
}

/// A row of `checkpoints`: something is done, and will not be done again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CheckpointRow {
    pub id: CheckpointId,
    pub session_id: SessionId,
    pub phase: String,
    /// Absent: the whole phase.
    pub task_id: Option<TaskId>,
    pub at: Timestamp,
}

/// Who may write a session: its owner's fence, and the session's own token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub owner_id: String,
    pub owner_epoch: i64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in epoch {}", self.owner_id, self.owner_epoch)
    }
}
