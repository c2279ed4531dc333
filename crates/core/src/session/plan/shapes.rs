//! What the planner is given and what it gives.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use crate::cascade::{Cascade, OnTimeout};
use crate::ids::{ContainerId, SessionId, SignalId, TaskId, WaitId};
use crate::session::{
    AttemptRow, BlockedType, FailureReason, PhaseStatus, SessionStatus, SignalRow, TaskRow, WaitRow,
};
use crate::state::{ContainerState, Desired, TerminationReason};

#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Surroundings {
    pub workdir: Option<String>,
    pub env: BTreeMap<String, String>,
    pub provider: Option<String>,
    /// One command, as it was given: `parhelia exec`.
    pub exec: bool,
}

/// What else is known at this moment.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Of phases that are not over, by place.
    pub levels: BTreeMap<usize, Level>,
    pub open: Vec<OpenTask>,
    /// Of phases that are not over.
    pub waits: Vec<WaitRow>,
    /// What each of its open waits would take.
    pub signals: Vec<(WaitId, SignalRow)>,
    pub children: BTreeMap<SessionId, Child>,
    /// What its workers run in, those that are gone too.
    pub workers: Vec<Seen>,
    /// What ended tasks wrote, where it was asked for.
    pub stdout: BTreeMap<TaskId, Stdout>,
}

/// The tasks of a phase that has begun, without those that run.
#[derive(Debug, Clone, Default)]
pub struct Level {
    /// The next ones that may begin now; as many as could.
    pub ready: Vec<TaskRow>,
    /// When the first of the others may.
    pub retry_at: Option<Timestamp>,
    /// The first that failed for good.
    pub failed: Option<TaskRow>,
    /// Those that rest until a person has answered their agent.
    pub resting: Vec<Resting>,
    /// What the completed ones gave, by key; only once nothing else is left.
    pub outputs: Option<BTreeMap<String, Value>>,
}

/// A task whose agent has asked and ended, and what it ran in.
#[derive(Debug, Clone)]
pub struct Resting {
    pub task: TaskRow,
    pub container: Option<ContainerId>,
}

/// A task that runs, and what is recorded of what it runs in.
#[derive(Debug, Clone)]
pub struct OpenTask {
    pub task: TaskRow,
    pub attempt: AttemptRow,
    pub main: Option<Seen>,
    pub verify: Option<Seen>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub container: ContainerId,
    pub state: ContainerState,
    pub desired: Desired,
    pub started_at: Option<Timestamp>,
    pub reason: Option<TerminationReason>,
    pub exit_code: Option<i64>,
    /// What it was given to end by itself, once its end is wanted.
    pub stop_grace_seconds: Option<i64>,
    /// Its agent needs a person, and why.
    pub waiting: Option<String>,
    /// It is an agent, which goes on with an answer: in its own session, where its engine knows how.
    pub resumable: bool,
    /// In words, where its end was not an ordinary one.
    pub detail: Option<String>,
}

impl Seen {
    pub fn is_gone(&self) -> bool {
        matches!(self.state, ContainerState::Terminated | ContainerState::Stopped)
    }

    /// Whether it would end sooner if it was asked to, with that grace.
    pub fn ends_sooner(&self, grace_seconds: i64) -> bool {
        self.desired == Desired::Running || self.stop_grace_seconds.is_some_and(|given| given > grace_seconds)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    pub status: SessionStatus,
    pub cancel_requested: bool,
    pub cancel_force: bool,
    pub cancel_grace_seconds: Option<i64>,
    pub error: Option<String>,
    pub blocked_on: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stdout {
    Text(String),
    TooLarge,
    Unreadable(String),
}

/// A command to run, ready.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub command: Vec<String>,
    /// The engine whose templates make the command of it.
    pub engine: Option<String>,
    pub env: BTreeMap<String, String>,
    pub workdir: Option<String>,
    pub timeout_seconds: Option<u64>,
    /// The answer with which the agent's session goes on, and what it ran in before.
    pub resume: Option<(ContainerId, String)>,
}

/// One change that the owner writes. All steps of a plan are one transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    BeginPhase {
        position: usize,
        tasks: Vec<NewTask>,
    },
    /// Also of a phase that has no row yet.
    EndPhase {
        position: usize,
        status: PhaseStatus,
        outputs: Value,
        error: Option<String>,
    },
    /// One more that claims its tasks.
    StartWorker,
    StartAttempt {
        position: usize,
        task: TaskRow,
        run: Run,
    },
    StartVerify {
        position: usize,
        task: TaskRow,
        attempt: i64,
        run: Run,
    },
    EndAttempt {
        task: TaskRow,
        attempt: i64,
        end: AttemptEnd,
    },
    /// It cannot even be tried.
    FailTask {
        task: TaskRow,
        message: String,
    },
    OpenWait {
        position: usize,
        task: Option<TaskId>,
        wait: NewWait,
    },
    Deliver {
        signal: SignalId,
        wait: WaitId,
        name: String,
        payload: Value,
    },
    TimeOutWait {
        wait: WaitId,
        description: String,
        then: OnTimeout,
    },
    WithdrawWait {
        wait: WaitId,
    },
    /// Its sensor has seen what it looks for.
    FulfilWait {
        wait: WaitId,
    },
    StartChild {
        position: usize,
        cascade: Box<Cascade>,
        inputs: Value,
    },
    CancelChild {
        child: SessionId,
    },
    Outputs {
        outputs: Value,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    pub position: usize,
    pub key: String,
    pub title: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct NewWait {
    pub wait_type: BlockedType,
    pub wait_on: String,
    pub description: String,
    pub question: Value,
    pub on_timeout: OnTimeout,
    pub default_value: Option<Value>,
    pub deadline: Option<Timestamp>,
}

/// How an attempt ended, and what that makes of its task.
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptEnd {
    Completed {
        exit_code: Option<i64>,
        outputs: Value,
    },
    /// It comes again then.
    Retried {
        exit_code: Option<i64>,
        reason: FailureReason,
        message: String,
        at: Timestamp,
    },
    /// A sensor that did not yet see what it looks for.
    NotYet {
        exit_code: Option<i64>,
        at: Timestamp,
    },
    Failed {
        exit_code: Option<i64>,
        reason: FailureReason,
        message: String,
    },
    /// Its agent needs a person.
    Waiting {
        exit_code: Option<i64>,
        message: String,
    },
    Cancelled,
}

/// Asked of the world once the steps are durable; asked again until it is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Stop { container: ContainerId, grace_seconds: i64, why: TerminationReason, reason: String, by: String },
}

/// The owner's columns of a session, whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch {
    pub status: SessionStatus,
    pub current_phase: Option<String>,
    pub blocked: Option<Blocked>,
    pub error_message: Option<String>,
    pub error_phase: Option<String>,
    pub cancel_seen_at: Option<Timestamp>,
    pub cancelled_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Blocked {
    pub kind: BlockedType,
    pub on: String,
    pub description: String,
    pub since: Timestamp,
    pub timeout_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub patch: Patch,
    /// Whether there is anything to write.
    pub changed: bool,
    pub effects: Vec<Effect>,
    /// Why nothing more happens, in sentences.
    pub waiting: Vec<String>,
    pub wake_at: Option<Timestamp>,
    /// Tasks whose output must be read before it can go on.
    pub wants_output: Vec<(TaskId, ContainerId)>,
    /// There is more to do at once.
    pub again: bool,
}
