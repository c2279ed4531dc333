//! What a session waits for: people, signals, sensors, and agents that ask.

use serde_json::{Value, json};

use super::super::*;
use super::world::*;
use crate::session::{BlockedType, TaskStatus, WaitStatus};
use crate::state::{ContainerState, Desired, TerminationReason};

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
fn a_sensor_whose_command_cannot_be_started_fails() {
    let mut world = sensing("fail");
    let task = world.tasks.values_mut().next().unwrap();
    (task.state, task.error) = (TaskStatus::Failed, Some("no such thing".to_owned()));
    world.open.clear();
    world.settle();
    assert_eq!(world.state.session.error_message.as_deref(), Some("its sensor: no such thing"));
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
