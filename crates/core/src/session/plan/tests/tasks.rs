//! What is begun, tried again, ended and counted.

use serde_json::json;

use super::super::*;
use super::world::*;
use crate::session::WaitStatus;
use crate::state::{ContainerState, Desired, TerminationReason};
use crate::time::plus_seconds;

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
