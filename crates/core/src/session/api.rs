//! The shapes of sessions, waits and signals that cross the API.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::{
    AttemptRow, BlockedType, CheckpointRow, PhaseRow, Session, SessionStatus, SignalRow, TaskRow, WaitRow,
};
use crate::ids::{CheckpointId, ContainerId, SessionId, SignalId, WaitId};

/// `POST /api/v1/sessions`: run this cascade.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StartSession {
    /// The definition itself, with its sub-cascades in it.
    pub cascade: Option<Value>,
    /// Instead of it: the text of a cascade file.
    pub text: Option<String>,
    pub inputs: BTreeMap<String, Value>,
    /// `inputs` that are text and are read as what the cascade says they are: `-i key=value`.
    pub input_texts: BTreeMap<String, String>,
    pub name: Option<String>,
    /// What runs without a directory of its own runs here.
    pub workdir: Option<String>,
    /// Given to every command; those of the cascade come before it.
    pub env: BTreeMap<String, String>,
    /// Instead of what the cascade says.
    pub provider: Option<String>,
    pub resumable: Option<bool>,
    /// `false`: the death of its server leaves it `orphaned`.
    pub auto_resume: Option<bool>,
}

/// A session as every door shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SessionView {
    #[serde(flatten)]
    pub session: Session,
    /// Seconds since it was started.
    pub age: i64,
    /// Whether whoever advances it is alive, as far as this server knows.
    pub owner_alive: bool,
    pub progress: Progress,
}

/// How far it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Progress {
    pub phases: i64,
    /// Completed or skipped.
    pub phases_done: i64,
    pub tasks: i64,
    pub tasks_done: i64,
    pub tasks_running: i64,
    pub tasks_failed: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SessionList {
    pub sessions: Vec<SessionView>,
    /// Give it as `before` for the next page.
    pub next: Option<SessionId>,
    pub totals: SessionTotals,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SessionTotals {
    pub total: i64,
    pub by_status: BTreeMap<String, i64>,
    /// Waits for a person, over all sessions.
    pub inbox: i64,
}

/// `GET /api/v1/sessions/{id}`: all of it but the tasks of long levels (see `tasks_left_out`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SessionDetail {
    #[serde(flatten)]
    pub view: SessionView,
    pub inputs: Value,
    pub outputs: Value,
    pub phases: Vec<PhaseView>,
    pub waits: Vec<WaitRow>,
    pub children: Vec<SessionView>,
    pub last_checkpoint: Option<CheckpointRow>,
    /// The sessions that went on with it, or begin again at a phase of it; the newest first.
    #[serde(default)]
    pub continued_by: Vec<SessionId>,
    /// Why it is not done, in sentences.
    pub waiting: Vec<String>,
}

/// A phase of the cascade, begun or not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PhaseView {
    pub name: String,
    /// `run`, `agent`, `tasks`, `await`, `cascade` or `set`.
    pub kind: String,
    pub description: Option<String>,
    pub needs: Vec<String>,
    /// Absent: it has not begun.
    pub row: Option<PhaseRow>,
    pub tasks: Vec<TaskView>,
    /// Tasks of a long level that are not listed here.
    pub tasks_left_out: i64,
    pub tasks_by_state: BTreeMap<String, i64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TaskView {
    #[serde(flatten)]
    pub task: TaskRow,
    pub attempts: Vec<AttemptRow>,
}

/// A session and those below it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(no_recursion)]
pub struct SessionTree {
    #[serde(flatten)]
    pub detail: SessionDetail,
    pub below: Vec<SessionTree>,
}

/// `GET /api/v1/tasks/{id}/attempts/{attempt}/output`: of a task that a worker ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AttemptOutput {
    /// The end of what it wrote.
    pub output: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TaskList {
    pub tasks: Vec<TaskView>,
    /// Give it as `after` for the next page.
    pub next: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CheckpointList {
    /// In their order.
    pub checkpoints: Vec<CheckpointRow>,
    /// Give it as `after` for the next page.
    pub next: Option<CheckpointId>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CancelSession {
    pub reason: Option<String>,
    /// Without a grace.
    pub force: bool,
    /// 10 when absent.
    pub grace_seconds: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResumeSession {
    /// A new session that begins with this phase and keeps what was done before it.
    pub from: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CleanupSessions {
    /// Shows them and changes nothing.
    pub dry_run: bool,
}

/// Sessions whose owner is dead.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CleanupSessionsReport {
    pub zombies: Vec<Zombie>,
    pub dry_run: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Zombie {
    pub session_id: SessionId,
    pub cascade_id: String,
    /// As it was found.
    pub status: SessionStatus,
    pub heartbeat_at: Timestamp,
    /// `resumed` or `orphaned`: what became of it, or would.
    pub outcome: String,
}

/// `POST /api/v1/signals`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FireSignal {
    pub name: String,
    /// A session's id or a unique prefix of it. Absent: whoever waits for it, or else the next who does.
    #[serde(default)]
    pub session: Option<String>,
    #[serde(default)]
    pub payload: Value,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SignalList {
    /// Newest first.
    pub signals: Vec<SignalRow>,
    /// Give it as `before` for the next page.
    pub next: Option<SignalId>,
}

/// Something that waits for a person: a question of a session, or a job whose agent needs somebody.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct InboxItem {
    /// A wait's id.
    pub id: WaitId,
    #[serde(rename = "type")]
    pub kind: BlockedType,
    pub session_id: SessionId,
    pub cascade_id: String,
    pub phase: String,
    pub task: Option<String>,
    pub description: String,
    pub session_name: Option<String>,
    /// `confirmation`, `choice`, …; how it is to be answered.
    pub question: Value,
    /// What an answer must be, in words.
    pub fits: String,
    /// The command that answers it.
    pub command: String,
    pub since: Timestamp,
    pub deadline: Option<Timestamp>,
    pub on_timeout: String,
    /// Seconds that it has been waiting.
    pub waiting: i64,
}

/// A job that needs a person: it is answered at its terminal, or by going on with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WaitingJob {
    pub job_id: Uuid,
    pub container_id: ContainerId,
    pub name: Option<String>,
    pub engine: String,
    /// The session that it works for.
    pub session_id: Option<SessionId>,
    pub reason: Option<String>,
    pub since: Option<Timestamp>,
    /// Seconds that it has been waiting.
    pub waiting: i64,
    /// The command that answers it.
    pub command: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Inbox {
    /// The one that has waited longest first.
    pub items: Vec<InboxItem>,
    /// Jobs whose agent needs somebody, and that no session asks about.
    pub jobs: Vec<WaitingJob>,
    /// More wait than are listed here.
    pub more: bool,
    /// Others that are blocked on a signal or a sensor, which no person answers.
    pub blocked_elsewhere: i64,
}

/// `POST /api/v1/inbox`: one answer to one or several waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerWaits {
    /// Ids of waits, or unique prefixes; a session's id means its only open wait.
    pub ids: Vec<String>,
    /// `answer`, `approve` or `deny`.
    pub verdict: Verdict,
    /// With `answer`: exactly this value.
    #[serde(default)]
    pub answer: Option<Value>,
    /// Instead of it: what somebody typed, read as what the question wants (`yes`, an option, `4`, …).
    #[serde(default)]
    pub text: Option<String>,
    /// Instead of it: what somebody picked.
    #[serde(default)]
    pub choices: Option<Vec<String>>,
    #[serde(default)]
    pub reason: Option<String>,
}

crate::word_enum!(Verdict { Answer = "answer", Approve = "approve", Deny = "deny" });

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AnswerReport {
    pub answered: Vec<WaitRow>,
    /// Those that were not, each with the reason (somebody else was first, the answer does not fit, …).
    pub refused: Vec<Refused>,
    /// What is still to be done before a session goes on with its answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Refused {
    pub id: String,
    pub reason: String,
}

/// `POST /api/v1/sessions/{id}/claims`: a worker asks for a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimTask {
    pub worker_id: String,
}

/// What a worker was given to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Claimed {
    /// Absent: nothing is to be done now.
    pub task: Option<ClaimedTask>,
    /// Nothing more will come: leave.
    pub finished: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ClaimedTask {
    pub task_id: String,
    pub attempt: i64,
    pub key: String,
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub workdir: Option<String>,
    pub verify: Option<Vec<String>>,
    pub timeout_seconds: Option<u64>,
}

/// `POST /api/v1/tasks/{id}/attempts/{attempt}/result`: what became of it. Refused unless it is the current attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskResult {
    pub worker_id: String,
    pub exit_code: Option<i64>,
    /// Of `verify`, where there is one and it ran.
    #[serde(default)]
    pub verify_exit_code: Option<i64>,
    #[serde(default)]
    pub timed_out: bool,
    /// The end of what it wrote.
    #[serde(default)]
    pub output: String,
    /// It wrote more than that.
    #[serde(default)]
    pub truncated: bool,
}
