//! A session in memory: its rows, and a world in which what it starts ends as the test says.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::*;
use crate::cascade::Cascade;
use crate::ids::{ContainerId, SessionId, SignalId, TaskId, WaitId};
use crate::session::{
    AttemptRow, AttemptStatus, FailureReason, SignalRow, TaskRow, TaskStatus, WaitRow, WaitStatus,
};
use crate::state::{ContainerState, Desired, TerminationReason};

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

pub(super) struct World {
    pub(super) cascade: Cascade,
    pub(super) state: State,
    pub(super) tasks: BTreeMap<TaskId, TaskRow>,
    pub(super) open: BTreeMap<TaskId, OpenTask>,
    pub(super) waits: Vec<WaitRow>,
    pub(super) signals: Vec<SignalRow>,
    pub(super) stdout: BTreeMap<TaskId, Stdout>,
    pub(super) now: Timestamp,
    pub(super) next: u64,
    /// Every attempt that was started: phase, key and number.
    pub(super) started: Vec<(String, String, i64)>,
    pub(super) surroundings: Surroundings,
    /// The directory of the attempt that was started last.
    pub(super) workdir: Option<String>,
    pub(super) stops: Vec<ContainerId>,
    pub(super) workers: Vec<Seen>,
    /// What the last attempt of each task ran in.
    pub(super) ran_in: BTreeMap<TaskId, ContainerId>,
}

impl World {
    pub(super) fn new(cascade: &Value) -> Self {
        let cascade: Cascade = serde_json::from_value(cascade.clone()).unwrap();
        let session = Session {
            session_id: SessionId::mint(1, 1),
            cascade_id: cascade.cascade_id.clone(),
            parent_session_id: None,
            parent_phase: None,
            name: None,
            status: SessionStatus::Starting,
            current_phase: None,
            depth: 0,
            blocked_type: None,
            blocked_on: None,
            blocked_description: None,
            blocked_since: None,
            blocked_timeout_at: None,
            heartbeat_at: at(0),
            heartbeat_lease_seconds: 60,
            cancel_requested: false,
            cancel_reason: None,
            cancel_requested_at: None,
            cancel_requested_by: None,
            cancel_force: false,
            cancel_grace_seconds: None,
            cancel_seen_at: None,
            cancelled_at: None,
            error_message: None,
            error_phase: None,
            last_checkpoint_id: None,
            resumable: true,
            auto_resume: true,
            origin_id: None,
            origin_phase: None,
            started_at: at(0),
            completed_at: None,
            updated_at: at(0),
            created_by: "ann".to_owned(),
            metadata: json!({}),
            owner_id: Some("o".to_owned()),
            owner_epoch: 1,
        };
        Self {
            cascade,
            state: State::new(session, json!({ "n": 3 }), Vec::new()),
            tasks: BTreeMap::new(),
            open: BTreeMap::new(),
            waits: Vec::new(),
            signals: Vec::new(),
            stdout: BTreeMap::new(),
            now: at(0),
            next: 1,
            started: Vec::new(),
            surroundings: Surroundings::default(),
            workdir: None,
            stops: Vec::new(),
            workers: Vec::new(),
            ran_in: BTreeMap::new(),
        }
    }

    pub(super) fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn facts(&self) -> Facts {
        let mut facts = Facts {
            open: self.open.values().cloned().collect(),
            signals: self.for_waits(),
            stdout: self.stdout.clone(),
            workers: self.workers.clone(),
            ..Facts::default()
        };
        for (place, row) in &self.state.phases {
            if row.status != PhaseStatus::Running {
                continue;
            }
            facts.waits.extend(self.waits.iter().filter(|w| w.phase == row.name).cloned());
            let of = |state: TaskStatus| {
                self.tasks.values().filter(move |t| t.phase == row.name && t.state == state)
            };
            let is_due = |task: &&TaskRow| task.retry_at.is_none_or(|at| at <= self.now);
            let rests = |task: &&TaskRow| !self.open.contains_key(&task.id);
            let resting = of(TaskStatus::Running)
                .filter(rests)
                .map(|task| Resting { task: task.clone(), container: self.ran_in.get(&task.id).cloned() })
                .collect();
            let level = Level {
                ready: of(TaskStatus::Pending).filter(is_due).cloned().collect(),
                retry_at: of(TaskStatus::Pending)
                    .filter_map(|t| t.retry_at)
                    .filter(|at| *at > self.now)
                    .min(),
                failed: of(TaskStatus::Failed).next().cloned(),
                resting,
                outputs: Some(
                    of(TaskStatus::Completed).map(|t| (t.key.clone(), t.outputs.clone())).collect(),
                ),
            };
            facts.levels.insert(*place, level);
        }
        facts
    }

    /// As the store would say it: none of these tests fires one for everybody while somebody else waits.
    fn for_waits(&self) -> Vec<(WaitId, SignalRow)> {
        let open = self.waits.iter().filter(|wait| wait.status == WaitStatus::Open);
        open.filter_map(|wait| {
            let signal = self.signals.iter().find(|s| s.name == wait.wait_on && s.deliveries == 0)?;
            Some((wait.id.clone(), signal.clone()))
        })
        .collect()
    }

    /// Plans and applies until nothing changes; gives the last plan.
    pub(super) fn settle(&mut self) -> Plan {
        for _ in 0..200 {
            let facts = self.facts();
            let plan = self.state.advance(&self.cascade.clone(), &self.surroundings, &facts, self.now);
            for Effect::Stop { container, .. } in &plan.effects {
                self.stops.push(container.clone());
            }
            if !plan.changed && !plan.again {
                return plan;
            }
            for step in plan.steps.clone() {
                self.apply(step);
            }
            if !plan.wants_output.is_empty() {
                return plan;
            }
        }
        panic!("it does not come to rest");
    }

    pub(super) fn apply(&mut self, step: Step) {
        let name = |world: &Self, place: usize| world.cascade.phases[place].name.clone();
        match step {
            Step::BeginPhase { position, tasks } => {
                for task in tasks {
                    let id = TaskId::mint(1, self.id());
                    let phase = name(self, position);
                    let session = self.state.session.session_id.clone();
                    let row = TaskRow {
                        position: task.position as i64,
                        ..TaskRow::pending(id.clone(), session, &phase, &task.key, task.title)
                    };
                    self.tasks.insert(id, row);
                }
            }
            Step::StartAttempt { task, run, .. } => {
                self.workdir = run.workdir;
                let container = ContainerId::mint(1, self.id());
                let row = self.tasks.get_mut(&task.id).unwrap();
                assert!(!self.open.contains_key(&task.id), "one attempt at a time");
                row.attempt += 1;
                row.state = TaskStatus::Running;
                row.retry_at = None;
                self.started.push((row.phase.clone(), row.key.clone(), row.attempt));
                self.ran_in.insert(task.id.clone(), container.clone());
                let attempt = AttemptRow {
                    task_id: task.id.clone(),
                    attempt: row.attempt,
                    session_id: row.session_id.clone(),
                    phase: row.phase.clone(),
                    status: AttemptStatus::Running,
                    container_id: Some(container.clone()),
                    verify_container_id: None,
                    worker_id: None,
                    exit_code: None,
                    failure_reason: None,
                    message: None,
                    started_at: self.now,
                    ended_at: None,
                };
                let open = OpenTask { task: row.clone(), attempt, main: Some(seen(container)), verify: None };
                self.open.insert(task.id, open);
            }
            Step::StartVerify { task, .. } => {
                let container = ContainerId::mint(1, self.id());
                self.open.get_mut(&task.id).unwrap().verify = Some(seen(container));
            }
            Step::EndAttempt { task, end, .. } => {
                self.open.remove(&task.id);
                let row = self.tasks.get_mut(&task.id).unwrap();
                match end {
                    AttemptEnd::Completed { outputs, .. } => {
                        (row.state, row.outputs) = (TaskStatus::Completed, outputs);
                    }
                    AttemptEnd::Retried { reason, at, .. } => {
                        row.state = TaskStatus::Pending;
                        row.retry_at = Some(at);
                        if reason == FailureReason::WorkerCrash {
                            row.crash_count += 1;
                        } else {
                            row.retry_count += 1;
                        }
                    }
                    AttemptEnd::NotYet { at, .. } => {
                        (row.state, row.retry_at) = (TaskStatus::Pending, Some(at));
                    }
                    AttemptEnd::Failed { message, .. } => {
                        (row.state, row.error) = (TaskStatus::Failed, Some(message));
                    }
                    AttemptEnd::Waiting { .. } => {}
                    AttemptEnd::Cancelled => row.state = TaskStatus::Cancelled,
                }
            }
            Step::FailTask { task, message } => {
                let row = self.tasks.get_mut(&task.id).unwrap();
                (row.state, row.error) = (TaskStatus::Failed, Some(message));
            }
            Step::OpenWait { position, task, wait } => {
                let row = WaitRow {
                    id: WaitId::mint(1, self.id()),
                    session_id: self.state.session.session_id.clone(),
                    phase: name(self, position),
                    task_id: task,
                    wait_type: wait.wait_type,
                    wait_on: wait.wait_on,
                    description: wait.description,
                    question: wait.question,
                    on_timeout: wait.on_timeout.to_string(),
                    default_value: wait.default_value,
                    since: self.now,
                    deadline: wait.deadline,
                    status: WaitStatus::Open,
                    answer: None,
                    answered_by: None,
                    answer_reason: None,
                    answered_at: None,
                    signal_id: None,
                };
                self.waits.push(row);
            }
            Step::Deliver { signal, wait, payload, .. } => {
                let fired = self.signals.iter_mut().find(|s| s.id == signal).unwrap();
                fired.deliveries += 1;
                let row = self.wait(&wait);
                (row.status, row.answer) = (WaitStatus::Answered, Some(payload));
            }
            Step::TimeOutWait { wait, .. } => self.wait(&wait).status = WaitStatus::TimedOut,
            Step::WithdrawWait { wait } => self.wait(&wait).status = WaitStatus::Withdrawn,
            Step::FulfilWait { wait } => self.wait(&wait).status = WaitStatus::Answered,
            Step::StartWorker => {
                let container = ContainerId::mint(1, self.id());
                self.workers.push(seen(container));
            }
            Step::EndPhase { .. } | Step::Outputs { .. } => {}
            Step::StartChild { .. } | Step::CancelChild { .. } => panic!("no sub-cascades here"),
        }
    }

    pub(super) fn wait(&mut self, id: &WaitId) -> &mut WaitRow {
        self.waits.iter_mut().find(|wait| wait.id == *id).unwrap()
    }

    pub(super) fn answer(&mut self, answer: Value) {
        let wait = self.waits.iter_mut().rev().find(|wait| wait.status == WaitStatus::Open).unwrap();
        wait.status = WaitStatus::Answered;
        wait.answer = Some(answer);
        wait.answered_by = Some("bob".to_owned());
    }

    pub(super) fn fire(&mut self, name: &str, addressed: bool) {
        let signal = SignalRow {
            id: SignalId::mint(1, self.id()),
            name: name.to_owned(),
            session_id: addressed.then(|| self.state.session.session_id.clone()),
            payload: json!({ "x": 1 }),
            fired_at: self.now,
            fired_by: "ann".to_owned(),
            deliveries: 0,
            delivered_at: None,
        };
        self.signals.push(signal);
    }

    /// What runs for this task ends so.
    pub(super) fn end(&mut self, key: &str, reason: TerminationReason, exit_code: Option<i64>) {
        let open = self.open.values_mut().find(|open| open.task.key == key).unwrap();
        let verifies = open.verify.is_some();
        let seen = if verifies { open.verify.as_mut() } else { open.main.as_mut() };
        let seen = seen.unwrap();
        (seen.state, seen.reason, seen.exit_code) = (ContainerState::Terminated, Some(reason), exit_code);
    }

    pub(super) fn done(&mut self, key: &str) -> Plan {
        self.end(key, TerminationReason::Completed, Some(0));
        self.settle()
    }

    pub(super) fn status(&self) -> SessionStatus {
        self.state.session.status
    }

    /// How many; each is asked until it is seen.
    pub(super) fn asked_to_stop(&self) -> usize {
        self.stops.iter().collect::<std::collections::BTreeSet<_>>().len()
    }

    pub(super) fn keys_started(&self) -> Vec<&str> {
        self.started.iter().map(|(_, key, _)| key.as_str()).collect()
    }
}

pub(super) fn seen(container: ContainerId) -> Seen {
    Seen {
        container,
        state: ContainerState::Running,
        desired: Desired::Running,
        started_at: None,
        reason: None,
        exit_code: None,
        stop_grace_seconds: None,
        waiting: None,
        resumable: false,
        detail: None,
    }
}

pub(super) fn run(name: &str) -> Value {
    json!({ "name": name, "run": ["true"] })
}
