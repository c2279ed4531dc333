//! What a session does next: `advance` looks at what is recorded and gives the steps that its owner writes in one
//! transaction, what is to be asked of the world afterwards, and when to look again. It keeps nothing: whoever has the same
//! rows comes to the same steps.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    AttemptRow, BlockedType, FailureReason, PhaseRow, PhaseStatus, Session, SessionStatus, SignalRow,
    TaskRow, WaitRow, WaitStatus,
};
use crate::cascade::template::{self, Scope, TemplateError};
use crate::cascade::{
    Agent, Await, Awaited, Care, Cascade, Command, OnTimeout, Phase, Sensor, TaskWork, Work,
};
use crate::ids::{ContainerId, SessionId, SignalId, TaskId, WaitId};
use crate::state::{ContainerState, Desired, TerminationReason};
use crate::time::plus_seconds;

/// `set` phases that share one transaction: nobody outside can tell the difference.
const SETS_AT_ONCE: usize = 64;
/// How often what a task runs in may die under it.
pub const MOST_CRASHES: i64 = 3;
/// A supervisor ends its own job in time; where there is none, the session does, this much later.
const TIMEOUT_SLACK_SECONDS: i64 = 5;
/// The largest value that a command may give.
pub const LARGEST_OUTPUT_BYTES: usize = 1 << 20;
const CANCEL_GRACE_SECONDS: i64 = 10;

/// What a session was started with beside its cascade.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Surroundings {
    pub workdir: Option<String>,
    pub env: BTreeMap<String, String>,
    pub provider: Option<String>,
    /// One command, as it was given: `parhelia exec`.
    pub exec: bool,
}

/// What was recorded of a session when it was last read or written.
#[derive(Debug, Clone)]
pub struct State {
    pub session: Session,
    pub phases: BTreeMap<usize, PhaseRow>,
    scope: Scope,
    failing: bool,
}

/// What else is known at this moment.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Of phases that are not over, by place.
    pub levels: BTreeMap<usize, Level>,
    pub open: Vec<OpenTask>,
    /// Of phases that are not over.
    pub waits: Vec<WaitRow>,
    /// What its open waits may take, oldest first.
    pub signals: Vec<SignalRow>,
    pub children: BTreeMap<SessionId, Child>,
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
    pub resting: Vec<TaskRow>,
    /// What the completed ones gave, by key; only once nothing else is left.
    pub outputs: Option<BTreeMap<String, Value>>,
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
    /// Its agent needs a person, and why.
    pub waiting: Option<String>,
    /// Its agent has a session that it can go on with.
    pub resumable: bool,
    /// In words, where its end was not an ordinary one.
    pub detail: Option<String>,
}

impl Seen {
    pub fn is_gone(&self) -> bool {
        matches!(self.state, ContainerState::Terminated | ContainerState::Stopped)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    pub status: SessionStatus,
    pub cancel_requested: bool,
    pub cancel_force: bool,
    pub error: Option<String>,
    pub blocked_on: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stdout {
    Text(String),
    TooLarge(u64),
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
    StartAttempt {
        position: usize,
        task: TaskRow,
        run: Run,
    },
    StartVerify {
        position: usize,
        task: TaskId,
        attempt: i64,
        key: String,
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
    Stop { container: ContainerId, grace_seconds: i64, reason: String, by: String },
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

impl State {
    pub fn new(session: Session, inputs: Value, phases: Vec<PhaseRow>) -> Self {
        let outputs = phases
            .iter()
            .filter(|row| row.status.is_passed())
            .map(|row| (row.name.clone(), row.outputs.clone()))
            .collect();
        let about = json!({
            "id": session.session_id, "cascade_id": session.cascade_id, "name": session.name,
            "depth": session.depth,
        });
        let scope = Scope::default()
            .with("inputs", inputs)
            .with("outputs", Value::Object(outputs))
            .with("session", about);
        let failing = phases.iter().any(|row| row.status == PhaseStatus::Failed);
        let phases = phases.into_iter().map(|row| (row.position.max(0) as usize, row)).collect();
        Self { session, phases, scope, failing }
    }

    fn status_of(&self, place: usize) -> Option<PhaseStatus> {
        self.phases.get(&place).map(|row| row.status)
    }

    fn note_outputs(&mut self, name: &str, outputs: &Value) {
        self.scope.note("outputs", name, outputs.clone());
    }

    /// The next steps. `self` becomes what it will be when they are durable; if they cannot be written it must be
    /// read anew.
    pub fn advance(
        &mut self,
        cascade: &Cascade,
        surroundings: &Surroundings,
        facts: &Facts,
        now: Timestamp,
    ) -> Plan {
        let mut planner = Planner {
            cascade,
            surroundings,
            facts,
            now,
            steps: Vec::new(),
            effects: Vec::new(),
            waiting: Vec::new(),
            wake_at: None,
            wants_output: Vec::new(),
            again: false,
            sets: 0,
            started: 0,
            alive: 0,
            opened: Vec::new(),
            closed: BTreeSet::new(),
        };
        let before = patch_of(&self.session);
        let after = if self.session.status.is_over() || self.session.status == SessionStatus::Orphaned {
            before.clone()
        } else if self.session.cancel_requested {
            planner.cancel(self)
        } else {
            planner.go_on(self)
        };
        let changed = !planner.steps.is_empty() || after != before;
        apply(&mut self.session, &after);
        Plan {
            steps: planner.steps,
            patch: after,
            changed,
            effects: planner.effects,
            waiting: planner.waiting,
            wake_at: planner.wake_at,
            wants_output: planner.wants_output,
            again: planner.again,
        }
    }
}

fn patch_of(session: &Session) -> Patch {
    Patch {
        status: session.status,
        current_phase: session.current_phase.clone(),
        blocked: session.blocked_type.map(|kind| Blocked {
            kind,
            on: session.blocked_on.clone().unwrap_or_default(),
            description: session.blocked_description.clone().unwrap_or_default(),
            since: session.blocked_since.unwrap_or(session.updated_at),
            timeout_at: session.blocked_timeout_at,
        }),
        error_message: session.error_message.clone(),
        error_phase: session.error_phase.clone(),
        cancel_seen_at: session.cancel_seen_at,
        cancelled_at: session.cancelled_at,
        completed_at: session.completed_at,
    }
}

fn apply(session: &mut Session, patch: &Patch) {
    session.status = patch.status;
    session.current_phase.clone_from(&patch.current_phase);
    session.blocked_type = patch.blocked.as_ref().map(|b| b.kind);
    session.blocked_on = patch.blocked.as_ref().map(|b| b.on.clone());
    session.blocked_description = patch.blocked.as_ref().map(|b| b.description.clone());
    session.blocked_since = patch.blocked.as_ref().map(|b| b.since);
    session.blocked_timeout_at = patch.blocked.as_ref().and_then(|b| b.timeout_at);
    session.error_message.clone_from(&patch.error_message);
    session.error_phase.clone_from(&patch.error_phase);
    session.cancel_seen_at = patch.cancel_seen_at;
    session.cancelled_at = patch.cancelled_at;
    session.completed_at = patch.completed_at;
}

struct Planner<'a> {
    cascade: &'a Cascade,
    surroundings: &'a Surroundings,
    facts: &'a Facts,
    now: Timestamp,
    steps: Vec<Step>,
    effects: Vec<Effect>,
    waiting: Vec<String>,
    wake_at: Option<Timestamp>,
    wants_output: Vec<(TaskId, ContainerId)>,
    again: bool,
    sets: usize,
    /// Attempts begun in this plan.
    started: usize,
    /// Things of the session that run: it is not blocked while there are any.
    alive: usize,
    /// Waits opened in this plan.
    opened: Vec<Blocked>,
    /// Waits that are over with this plan.
    closed: BTreeSet<WaitId>,
}

/// How what a task ran in looks now.
enum Outcome {
    Alive,
    Done(Option<i64>),
    NeedsPerson(Option<i64>, String),
    Failed(Option<i64>, FailureReason, String),
}

fn outcome(seen: &Seen) -> Outcome {
    use TerminationReason::*;
    if !seen.is_gone() {
        return Outcome::Alive;
    }
    let code = seen.exit_code;
    if let Some(reason) = seen.waiting.as_ref().filter(|_| seen.resumable) {
        return Outcome::NeedsPerson(code, reason.clone());
    }
    let detail = |text: &str| match &seen.detail {
        Some(detail) => format!("{text}: {detail}"),
        None => text.to_owned(),
    };
    let (reason, message) = match seen.reason {
        Some(Completed) => return Outcome::Done(code),
        None if code == Some(0) => return Outcome::Done(code),
        Some(Timeout) => (FailureReason::Timeout, "it took longer than its timeout".to_owned()),
        Some(IdleTimeout) => (FailureReason::Timeout, "it did nothing for too long".to_owned()),
        Some(Manual) => (FailureReason::Cancelled, "somebody ended it".to_owned()),
        Some(StartFailed | CreateFailed) => (FailureReason::TaskFailed, detail("it could not be started")),
        Some(Failed) | None => match code {
            Some(code) => (FailureReason::TaskFailed, format!("it exited with code {code}")),
            None => (FailureReason::WorkerCrash, "it is gone, and nobody knows its exit code".to_owned()),
        },
        Some(Crash) => (FailureReason::TaskFailed, detail("a signal ended it")),
        Some(other) => (FailureReason::WorkerCrash, detail(&format!("what it ran in is gone ({other})"))),
    };
    Outcome::Failed(code, reason, message)
}

impl Planner<'_> {
    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn end_phase(
        &mut self,
        state: &mut State,
        position: usize,
        status: PhaseStatus,
        outputs: Value,
        error: Option<String>,
    ) {
        let Some(phase) = self.cascade.phases.get(position) else { return };
        if status.is_passed() {
            state.note_outputs(&phase.name, &outputs);
        }
        let row = state.phases.entry(position).or_insert_with(|| PhaseRow {
            position: position as i64,
            name: phase.name.clone(),
            status,
            started_at: self.now,
            completed_at: None,
            outputs: Value::Null,
            error: None,
            child_session_id: None,
        });
        state.failing |= status == PhaseStatus::Failed;
        row.status = status;
        row.completed_at = Some(self.now);
        row.outputs = outputs.clone();
        row.error.clone_from(&error);
        self.steps.push(Step::EndPhase { position, status, outputs, error });
    }

    fn fail(&mut self, state: &mut State, position: usize, error: impl Into<String>) {
        self.end_phase(state, position, PhaseStatus::Failed, json!({}), Some(error.into()));
    }

    /// Declared outputs over the ones that a phase has by nature.
    fn outputs_of(
        &self,
        state: &State,
        declared: &BTreeMap<String, Value>,
        by_nature: Value,
        known: &[(&str, Value)],
    ) -> Result<Value, TemplateError> {
        if declared.is_empty() {
            return Ok(by_nature);
        }
        let mut scope = state.scope.clone();
        for (name, value) in known {
            scope = scope.with(name, value.clone());
        }
        let mut all = match by_nature {
            Value::Object(map) => map,
            _ => serde_json::Map::new(),
        };
        for (name, wanted) in declared {
            all.insert(name.clone(), template::value(wanted, &scope)?);
        }
        Ok(Value::Object(all))
    }

    // ---- going on -------------------------------------------------------------------------------------------

    fn go_on(&mut self, state: &mut State) -> Patch {
        let running: Vec<usize> = state
            .phases
            .iter()
            .filter(|(_, row)| row.status == PhaseStatus::Running)
            .map(|(place, _)| *place)
            .collect();
        for place in running {
            self.advance_phase(state, place);
        }
        if !is_failing(state) {
            self.begin_phases(state);
        }
        self.settle(state)
    }

    fn begin_phases(&mut self, state: &mut State) {
        for place in 0..self.cascade.phases.len() {
            if state.phases.contains_key(&place) || is_failing(state) {
                continue;
            }
            let needs = self.cascade.needs(place);
            if !needs.iter().all(|need| state.status_of(*need).is_some_and(PhaseStatus::is_passed)) {
                continue;
            }
            if self.sets >= SETS_AT_ONCE {
                self.again = true;
                return;
            }
            self.begin(state, place);
        }
    }

    fn begin(&mut self, state: &mut State, place: usize) {
        let cascade = self.cascade;
        let Some(phase) = cascade.phases.get(place) else { return };
        match phase.when.as_deref().map(|when| template::holds(when, &state.scope)) {
            Some(Err(error)) => {
                return self.fail(state, place, format!("its 'when' cannot be decided: {error}"));
            }
            Some(Ok(false)) => {
                self.sets += 1;
                return self.end_phase(state, place, PhaseStatus::Skipped, json!({}), None);
            }
            Some(Ok(true)) | None => {}
        }
        let one =
            |title: &str| vec![NewTask { position: 0, key: phase.name.clone(), title: title.to_owned() }];
        match &phase.work {
            Work::Set(values) => {
                self.sets += 1;
                let all: Result<serde_json::Map<_, _>, TemplateError> = values
                    .iter()
                    .map(|(name, wanted)| Ok((name.clone(), template::value(wanted, &state.scope)?)))
                    .collect();
                let made =
                    all.and_then(|all| self.outputs_of(state, &phase.outputs, Value::Object(all), &[]));
                match made {
                    Ok(outputs) => self.end_phase(state, place, PhaseStatus::Completed, outputs, None),
                    Err(error) => self.fail(state, place, format!("a value cannot be made: {error}")),
                }
            }
            Work::Run(_) | Work::Agent(_) => {
                let title = phase.description.as_deref().unwrap_or(&phase.name);
                self.begin_with(state, place, one(title));
            }
            Work::Tasks(tasks) => {
                let tasks = tasks
                    .iter()
                    .enumerate()
                    .map(|(position, task)| NewTask {
                        position,
                        key: task.id.clone(),
                        title: task.title.clone().unwrap_or_else(|| task.id.clone()),
                    })
                    .collect();
                self.begin_with(state, place, tasks);
            }
            Work::Await(wanted) => match self.new_wait(state, phase, wanted) {
                Ok(wait) => {
                    let sensor = matches!(wanted.awaited, Awaited::Sensor(Sensor::Command { .. }));
                    let tasks = if sensor { one(&wait.description) } else { Vec::new() };
                    self.begin_with(state, place, tasks);
                    self.open_wait(place, None, wait);
                    self.again = true;
                }
                Err(error) => self.fail(state, place, format!("what it waits for cannot be said: {error}")),
            },
            Work::Cascade(sub) => {
                let Some(definition) = &sub.definition else {
                    return self.fail(state, place, "its sub-cascade is not part of the definition");
                };
                let given: Result<serde_json::Map<_, _>, TemplateError> = sub
                    .inputs
                    .iter()
                    .map(|(name, wanted)| Ok((name.clone(), template::value(wanted, &state.scope)?)))
                    .collect();
                let given = match given {
                    Ok(given) => given.into_iter().collect(),
                    Err(error) => {
                        return self.fail(state, place, format!("an input cannot be made: {error}"));
                    }
                };
                match crate::cascade::parse::resolve_inputs(definition, &given, &BTreeMap::new()) {
                    Ok(inputs) => {
                        self.begin_with(state, place, Vec::new());
                        self.steps.push(Step::StartChild {
                            position: place,
                            cascade: definition.clone(),
                            inputs: Value::Object(inputs),
                        });
                        self.alive += 1;
                    }
                    Err(mistakes) => self.fail(state, place, mistakes.join("; ")),
                }
            }
        }
    }

    fn begin_with(&mut self, state: &mut State, place: usize, tasks: Vec<NewTask>) {
        let Some(phase) = self.cascade.phases.get(place) else { return };
        // Its tasks are read back with their ids, and begin with the next plan, at once.
        self.again |= !tasks.is_empty();
        self.alive += usize::from(!tasks.is_empty() && !matches!(phase.work, Work::Await(_)));
        state.phases.insert(
            place,
            PhaseRow {
                position: place as i64,
                name: phase.name.clone(),
                status: PhaseStatus::Running,
                started_at: self.now,
                completed_at: None,
                outputs: json!({}),
                error: None,
                child_session_id: None,
            },
        );
        self.steps.push(Step::BeginPhase { position: place, tasks });
    }

    fn advance_phase(&mut self, state: &mut State, place: usize) {
        let cascade = self.cascade;
        let Some(phase) = cascade.phases.get(place) else { return };
        match &phase.work {
            Work::Run(_) | Work::Agent(_) | Work::Tasks(_) => self.advance_level(state, place, phase),
            Work::Await(wanted) => self.advance_wait(state, place, phase, wanted),
            Work::Cascade(_) => self.advance_child(state, place, phase),
            // Begun and completed in one transaction.
            Work::Set(_) => {}
        }
    }

    // ---- tasks ----------------------------------------------------------------------------------------------

    fn advance_level(&mut self, state: &mut State, place: usize, phase: &Phase) {
        let facts = self.facts;
        let nothing = Level::default();
        let level = facts.levels.get(&place).unwrap_or(&nothing);
        let open: Vec<&OpenTask> = facts.open.iter().filter(|open| open.task.phase == phase.name).collect();
        let (mut alive, mut failed) =
            (0, level.failed.as_ref().map(|task| failure_of(&task.key, task.error.as_deref())));
        let mut unsettled = false;
        for task in &open {
            match self.look_at(state, place, phase, task) {
                Look::Alive => alive += 1,
                Look::Unsettled => unsettled = true,
                Look::Failed(message) => failed = failed.or(Some(failure_of(&task.task.key, Some(&message)))),
                Look::Over => {}
            }
        }
        alive += self.answered(state, place, phase, level);
        let failing = failed.is_some() || is_failing(state);
        let most = self.cascade.workers.count.max(1) as usize;
        let running = facts.open.len() + self.started;
        let mut left = level.ready.len();
        if !failing {
            for task in level.ready.iter().take(most.saturating_sub(running)) {
                left -= 1;
                match self.run_of(state, phase, &task.key) {
                    Ok(run) => {
                        self.started += 1;
                        alive += 1;
                        self.steps.push(Step::StartAttempt { position: place, task: task.clone(), run });
                    }
                    Err(error) => {
                        let message = format!("its command cannot be made: {error}");
                        failed = failed.or(Some(failure_of(&task.key, Some(&message))));
                        self.steps.push(Step::FailTask { task: task.clone(), message });
                    }
                }
            }
            if let Some(at) = level.retry_at {
                self.wake(at);
                self.waiting.push(format!("phase {}: a task is tried again at {at}", phase.name));
                left += 1;
            }
        }
        self.alive += alive;
        if alive > 0 {
            self.waiting.push(format!("phase {}: {alive} of its tasks run", phase.name));
        }
        if alive > 0 || unsettled || (left > 0 && !failing) {
            // What comes again is not a wait for somebody outside.
            self.alive += usize::from(alive == 0 && (left > 0 || unsettled));
            return;
        }
        if let Some(message) = failed {
            return self.fail(state, place, message);
        }
        if !level.resting.is_empty() || !open.is_empty() {
            // What has just ended is counted with the next look.
            self.again |= !open.is_empty();
            return;
        }
        let Some(outputs) = &level.outputs else { return };
        let gathered = match &phase.work {
            Work::Tasks(_) => Value::Object(outputs.clone().into_iter().collect()),
            _ => outputs.values().next().cloned().unwrap_or_else(|| json!({})),
        };
        let made = match &phase.work {
            // A level's own outputs see those of its tasks.
            Work::Tasks(_) => {
                self.outputs_of(state, &phase.outputs, gathered.clone(), &[("tasks", gathered)])
            }
            _ => Ok(gathered),
        };
        match made {
            Ok(outputs) => self.end_phase(state, place, PhaseStatus::Completed, outputs, None),
            Err(error) => self.fail(state, place, format!("an output cannot be made: {error}")),
        }
    }

    /// One task that runs.
    fn look_at(&mut self, state: &State, place: usize, phase: &Phase, open: &OpenTask) -> Look {
        let Some((_, care, outputs)) = work_of(phase, &open.task.key) else { return Look::Over };
        let Some(main) = &open.main else {
            // A worker has it.
            return Look::Alive;
        };
        match outcome(main) {
            Outcome::Alive => {
                self.watch(phase, open, main, care);
                Look::Alive
            }
            Outcome::NeedsPerson(exit_code, message) => {
                self.end_attempt(open, AttemptEnd::Waiting { exit_code, message: message.clone() });
                if self.wait_of(&open.task.id).is_none() {
                    self.open_wait(place, Some(open.task.id.clone()), question_of_agent(&message));
                }
                Look::Unsettled
            }
            Outcome::Failed(code, reason, message) => self.failed(state, open, care, code, reason, message),
            Outcome::Done(exit_code) => {
                if let Some(verify) = &care.verify {
                    match open.verify.as_ref().map(outcome) {
                        None => return self.verify(state, place, open, verify, care),
                        Some(Outcome::Alive) => return Look::Alive,
                        Some(Outcome::Done(_)) => {}
                        Some(Outcome::NeedsPerson(code, message) | Outcome::Failed(code, _, message)) => {
                            let reason = FailureReason::VerificationFailed;
                            let message = format!("its verification failed: {message}");
                            return self.failed(state, open, care, code, reason, message);
                        }
                    }
                }
                self.complete(state, open, care, outputs, main, exit_code)
            }
        }
    }

    fn complete(
        &mut self,
        state: &State,
        open: &OpenTask,
        care: &Care,
        declared: &BTreeMap<String, Value>,
        main: &Seen,
        exit_code: Option<i64>,
    ) -> Look {
        let outputs = if declared.is_empty() {
            json!({})
        } else {
            let text = match self.facts.stdout.get(&open.task.id) {
                None => {
                    self.wants_output.push((open.task.id.clone(), main.container.clone()));
                    return Look::Unsettled;
                }
                Some(Stdout::Text(text)) => text,
                Some(Stdout::TooLarge(bytes)) => {
                    let message = format!(
                        "it wrote {bytes} bytes, and a value can have {LARGEST_OUTPUT_BYTES}: write large results to a file and give its name"
                    );
                    return self.failed(state, open, care, exit_code, FailureReason::TaskFailed, message);
                }
                Some(Stdout::Unreadable(why)) => {
                    let message = format!("its output cannot be read: {why}");
                    return self.failed(state, open, care, exit_code, FailureReason::TaskFailed, message);
                }
            };
            let mut known = vec![("stdout", json!(text)), ("exit_code", json!(exit_code))];
            if let Ok(parsed) = serde_json::from_str::<Value>(text.trim()) {
                known.push(("json", parsed));
            }
            match self.outputs_of(state, declared, json!({}), &known) {
                Ok(outputs) => outputs,
                Err(error) => {
                    let message = format!("an output cannot be made: {error}");
                    return self.failed(state, open, care, exit_code, FailureReason::TaskFailed, message);
                }
            }
        };
        self.withdraw_of(&open.task.id);
        self.end_attempt(open, AttemptEnd::Completed { exit_code, outputs });
        Look::Over
    }

    fn end_attempt(&mut self, open: &OpenTask, end: AttemptEnd) {
        self.again = true;
        self.steps.push(Step::EndAttempt { task: open.task.clone(), attempt: open.attempt.attempt, end });
    }

    fn failed(
        &mut self,
        state: &State,
        open: &OpenTask,
        care: &Care,
        exit_code: Option<i64>,
        reason: FailureReason,
        message: String,
    ) -> Look {
        self.withdraw_of(&open.task.id);
        let crashed = reason == FailureReason::WorkerCrash;
        let again = match reason {
            // What one asked for with `exec` is run once, whatever becomes of it.
            _ if self.surroundings.exec => false,
            FailureReason::WorkerCrash => open.task.crash_count < MOST_CRASHES,
            // Somebody ended it on purpose.
            FailureReason::Cancelled => false,
            _ => open.task.retry_count < i64::from(care.retry.max),
        };
        if again && !is_failing(state) {
            let count = if crashed { open.task.crash_count } else { open.task.retry_count } + 1;
            let pause = if crashed { count as f64 } else { care.retry.pause_seconds(count as u32) };
            let at = plus_millis(self.now, (pause * 1000.0) as i64);
            self.end_attempt(open, AttemptEnd::Retried { exit_code, reason, message, at });
            return Look::Unsettled;
        }
        self.end_attempt(open, AttemptEnd::Failed { exit_code, reason, message: message.clone() });
        Look::Failed(message)
    }

    fn verify(
        &mut self,
        state: &State,
        place: usize,
        open: &OpenTask,
        verify: &Command,
        care: &Care,
    ) -> Look {
        let made =
            self.command_of(state, verify).and_then(|command| self.with_care(state, care, command, None));
        match made {
            Ok(run) => {
                self.steps.push(Step::StartVerify {
                    position: place,
                    task: open.task.id.clone(),
                    attempt: open.attempt.attempt,
                    key: open.task.key.clone(),
                    run,
                });
                Look::Alive
            }
            Err(error) => {
                let message = format!("its verification cannot be made: {error}");
                self.failed(state, open, care, None, FailureReason::VerificationFailed, message)
            }
        }
    }

    /// A task that lives: its timeout, and whether its agent asks for somebody.
    fn watch(&mut self, phase: &Phase, open: &OpenTask, main: &Seen, care: &Care) {
        if let Some(seconds) = care.timeout_seconds {
            let began = main.started_at.unwrap_or(open.attempt.started_at);
            let allowed = i64::try_from(seconds).unwrap_or(i64::MAX / 4);
            let due = plus_seconds(began, allowed.saturating_add(TIMEOUT_SLACK_SECONDS));
            if due <= self.now {
                if main.desired == Desired::Running {
                    self.effects.push(Effect::Stop {
                        container: main.container.clone(),
                        grace_seconds: CANCEL_GRACE_SECONDS,
                        reason: format!("its timeout of {seconds}s is over"),
                        by: "its session".to_owned(),
                    });
                }
            } else {
                self.wake(due);
            }
        }
        match (&main.waiting, self.wait_of(&open.task.id)) {
            (Some(reason), None) => {
                let place = open.attempt.phase == phase.name;
                if place && let Some(position) = self.cascade.phases.iter().position(|p| p.name == phase.name)
                {
                    self.open_wait(position, Some(open.task.id.clone()), question_of_agent(reason));
                }
            }
            (None, Some(wait)) if wait.status == WaitStatus::Open => {
                let id = wait.id.clone();
                self.withdraw(id);
            }
            _ => {}
        }
    }

    fn wait_of(&self, task: &TaskId) -> Option<&WaitRow> {
        self.facts.waits.iter().find(|wait| {
            wait.task_id.as_ref() == Some(task)
                && wait.status == WaitStatus::Open
                && !self.closed.contains(&wait.id)
        })
    }

    fn withdraw(&mut self, id: WaitId) {
        if self.closed.insert(id.clone()) {
            self.steps.push(Step::WithdrawWait { wait: id });
        }
    }

    fn withdraw_of(&mut self, task: &TaskId) {
        if let Some(id) = self.wait_of(task).map(|wait| wait.id.clone()) {
            self.withdraw(id);
        }
    }

    /// Agents that rest and have their answer now go on with it. Gives how many.
    fn answered(&mut self, state: &State, place: usize, phase: &Phase, level: &Level) -> usize {
        let facts = self.facts;
        let mut started = 0;
        for task in &level.resting {
            let newest = facts.waits.iter().filter(|w| w.task_id.as_ref() == Some(&task.id)).next_back();
            let Some(wait) = newest else { continue };
            match wait.status {
                WaitStatus::Open => {
                    self.waiting.push(format!("task {}: {}", task.key, wait.description));
                }
                WaitStatus::Answered | WaitStatus::TimedOut => {
                    let answer = match &wait.answer {
                        Some(Value::String(text)) => text.clone(),
                        Some(other) => other.to_string(),
                        None => String::new(),
                    };
                    if let Ok(mut run) = self.run_of(state, phase, &task.key) {
                        let before = wait.question.get("container").and_then(Value::as_str);
                        run.resume = before
                            .and_then(|id| ContainerId::parse(id).ok())
                            .map(|container| (container, answer));
                        self.started += 1;
                        started += 1;
                        self.steps.push(Step::StartAttempt { position: place, task: task.clone(), run });
                    }
                }
                WaitStatus::Withdrawn => {}
            }
        }
        started
    }

    // ---- commands -------------------------------------------------------------------------------------------

    fn command_of(&self, state: &State, command: &Command) -> Result<Vec<String>, TemplateError> {
        match command {
            Command::Line(line) => Ok(vec!["sh".to_owned(), "-c".to_owned(), line.clone()]),
            Command::Vector(parts) if self.surroundings.exec => Ok(parts.clone()),
            Command::Vector(parts) => parts.iter().map(|part| template::text(part, &state.scope)).collect(),
        }
    }

    fn run_of(&self, state: &State, phase: &Phase, key: &str) -> Result<Run, TemplateError> {
        let Some((work, care, _)) = work_of(phase, key) else {
            let reason = format!("the cascade has no task '{key}'");
            return Err(TemplateError { shown: phase.name.clone(), reason });
        };
        let (command, engine) = match work {
            Doing::Run(command) => (self.command_of(state, command)?, None),
            Doing::Agent(agent) => {
                let mut command = vec![template::text(&agent.prompt, &state.scope)?];
                for argument in &agent.arguments {
                    command.push(template::text(argument, &state.scope)?);
                }
                (command, Some(agent.engine.clone()))
            }
        };
        self.with_care(state, care, command, engine)
    }

    fn with_care(
        &self,
        state: &State,
        care: &Care,
        command: Vec<String>,
        engine: Option<String>,
    ) -> Result<Run, TemplateError> {
        let mut env = self.surroundings.env.clone();
        for (name, wanted) in &care.env {
            env.insert(name.clone(), template::text(wanted, &state.scope)?);
        }
        let workdir = match &care.workdir {
            Some(wanted) => Some(template::text(wanted, &state.scope)?),
            None => self.surroundings.workdir.clone(),
        };
        Ok(Run { command, engine, env, workdir, timeout_seconds: care.timeout_seconds, resume: None })
    }

    // ---- waits ----------------------------------------------------------------------------------------------

    fn new_wait(&self, state: &State, phase: &Phase, wanted: &Await) -> Result<NewWait, TemplateError> {
        let scope = &state.scope;
        let (wait_type, wait_on, question, asked) = match &wanted.awaited {
            Awaited::Signal(name) => {
                let name = template::text(name, scope)?;
                (BlockedType::Signal, name.clone(), json!({}), format!("the signal '{name}'"))
            }
            Awaited::Hitl(question) => {
                let asked = template::text(&question.question, scope)?;
                let mut as_json = serde_json::to_value(question).unwrap_or_default();
                as_json["question"] = json!(asked);
                (BlockedType::Hitl, question.kind.to_string(), as_json, asked)
            }
            Awaited::Approval(what) => {
                let what = template::text(what, scope)?;
                (BlockedType::Approval, what.clone(), json!({ "kind": "approval", "question": what }), what)
            }
            Awaited::Checkpoint(what) => {
                let what = template::text(what, scope)?;
                (
                    BlockedType::Checkpoint,
                    what.clone(),
                    json!({ "kind": "checkpoint", "question": what }),
                    what,
                )
            }
            Awaited::Sensor(Sensor::Command { .. }) => (
                BlockedType::Sensor,
                "command".to_owned(),
                json!({}),
                format!("the sensor of phase {}", phase.name),
            ),
            Awaited::Sensor(Sensor::Time { at, after_seconds }) => {
                let at = match (at, after_seconds) {
                    (Some(at), _) => {
                        let text = template::text(at, scope)?;
                        text.parse::<Timestamp>().map_err(|e| TemplateError {
                            shown: text,
                            reason: format!("it is not a time such as 2026-01-31T12:00:00Z: {e}"),
                        })?
                    }
                    (None, seconds) => {
                        let seconds = i64::try_from(seconds.unwrap_or(0)).unwrap_or(i64::MAX / 4);
                        plus_seconds(self.now, seconds)
                    }
                };
                (BlockedType::Sensor, format!("time {at}"), json!({ "at": at }), format!("{at}"))
            }
        };
        let description = match &wanted.description {
            Some(text) => template::text(text, scope)?,
            None => asked,
        };
        let deadline = phase
            .care
            .timeout_seconds
            .map(|seconds| plus_seconds(self.now, i64::try_from(seconds).unwrap_or(i64::MAX / 4)));
        let default_value = wanted.default.as_ref().map(|value| template::value(value, scope)).transpose()?;
        Ok(NewWait {
            wait_type,
            wait_on,
            description,
            question,
            on_timeout: wanted.on_timeout,
            default_value,
            deadline,
        })
    }

    fn open_wait(&mut self, position: usize, task: Option<TaskId>, mut wait: NewWait) {
        if let Some(task) = &task {
            let open = self.facts.open.iter().find(|open| open.task.id == *task);
            if let Some(container) = open.and_then(|open| open.attempt.container_id.as_ref()) {
                wait.question["container"] = json!(container);
            }
        }
        self.opened.push(Blocked {
            kind: wait.wait_type,
            on: wait.wait_on.clone(),
            description: wait.description.clone(),
            since: self.now,
            timeout_at: wait.deadline,
        });
        self.steps.push(Step::OpenWait { position, task, wait });
    }

    fn advance_wait(&mut self, state: &mut State, place: usize, phase: &Phase, wanted: &Await) {
        let facts = self.facts;
        let mine = |wait: &&WaitRow| wait.phase == phase.name && wait.task_id.is_none();
        let Some(wait) = facts.waits.iter().filter(mine).next_back() else { return };
        match wait.status {
            WaitStatus::Answered => self.take_answer(state, place, phase, wait, wait.answer.clone()),
            WaitStatus::Open => {
                if wait.wait_type == BlockedType::Signal
                    && let Some(signal) = facts.signals.iter().find(|s| deliverable(s, wait, &state.session))
                {
                    self.closed.insert(wait.id.clone());
                    self.steps.push(Step::Deliver {
                        signal: signal.id.clone(),
                        wait: wait.id.clone(),
                        name: signal.name.clone(),
                        payload: signal.payload.clone(),
                    });
                    self.take_answer(state, place, phase, wait, Some(signal.payload.clone()));
                    return;
                }
                if is_failing(state) {
                    self.withdraw(wait.id.clone());
                    self.end_phase(state, place, PhaseStatus::Cancelled, json!({}), None);
                    return;
                }
                if self.sensed(state, place, phase, wanted, wait) {
                    return;
                }
                if let Some(deadline) = wait.deadline {
                    if deadline <= self.now {
                        return self.time_out(state, place, phase, wait, wanted.on_timeout);
                    }
                    self.wake(deadline);
                }
                self.waiting.push(format!("phase {}: waits for {}", phase.name, wait.description));
            }
            WaitStatus::TimedOut => self.time_out(state, place, phase, wait, wanted.on_timeout),
            WaitStatus::Withdrawn => self.end_phase(state, place, PhaseStatus::Cancelled, json!({}), None),
        }
    }

    fn take_answer(
        &mut self,
        state: &mut State,
        place: usize,
        phase: &Phase,
        wait: &WaitRow,
        answer: Option<Value>,
    ) {
        self.closed.insert(wait.id.clone());
        let given = answer.unwrap_or(Value::Null);
        let denied = matches!(wait.wait_type, BlockedType::Approval | BlockedType::Checkpoint)
            && given == Value::Bool(false);
        if denied {
            let who = wait.answered_by.as_deref().unwrap_or("somebody");
            let why = wait.answer_reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            return self.fail(state, place, format!("denied by {who}{why}"));
        }
        let by = json!(wait.answered_by);
        let nature = match wait.wait_type {
            BlockedType::Signal => json!({ "payload": given, "timed_out": false }),
            BlockedType::Approval | BlockedType::Checkpoint => {
                json!({ "approved": true, "by": by, "reason": wait.answer_reason, "timed_out": false })
            }
            _ => json!({ "answer": given, "by": by, "timed_out": false }),
        };
        let known = [("answer", given.clone()), ("payload", given), ("answered_by", by)];
        match self.outputs_of(state, &phase.outputs, nature, &known) {
            Ok(outputs) => self.end_phase(state, place, PhaseStatus::Completed, outputs, None),
            Err(error) => self.fail(state, place, format!("an output cannot be made: {error}")),
        }
    }

    fn time_out(&mut self, state: &mut State, place: usize, phase: &Phase, wait: &WaitRow, then: OnTimeout) {
        if wait.status == WaitStatus::Open {
            self.closed.insert(wait.id.clone());
            self.steps.push(Step::TimeOutWait {
                wait: wait.id.clone(),
                description: wait.description.clone(),
                then,
            });
        }
        let given = match then {
            OnTimeout::Fail => {
                let message =
                    format!("nobody answered '{}' in time (a timeout is not a denial)", wait.description);
                return self.fail(state, place, message);
            }
            OnTimeout::Continue => Value::Null,
            OnTimeout::Default => wait.default_value.clone().unwrap_or(Value::Null),
        };
        let nature = match wait.wait_type {
            BlockedType::Signal => json!({ "payload": given, "timed_out": true }),
            BlockedType::Approval | BlockedType::Checkpoint => {
                json!({ "approved": given == Value::Bool(true), "timed_out": true })
            }
            _ => json!({ "answer": given, "timed_out": true }),
        };
        let known = [("answer", given.clone()), ("payload", given), ("answered_by", Value::Null)];
        match self.outputs_of(state, &phase.outputs, nature, &known) {
            Ok(outputs) => self.end_phase(state, place, PhaseStatus::Completed, outputs, None),
            Err(error) => self.fail(state, place, format!("an output cannot be made: {error}")),
        }
    }

    /// Whether a sensor has seen what it looks for (and the phase is over).
    fn sensed(
        &mut self,
        state: &mut State,
        place: usize,
        phase: &Phase,
        wanted: &Await,
        wait: &WaitRow,
    ) -> bool {
        let facts = self.facts;
        match &wanted.awaited {
            Awaited::Sensor(Sensor::Time { .. }) => {
                let at = wait
                    .question
                    .get("at")
                    .and_then(Value::as_str)
                    .and_then(|at| at.parse::<Timestamp>().ok());
                match at {
                    Some(at) if at > self.now => {
                        self.wake(at);
                        false
                    }
                    _ => {
                        self.withdraw(wait.id.clone());
                        self.end_phase(
                            state,
                            place,
                            PhaseStatus::Completed,
                            json!({ "timed_out": false }),
                            None,
                        );
                        true
                    }
                }
            }
            Awaited::Sensor(Sensor::Command { run, every_seconds }) => {
                if let Some(open) = facts.open.iter().find(|open| open.task.phase == phase.name) {
                    let Some(main) = &open.main else { return false };
                    match outcome(main) {
                        Outcome::Alive => {}
                        Outcome::Done(exit_code) => {
                            self.end_attempt(open, AttemptEnd::Completed { exit_code, outputs: json!({}) });
                            self.withdraw(wait.id.clone());
                            let outputs = json!({ "timed_out": false });
                            self.end_phase(state, place, PhaseStatus::Completed, outputs, None);
                            return true;
                        }
                        Outcome::NeedsPerson(exit_code, _) | Outcome::Failed(exit_code, _, _) => {
                            let every = i64::try_from(*every_seconds).unwrap_or(60).max(1);
                            let at = plus_seconds(self.now, every);
                            self.end_attempt(open, AttemptEnd::NotYet { exit_code, at });
                        }
                    }
                    return false;
                }
                let Some(level) = facts.levels.get(&place) else { return false };
                if let Some(task) = level.ready.first() {
                    let made = self
                        .command_of(state, run)
                        .and_then(|command| self.with_care(state, &phase.care, command, None));
                    match made {
                        Ok(mut run) => {
                            run.timeout_seconds = None;
                            self.steps.push(Step::StartAttempt { position: place, task: task.clone(), run });
                        }
                        Err(error) => {
                            self.withdraw(wait.id.clone());
                            self.fail(state, place, format!("its command cannot be made: {error}"));
                            return true;
                        }
                    }
                } else if let Some(at) = level.retry_at {
                    self.wake(at);
                }
                false
            }
            _ => false,
        }
    }

    // ---- sub-cascades ---------------------------------------------------------------------------------------

    fn advance_child(&mut self, state: &mut State, place: usize, phase: &Phase) {
        let id = state.phases.get(&place).and_then(|row| row.child_session_id.clone());
        let Some(id) = id else { return };
        let facts = self.facts;
        let Some(child) = facts.children.get(&id) else {
            self.alive += 1;
            return;
        };
        match child.status {
            SessionStatus::Completed => {
                let given = facts.levels.get(&place).and_then(|level| level.outputs.as_ref());
                let nature =
                    given.map_or_else(|| json!({}), |all| Value::Object(all.clone().into_iter().collect()));
                match self.outputs_of(state, &phase.outputs, nature.clone(), &[("result", nature)]) {
                    Ok(outputs) => self.end_phase(state, place, PhaseStatus::Completed, outputs, None),
                    Err(error) => self.fail(state, place, format!("an output cannot be made: {error}")),
                }
            }
            SessionStatus::Error => {
                let why = child.error.as_deref().unwrap_or("it failed");
                self.fail(state, place, format!("{id}: {why}"));
            }
            SessionStatus::Cancelled => self.fail(state, place, format!("{id} was cancelled")),
            status => {
                self.alive += 1;
                if is_failing(state) && !child.cancel_requested {
                    self.steps.push(Step::CancelChild { child: id.clone() });
                }
                let why = match (&child.blocked_on, status) {
                    (Some(on), SessionStatus::Blocked) => format!("blocked on {on}"),
                    _ => status.to_string(),
                };
                self.waiting.push(format!("phase {}: {id} is {why}", phase.name));
            }
        }
    }

    // ---- how it stands --------------------------------------------------------------------------------------

    fn settle(&mut self, state: &mut State) -> Patch {
        let mut patch = patch_of(&state.session);
        let running = |state: &State| {
            state.phases.values().find(|row| row.status == PhaseStatus::Running).map(|row| row.name.clone())
        };
        let failed = state.phases.values().find(|row| row.status == PhaseStatus::Failed);
        let failed = failed.map(|row| (row.name.clone(), row.error.clone().unwrap_or_default()));
        if let Some((name, message)) = failed {
            if self.alive == 0 && self.facts.open.is_empty() && self.wants_output.is_empty() {
                let rest: Vec<usize> = state
                    .phases
                    .iter()
                    .filter(|(_, row)| row.status == PhaseStatus::Running)
                    .map(|(place, _)| *place)
                    .collect();
                for place in rest {
                    self.withdraw_phase(state, place);
                    self.end_phase(state, place, PhaseStatus::Cancelled, json!({}), None);
                }
                patch.status = SessionStatus::Error;
                patch.blocked = None;
                patch.current_phase = Some(name.clone());
                patch.error_message = Some(message);
                patch.error_phase = Some(name);
                patch.completed_at = Some(self.now);
                return patch;
            }
            self.waiting.push(format!("phase {name} has failed; what still runs is waited for"));
        } else if state.phases.len() == self.cascade.phases.len()
            && state.phases.values().all(|row| row.status.is_passed())
        {
            return self.completed(state, patch);
        } else if state.phases.values().any(|row| row.status == PhaseStatus::Cancelled) && self.alive == 0 {
            // Only a cancelled session has these; a record that says otherwise is not gone on with.
            patch.status = SessionStatus::Error;
            patch.error_message = Some("a phase was cancelled".to_owned());
            patch.completed_at = Some(self.now);
            return patch;
        }
        patch.current_phase = running(state).or(patch.current_phase);
        let oldest = self.oldest_wait();
        match oldest {
            Some(blocked) if self.alive == 0 && self.wants_output.is_empty() => {
                patch.status = SessionStatus::Blocked;
                let same = patch.blocked.as_ref().is_some_and(|earlier| {
                    (earlier.kind, &earlier.on, &earlier.description)
                        == (blocked.kind, &blocked.on, &blocked.description)
                });
                if !same {
                    patch.blocked = Some(blocked);
                }
            }
            _ => {
                patch.status = SessionStatus::Running;
                patch.blocked = None;
            }
        }
        patch
    }

    fn oldest_wait(&self) -> Option<Blocked> {
        let open = self
            .facts
            .waits
            .iter()
            .filter(|wait| wait.status == WaitStatus::Open && !self.closed.contains(&wait.id));
        let open = open.map(|wait| Blocked {
            kind: wait.wait_type,
            on: wait.wait_on.clone(),
            description: wait.description.clone(),
            since: wait.since,
            timeout_at: wait.deadline,
        });
        open.chain(self.opened.iter().cloned()).min_by_key(|blocked| blocked.since)
    }

    fn completed(&mut self, state: &State, mut patch: Patch) -> Patch {
        patch.blocked = None;
        patch.completed_at = Some(self.now);
        let made: Result<serde_json::Map<_, _>, TemplateError> = self
            .cascade
            .outputs
            .iter()
            .map(|(name, wanted)| Ok((name.clone(), template::value(wanted, &state.scope)?)))
            .collect();
        match made {
            Ok(outputs) => {
                if !outputs.is_empty() {
                    self.steps.push(Step::Outputs { outputs: Value::Object(outputs) });
                }
                patch.status = SessionStatus::Completed;
            }
            Err(error) => {
                patch.status = SessionStatus::Error;
                patch.error_message = Some(format!("an output of the session cannot be made: {error}"));
            }
        }
        patch
    }

    // ---- being cancelled ------------------------------------------------------------------------------------

    fn cancel(&mut self, state: &mut State) -> Patch {
        let facts = self.facts;
        let session = &state.session;
        let grace = if session.cancel_force {
            0
        } else {
            session.cancel_grace_seconds.unwrap_or(CANCEL_GRACE_SECONDS)
        };
        let reason = session.cancel_reason.clone().unwrap_or_else(|| "its session was cancelled".to_owned());
        let by = session.cancel_requested_by.clone().unwrap_or_else(|| "its session".to_owned());
        let force = session.cancel_force;
        for id in facts.waits.iter().filter(|w| w.status == WaitStatus::Open).map(|w| w.id.clone()) {
            self.withdraw(id);
        }
        let mut left = 0;
        for open in &facts.open {
            let seen = [open.main.as_ref(), open.verify.as_ref()];
            let living: Vec<&Seen> = seen.into_iter().flatten().filter(|seen| !seen.is_gone()).collect();
            if living.is_empty() && (open.main.is_some() || open.attempt.worker_id.is_none()) {
                self.steps.push(Step::EndAttempt {
                    task: open.task.clone(),
                    attempt: open.attempt.attempt,
                    end: AttemptEnd::Cancelled,
                });
                continue;
            }
            left += 1;
            for seen in living {
                self.waiting.push(format!("{} of task {} is being ended", seen.container, open.task.key));
                if seen.desired == Desired::Running || force {
                    self.effects.push(Effect::Stop {
                        container: seen.container.clone(),
                        grace_seconds: grace,
                        reason: reason.clone(),
                        by: by.clone(),
                    });
                }
            }
        }
        for (id, child) in facts.children.iter().filter(|(_, child)| !child.status.is_over()) {
            left += 1;
            self.waiting.push(format!("{id} is being cancelled"));
            if !child.cancel_requested || (force && !child.cancel_force) {
                self.steps.push(Step::CancelChild { child: id.clone() });
            }
        }
        let mut patch = patch_of(&state.session);
        patch.cancel_seen_at = patch.cancel_seen_at.or(Some(self.now));
        patch.blocked = None;
        if patch.status == SessionStatus::Blocked {
            patch.status = SessionStatus::Running;
        }
        if left == 0 {
            let rest: Vec<usize> = state
                .phases
                .iter()
                .filter(|(_, row)| row.status == PhaseStatus::Running)
                .map(|(place, _)| *place)
                .collect();
            for place in rest {
                self.end_phase(state, place, PhaseStatus::Cancelled, json!({}), None);
            }
            patch.status = SessionStatus::Cancelled;
            patch.cancelled_at = Some(self.now);
            patch.completed_at = Some(self.now);
        }
        patch
    }

    fn withdraw_phase(&mut self, state: &State, place: usize) {
        let Some(name) = state.phases.get(&place).map(|row| row.name.clone()) else { return };
        let open: Vec<WaitId> = self
            .facts
            .waits
            .iter()
            .filter(|wait| wait.phase == name && wait.status == WaitStatus::Open)
            .map(|wait| wait.id.clone())
            .collect();
        for id in open {
            self.withdraw(id);
        }
    }
}

enum Look {
    Alive,
    /// Its attempt is over, and it is not.
    Unsettled,
    Failed(String),
    Over,
}

enum Doing<'a> {
    Run(&'a Command),
    Agent(&'a Agent),
}

fn work_of<'a>(phase: &'a Phase, key: &str) -> Option<(Doing<'a>, &'a Care, &'a BTreeMap<String, Value>)> {
    match &phase.work {
        Work::Run(command) => Some((Doing::Run(command), &phase.care, &phase.outputs)),
        Work::Agent(agent) => Some((Doing::Agent(agent), &phase.care, &phase.outputs)),
        Work::Tasks(tasks) => {
            let task = tasks.iter().find(|task| task.id == key)?;
            let doing = match &task.work {
                TaskWork::Run(command) => Doing::Run(command),
                TaskWork::Agent(agent) => Doing::Agent(agent),
            };
            Some((doing, &task.care, &task.outputs))
        }
        _ => None,
    }
}

/// Something has failed for good: nothing new begins.
fn is_failing(state: &State) -> bool {
    state.failing
}

fn failure_of(key: &str, error: Option<&str>) -> String {
    format!("task {key}: {}", error.unwrap_or("it failed"))
}

fn question_of_agent(reason: &str) -> NewWait {
    NewWait {
        wait_type: BlockedType::Hitl,
        wait_on: "agent".to_owned(),
        description: reason.to_owned(),
        question: json!({ "kind": "text", "question": reason }),
        on_timeout: OnTimeout::Fail,
        default_value: None,
        deadline: None,
    }
}

/// Whether a wait may take a signal: one for its session, or one for everybody that was fired while it was open or that
/// nobody has taken.
fn deliverable(signal: &SignalRow, wait: &WaitRow, session: &Session) -> bool {
    if signal.name != wait.wait_on {
        return false;
    }
    match &signal.session_id {
        Some(id) => *id == session.session_id && signal.deliveries == 0,
        None => signal.deliveries == 0 || signal.fired_at >= wait.since,
    }
}

fn plus_millis(at: Timestamp, millis: i64) -> Timestamp {
    at.checked_add(jiff::SignedDuration::from_millis(millis)).unwrap_or(at)
}
