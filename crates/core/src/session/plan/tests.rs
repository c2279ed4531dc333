//! A session in memory: its rows, and a world in which what it starts ends as the test says.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::cascade::Cascade;
use crate::ids::{ContainerId, SessionId, SignalId, TaskId, WaitId};
use crate::session::{
    AttemptRow, AttemptStatus, BlockedType, FailureReason, SignalRow, TaskRow, TaskStatus, WaitRow,
    WaitStatus,
};
use crate::state::{ContainerState, Desired, TerminationReason};
use crate::time::plus_seconds;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

struct World {
    cascade: Cascade,
    state: State,
    tasks: BTreeMap<TaskId, TaskRow>,
    open: BTreeMap<TaskId, OpenTask>,
    waits: Vec<WaitRow>,
    signals: Vec<SignalRow>,
    stdout: BTreeMap<TaskId, Stdout>,
    now: Timestamp,
    next: u64,
    /// Every attempt that was started: phase, key and number.
    started: Vec<(String, String, i64)>,
    surroundings: Surroundings,
    /// The directory of the attempt that was started last.
    workdir: Option<String>,
    stops: Vec<ContainerId>,
    workers: Vec<Seen>,
    /// What the last attempt of each task ran in.
    ran_in: BTreeMap<TaskId, ContainerId>,
}

impl World {
    fn new(cascade: &Value) -> Self {
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

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn facts(&self) -> Facts {
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
    fn settle(&mut self) -> Plan {
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

    fn apply(&mut self, step: Step) {
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

    fn wait(&mut self, id: &WaitId) -> &mut WaitRow {
        self.waits.iter_mut().find(|wait| wait.id == *id).unwrap()
    }

    fn answer(&mut self, answer: Value) {
        let wait = self.waits.iter_mut().rev().find(|wait| wait.status == WaitStatus::Open).unwrap();
        wait.status = WaitStatus::Answered;
        wait.answer = Some(answer);
        wait.answered_by = Some("bob".to_owned());
    }

    fn fire(&mut self, name: &str, addressed: bool) {
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
    fn end(&mut self, key: &str, reason: TerminationReason, exit_code: Option<i64>) {
        let open = self.open.values_mut().find(|open| open.task.key == key).unwrap();
        let verifies = open.verify.is_some();
        let seen = if verifies { open.verify.as_mut() } else { open.main.as_mut() };
        let seen = seen.unwrap();
        (seen.state, seen.reason, seen.exit_code) = (ContainerState::Terminated, Some(reason), exit_code);
    }

    fn done(&mut self, key: &str) -> Plan {
        self.end(key, TerminationReason::Completed, Some(0));
        self.settle()
    }

    fn status(&self) -> SessionStatus {
        self.state.session.status
    }

    /// How many; each is asked until it is seen.
    fn asked_to_stop(&self) -> usize {
        self.stops.iter().collect::<std::collections::BTreeSet<_>>().len()
    }

    fn keys_started(&self) -> Vec<&str> {
        self.started.iter().map(|(_, key, _)| key.as_str()).collect()
    }
}

fn seen(container: ContainerId) -> Seen {
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

fn run(name: &str) -> Value {
    json!({ "name": name, "run": ["true"] })
}

#[test]
fn sets_are_done_together_and_a_long_chain_takes_several_transactions() {
    let phases: Vec<Value> = (0..200)
        .map(|i| json!({ "name": format!("p{i}"), "set": { "v": format!("{{{{ inputs.n + {i} }}}}") } }))
        .collect();
    let mut world = World::new(
        &json!({ "cascade_id": "sets", "phases": phases, "outputs": { "last": "{{ outputs.p199.v }}" } }),
    );
    let facts = world.facts();
    let first = world.state.advance(&world.cascade.clone(), &Surroundings::default(), &facts, world.now);
    assert_eq!((first.steps.len(), first.again), (SETS_AT_ONCE, true));
    let last = world.settle();
    assert_eq!((world.status(), last.changed), (SessionStatus::Completed, false));
    assert_eq!(world.state.phases[&199].outputs, json!({ "v": 202 }));
}

#[test]
fn needs_decide_the_order_and_what_needs_nothing_begins_at_once() {
    let mut world = World::new(&json!({ "cascade_id": "dag", "phases": [
        run("a"), { "name": "b", "run": ["true"], "needs": [] }, { "name": "c", "run": ["true"], "needs": ["a", "b"] },
        { "name": "d", "run": ["true"], "when": "inputs.n > 5" }, run("e"),
    ]}));
    world.settle();
    assert_eq!(world.keys_started(), ["a", "b"]);
    world.done("b");
    assert_eq!(world.keys_started(), ["a", "b"], "c needs both");
    world.done("a");
    assert_eq!(world.keys_started(), ["a", "b", "c"]);
    world.done("c");
    assert_eq!(world.state.phases[&3].status, PhaseStatus::Skipped);
    world.done("e");
    assert_eq!(world.status(), SessionStatus::Completed);
}

#[test]
fn a_level_runs_so_many_at_once_and_a_failure_lets_the_running_ones_finish_and_starts_no_more() {
    let tasks: Vec<Value> = (0..6).map(|i| json!({ "id": format!("t{i}"), "run": ["true"] })).collect();
    let mut world = World::new(
        &json!({ "cascade_id": "level", "workers": { "count": 2 }, "phases": [{ "name": "l", "tasks": tasks }, run("after")] }),
    );
    world.settle();
    assert_eq!(world.keys_started(), ["t0", "t1"]);
    world.done("t0");
    assert_eq!(world.keys_started(), ["t0", "t1", "t2"]);
    world.end("t1", TerminationReason::Failed, Some(4));
    world.settle();
    assert_eq!((world.status(), world.keys_started().len()), (SessionStatus::Running, 3), "t2 still runs");
    world.done("t2");
    assert_eq!((world.status(), world.keys_started().len()), (SessionStatus::Error, 3));
    let said = world.state.session.error_message.clone().unwrap();
    assert_eq!(said, "task t1: it exited with code 4");
}

#[test]
fn failures_use_up_retries_crashes_do_not_and_both_are_capped() {
    let mut world = World::new(&json!({ "cascade_id": "r", "phases": [
        { "name": "a", "run": ["true"], "retry": { "max": 2, "base_seconds": 10 } },
    ]}));
    world.settle();
    for crash in 1..=MOST_CRASHES {
        world.end("a", TerminationReason::SupervisorLost, None);
        let plan = world.settle();
        assert_eq!(
            plan.wake_at,
            Some(plus_seconds(world.now, crash)),
            "a crash waits a little longer each time"
        );
        world.now = plan.wake_at.unwrap();
        world.settle();
    }
    for pause in [10, 20] {
        world.end("a", TerminationReason::Failed, Some(1));
        let plan = world.settle();
        assert_eq!(plan.wake_at, Some(plus_seconds(world.now, pause)));
        assert_eq!(world.status(), SessionStatus::Running, "it waits for its next attempt");
        world.now = plan.wake_at.unwrap();
        world.settle();
    }
    world.end("a", TerminationReason::Failed, Some(1));
    world.settle();
    assert_eq!((world.status(), world.started.len()), (SessionStatus::Error, 6));
}

#[test]
fn what_somebody_ended_by_hand_is_not_tried_again() {
    let mut world = World::new(
        &json!({ "cascade_id": "m", "phases": [{ "name": "a", "run": ["true"], "retry": { "max": 5 } }] }),
    );
    world.settle();
    world.end("a", TerminationReason::Manual, None);
    world.settle();
    assert_eq!((world.status(), world.started.len()), (SessionStatus::Error, 1));
}

#[test]
fn only_what_is_verified_is_done() {
    let mut world = World::new(
        &json!({ "cascade_id": "v", "phases": [{ "name": "a", "run": ["true"], "verify": ["check"] }] }),
    );
    world.settle();
    world.done("a");
    assert_eq!(world.status(), SessionStatus::Running);
    world.end("a", TerminationReason::Failed, Some(1));
    world.settle();
    let said = world.state.session.error_message.clone().unwrap();
    assert_eq!(
        (world.status(), said.as_str()),
        (SessionStatus::Error, "task a: its verification failed: it exited with code 1")
    );
}

#[test]
fn outputs_are_made_of_what_a_command_wrote() {
    let mut world = World::new(&json!({ "cascade_id": "o", "phases": [
        { "name": "a", "run": ["true"], "outputs": { "n": "{{ json.n + 1 }}", "t": "{{ stdout | trim }}" } },
    ]}));
    world.settle();
    let plan = world.done("a");
    let (task, _) = plan.wants_output[0].clone();
    world.stdout.insert(task, Stdout::Text("{\"n\": 4}\n".to_owned()));
    world.settle();
    assert_eq!(world.status(), SessionStatus::Completed);
    assert_eq!(world.state.phases[&0].outputs, json!({ "n": 5, "t": "{\"n\": 4}" }));
}

#[test]
fn too_much_output_for_a_value_says_so() {
    let mut world = World::new(
        &json!({ "cascade_id": "o", "phases": [{ "name": "a", "run": ["true"], "outputs": { "t": "{{ stdout }}" } }] }),
    );
    world.settle();
    let plan = world.done("a");
    world.stdout.insert(plan.wants_output[0].0.clone(), Stdout::TooLarge);
    world.settle();
    let said = world.state.session.error_message.clone().unwrap();
    assert!(said.contains("more than a value can have") && said.contains("give its name"), "{said}");
}

fn waiting(phase: &Value) -> World {
    let mut world = World::new(&json!({ "cascade_id": "w", "phases": [phase, run("after")] }));
    world.settle();
    world
}

#[test]
fn a_denial_fails_a_timeout_is_not_a_denial_and_each_says_what_it_is() {
    let phase = |then: &str| json!({ "name": "ask", "timeout": 60, "await": { "approval": "ship?", "on_timeout": then } });
    let mut denied = waiting(&phase("fail"));
    assert_eq!(
        (denied.status(), denied.state.session.blocked_type),
        (SessionStatus::Blocked, Some(BlockedType::Approval))
    );
    denied.answer(json!(false));
    denied.settle();
    assert_eq!(denied.state.session.error_message.as_deref(), Some("denied by bob"));

    let mut late = waiting(&phase("fail"));
    let plan = late.settle();
    assert_eq!(plan.wake_at, Some(at(60)));
    late.now = at(60);
    late.settle();
    let said = late.state.session.error_message.clone().unwrap();
    assert!(said.contains("a timeout is not a denial"), "{said}");

    let mut goes_on = waiting(&phase("continue"));
    goes_on.now = at(61);
    goes_on.settle();
    assert_eq!(goes_on.status(), SessionStatus::Running);
    assert_eq!(
        goes_on.state.phases[&0].outputs,
        json!({ "approved": null, "by": null, "reason": null, "timed_out": true }),
        "a timeout is not a denial"
    );

    let question = json!({ "kind": "text", "question": "which?" });
    let ask = json!({ "name": "ask", "timeout": 60,
        "await": { "hitl": question, "on_timeout": "default", "default": "a" } });
    let mut default = waiting(&ask);
    default.now = at(61);
    default.settle();
    assert_eq!(default.state.phases[&0].outputs, json!({ "answer": "a", "by": null, "timed_out": true }));
}

#[test]
fn a_signal_ends_a_wait_whether_it_was_fired_before_or_after_and_once() {
    let phase = json!({ "name": "s", "await": { "signal": "go" } });
    let mut before = World::new(
        &json!({ "cascade_id": "w", "phases": [phase, { "name": "s2", "await": { "signal": "go" } }] }),
    );
    before.fire("go", true);
    before.now = at(5);
    before.settle();
    assert_eq!(before.state.phases[&0].outputs["payload"], json!({ "x": 1 }));
    assert_eq!(
        (before.status(), before.state.session.current_phase.as_deref()),
        (SessionStatus::Blocked, Some("s2")),
        "the second wait needs another"
    );
    before.fire("go", false);
    before.settle();
    assert_eq!(before.status(), SessionStatus::Completed);
    let counts: Vec<i64> = before.signals.iter().map(|s| s.deliveries).collect();
    assert_eq!(counts, [1, 1]);
}

#[test]
fn cancelled_is_said_when_everything_is_gone_and_not_before() {
    let mut world = World::new(&json!({ "cascade_id": "c", "phases": [
        run("a"), { "name": "ask", "needs": [], "await": { "approval": "?" } },
    ]}));
    world.settle();
    world.state.session.cancel_requested = true;
    world.state.session.cancel_grace_seconds = Some(3);
    let plan = world.settle();
    assert_eq!(world.status(), SessionStatus::Running);
    assert!(world.state.session.cancel_seen_at.is_some());
    assert_eq!(plan.effects.len(), 1, "asked again until it is seen");
    assert_eq!(world.waits[0].status, WaitStatus::Withdrawn);
    world.end("a", TerminationReason::Manual, None);
    world.settle();
    assert_eq!(
        (world.status(), world.state.phases[&0].status),
        (SessionStatus::Cancelled, PhaseStatus::Cancelled)
    );
    assert!(!world.settle().changed, "terminal stays terminal");
}

#[test]
fn an_agent_that_needs_a_person_rests_and_goes_on_with_the_answer() {
    let mut world = World::new(
        &json!({ "cascade_id": "h", "phases": [{ "name": "a", "agent": { "engine": "claude-code", "prompt": "do it" } }] }),
    );
    world.settle();
    let open = world.open.values_mut().next().unwrap();
    let main = open.main.as_mut().unwrap();
    (main.waiting, main.resumable) = (Some("which branch?".to_owned()), true);
    (main.state, main.exit_code, main.reason) =
        (ContainerState::Terminated, Some(3), Some(TerminationReason::Failed));
    world.settle();
    assert_eq!(
        (world.status(), world.state.session.blocked_description.as_deref()),
        (SessionStatus::Blocked, Some("which branch?"))
    );
    world.answer(json!("main"));
    world.settle();
    assert_eq!((world.status(), world.started.len()), (SessionStatus::Running, 2));
    world.done("a");
    assert_eq!(world.status(), SessionStatus::Completed);
}

#[test]
fn an_agent_that_asks_and_stays_is_ended_with_its_answer_and_goes_on_with_it() {
    let mut world = World::new(
        &json!({ "cascade_id": "h", "phases": [{ "name": "a", "agent": { "engine": "claude-code", "prompt": "do it" } }] }),
    );
    world.settle();
    let main = world.open.values_mut().next().unwrap().main.as_mut().unwrap();
    (main.state, main.waiting, main.resumable) =
        (ContainerState::Running, Some("which branch?".to_owned()), true);
    world.settle();
    assert_eq!(
        (world.waits.len(), world.status()),
        (1, SessionStatus::Blocked),
        "nothing of it goes on by itself"
    );
    world.answer(json!("main"));
    world.settle();
    assert_eq!(
        (world.waits.len(), world.started.len(), world.asked_to_stop()),
        (1, 1, 1),
        "it is asked once"
    );
    let main = world.open.values_mut().next().unwrap().main.as_mut().unwrap();
    (main.waiting, main.desired) = (None, Desired::Terminated);
    world.end("a", TerminationReason::Manual, None);
    world.settle();
    assert_eq!((world.waits.len(), world.started.len()), (1, 2), "with the answer that was there");
    world.done("a");
    assert_eq!(world.status(), SessionStatus::Completed);
}

#[test]
fn an_agent_that_asks_in_a_session_that_fails_is_ended_unanswered() {
    let mut world = World::new(&json!({ "cascade_id": "h", "phases": [
        { "name": "a", "agent": { "engine": "claude-code", "prompt": "do it" } },
        { "name": "b", "needs": [], "run": ["true"] },
    ]}));
    world.settle();
    let open = world.open.values_mut().find(|open| open.task.key == "a").unwrap();
    let main = open.main.as_mut().unwrap();
    (main.state, main.waiting, main.resumable) = (ContainerState::Running, Some("which?".to_owned()), true);
    world.settle();
    world.end("b", TerminationReason::Failed, Some(1));
    world.settle();
    assert_eq!((world.status(), world.asked_to_stop()), (SessionStatus::Running, 1));
    world.end("a", TerminationReason::Manual, None);
    world.settle();
    assert_eq!(world.status(), SessionStatus::Error);
    assert!(world.waits.iter().all(|wait| wait.status == WaitStatus::Withdrawn), "{:?}", world.waits);
}

#[test]
fn a_claimed_task_whose_command_cannot_be_made_fails_and_is_nobodys_to_wait_for() {
    let mut world = World::new(&json!({ "cascade_id": "w", "workers": { "lifetime": "session" }, "phases": [
        { "name": "a", "tasks": [{ "id": "bad", "run": ["echo", "{{ inputs.nothing.at_all }}"] }] },
    ]}));
    world.settle();
    let said = world.state.session.error_message.clone().unwrap_or_default();
    assert_eq!(world.status(), SessionStatus::Error);
    assert!(said.contains("task bad: its command cannot be made"), "{said}");
}

#[test]
fn workers_that_keep_ending_are_replaced_so_often_and_then_the_phase_fails() {
    let mut world = World::new(
        &json!({ "cascade_id": "w", "workers": { "lifetime": "session", "count": 2 }, "phases": [{ "name": "a", "tasks": [
            { "id": "one", "run": ["true"] }, { "id": "two", "run": ["true"] }] }] }),
    );
    world.settle();
    for hired in [2, 4, 6] {
        assert_eq!((world.workers.len(), world.status()), (hired, SessionStatus::Running));
        world.workers.iter_mut().for_each(|worker| worker.state = ContainerState::Terminated);
        world.settle();
    }
    let said = world.state.session.error_message.clone().unwrap_or_default();
    assert_eq!((world.workers.len(), world.status()), (6, SessionStatus::Error));
    assert!(said.contains("6 workers have ended before the work was done"), "{said}");
}

fn sensing(then: &str) -> World {
    waiting(
        &json!({ "name": "look", "timeout": 60, "await": { "sensor": { "command": { "run": ["look"], "every": 10 } }, "on_timeout": then } }),
    )
}

#[test]
fn a_sensor_that_is_too_late_has_its_last_check_ended_first() {
    let mut world = sensing("continue");
    assert_eq!(world.keys_started(), ["look"]);
    world.now = at(60);
    let plan = world.settle();
    assert_eq!(
        (world.asked_to_stop(), world.state.phases.len()),
        (1, 1),
        "its check lives: the phase is not over"
    );
    assert!(plan.waiting.iter().any(|line| line.contains("its sensor is being ended")), "{:?}", plan.waiting);
    world.end("look", TerminationReason::Manual, None);
    world.settle();
    assert_eq!(world.state.phases[&0].outputs, json!({ "timed_out": true }));
    assert_eq!(
        (world.open.len(), world.keys_started()),
        (1, vec!["look", "after"]),
        "only what comes after runs"
    );
}

#[test]
fn a_check_that_succeeds_at_the_very_end_counts_and_none_begins_after_it() {
    let mut world = sensing("fail");
    world.now = at(61);
    world.done("look");
    assert_eq!(world.state.phases[&0].outputs, json!({ "timed_out": false }));

    let mut world = sensing("fail");
    world.end("look", TerminationReason::Failed, Some(1));
    world.settle();
    world.now = at(61);
    world.settle();
    assert_eq!((world.status(), world.keys_started().len()), (SessionStatus::Error, 1));
}

#[test]
fn a_failure_elsewhere_ends_the_check_of_a_sensor_before_the_session_is_over() {
    let mut world = World::new(&json!({ "cascade_id": "w", "phases": [
        run("a"), { "name": "look", "needs": [], "await": { "sensor": { "command": { "run": ["look"], "every": 10 } } } },
    ]}));
    world.settle();
    world.end("a", TerminationReason::Failed, Some(1));
    world.settle();
    assert_eq!((world.status(), world.asked_to_stop()), (SessionStatus::Running, 1));
    world.end("look", TerminationReason::Manual, None);
    world.settle();
    assert_eq!((world.status(), world.open.len()), (SessionStatus::Error, 0));
}

#[test]
fn an_answer_starts_nothing_in_a_session_that_fails() {
    let mut world = World::new(&json!({ "cascade_id": "h", "phases": [
        { "name": "a", "agent": { "engine": "claude-code", "prompt": "do it" } },
        { "name": "b", "needs": [], "run": ["true"] }, { "name": "c", "needs": [], "run": ["true"] },
    ]}));
    world.settle();
    let open = world.open.values_mut().find(|open| open.task.key == "a").unwrap();
    let main = open.main.as_mut().unwrap();
    (main.waiting, main.resumable) = (Some("which branch?".to_owned()), true);
    (main.state, main.exit_code, main.reason) =
        (ContainerState::Terminated, Some(3), Some(TerminationReason::Failed));
    world.settle();
    world.end("b", TerminationReason::Failed, Some(1));
    world.settle();
    world.answer(json!("main"));
    world.settle();
    assert_eq!((world.status(), world.started.len()), (SessionStatus::Running, 3), "c still runs");
    world.done("c");
    assert_eq!((world.status(), world.started.len()), (SessionStatus::Error, 3));
}

#[test]
fn answered_agents_go_on_as_many_at_once_as_there_may_be() {
    let ask =
        |n: usize| json!({ "id": format!("t{n}"), "agent": { "engine": "claude-code", "prompt": "do it" } });
    let tasks: Vec<Value> = (0..3).map(ask).collect();
    let mut world = World::new(
        &json!({ "cascade_id": "h", "workers": { "count": 1 }, "phases": [{ "name": "l", "tasks": tasks }] }),
    );
    world.settle();
    for n in 0..3 {
        let open = world.open.values_mut().next().unwrap();
        assert_eq!(open.task.key, format!("t{n}"));
        let main = open.main.as_mut().unwrap();
        (main.waiting, main.resumable) = (Some("which?".to_owned()), true);
        world.end(&format!("t{n}"), TerminationReason::Failed, Some(3));
        world.settle();
    }
    assert_eq!((world.status(), world.waits.len()), (SessionStatus::Blocked, 3));
    for _ in 0..3 {
        world.answer(json!("main"));
    }
    for left in [2, 1, 0] {
        world.settle();
        assert_eq!(world.open.len(), 1, "one at once");
        let key = world.open.values().next().unwrap().task.key.clone();
        world.done(&key);
        let resting = world.tasks.values().filter(|task| task.state == TaskStatus::Running).count();
        assert_eq!(resting, left);
    }
    assert_eq!(world.status(), SessionStatus::Completed);
}

#[test]
fn a_more_urgent_cancel_is_passed_on() {
    let mut world = World::new(&json!({ "cascade_id": "c", "phases": [run("a")] }));
    world.settle();
    world.state.session.cancel_requested = true;
    world.state.session.cancel_grace_seconds = Some(600);
    world.settle();
    let main = world.open.values_mut().next().unwrap().main.as_mut().unwrap();
    (main.desired, main.stop_grace_seconds) = (Desired::Terminated, Some(600));
    assert!(world.settle().effects.is_empty(), "it was asked");
    world.state.session.cancel_grace_seconds = Some(1);
    let Effect::Stop { grace_seconds, .. } = world.settle().effects.remove(0);
    assert_eq!(grace_seconds, 1);
}

#[test]
fn what_takes_too_long_is_ended_as_such_and_so_is_its_verification() {
    let mut world = World::new(&json!({ "cascade_id": "v", "phases": [
        { "name": "a", "run": ["true"], "verify": ["check"], "timeout": 10 },
    ]}));
    world.settle();
    world.now = at(9);
    world.done("a");
    world.now = at(60);
    let Effect::Stop { why, .. } = world.settle().effects.remove(0);
    assert_eq!(why, TerminationReason::Timeout);
}

#[test]
fn a_sensor_whose_command_cannot_be_started_fails() {
    let mut world = sensing("fail");
    let task = world.tasks.values_mut().next().unwrap();
    (task.state, task.error) = (TaskStatus::Failed, Some("no such thing".to_owned()));
    world.open.clear();
    world.settle();
    assert_eq!(world.state.session.error_message.as_deref(), Some("its sensor: no such thing"));
}

#[test]
fn a_relative_workdir_is_below_the_sessions() {
    for (given, is) in [("sub/dir", "/home/ann/sub/dir"), ("/srv", "/srv"), ("{{ inputs.n }}", "/home/ann/3")]
    {
        let mut world = World::new(&json!({ "cascade_id": "w", "phases": [
            { "name": "a", "run": ["true"], "workdir": given },
        ]}));
        world.surroundings.workdir = Some("/home/ann".to_owned());
        world.settle();
        assert_eq!(world.workdir.as_deref(), Some(is));
    }
}

#[test]
fn why_something_could_not_be_started_is_said_once() {
    for detail in ["no such directory: /nope", "it could not be started: no such directory: /nope"] {
        let mut world = World::new(&json!({ "cascade_id": "w", "phases": [run("a")] }));
        world.settle();
        world.end("a", TerminationReason::CreateFailed, None);
        world.open.values_mut().next().unwrap().main.as_mut().unwrap().detail = Some(detail.to_owned());
        world.settle();
        let said = world.state.session.error_message.clone().unwrap_or_default();
        assert!(said.ends_with("it could not be started: no such directory: /nope"), "{said}");
        assert_eq!(said.matches("it could not be started").count(), 1, "{said}");
    }
}

#[test]
fn a_sensor_that_has_seen_what_it_looks_for_has_answered_its_wait() {
    let mut world = sensing("fail");
    world.settle();
    world.done("look");
    assert_eq!(world.waits[0].status, WaitStatus::Answered);
    let mut later = waiting(&json!({ "name": "at", "await": { "sensor": { "time": { "after": 10 } } } }));
    later.settle();
    assert_eq!(later.waits[0].status, WaitStatus::Open);
    later.now = at(10);
    later.settle();
    assert_eq!(
        (later.waits[0].status, later.state.phases[&0].status),
        (WaitStatus::Answered, PhaseStatus::Completed)
    );
}

#[test]
fn of_waits_that_open_together_the_same_one_is_named_every_time_and_told_once() {
    let mut world = World::new(&json!({ "cascade_id": "w", "phases": [
        { "name": "news", "needs": [], "await": { "signal": "news" } },
        { "name": "first", "needs": [], "await": { "approval": "the first" } },
        { "name": "second", "needs": [], "await": { "approval": "the second" } },
    ]}));
    let mut told = Vec::new();
    for _ in 0..3 {
        let facts = world.facts();
        let before = world.state.session.clone();
        let plan = world.state.advance(&world.cascade.clone(), &Surroundings::default(), &facts, world.now);
        told.extend(crate::session::tell::of_patch(&before, &plan.patch));
        for step in plan.steps {
            world.apply(step);
        }
        // As a database may give them.
        world.waits.reverse();
        assert_eq!(world.state.session.blocked_description.as_deref(), Some("the first"));
    }
    let blocked = told.iter().filter(|event| event.event_type == crate::event::EventType::SessionBlocked);
    assert_eq!(blocked.count(), 1, "{told:?}");
}
