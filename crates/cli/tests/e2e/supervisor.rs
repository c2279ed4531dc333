//! The supervisor is killed, frozen or disobeyed: its sandbox ends all the same, and whole.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{Home, alive_with, eventually, signal_supervisor, text};

/// A child, and two that left the session: one directly, one forked twice.
const TREE: &str = "(setsid sh -c 'sleep 1000 & wait' &) ; setsid sleep 1000 & sleep 1000 & wait";
const TREE_SIZE: usize = 5;

fn tree_of(id: &str) -> usize {
    alive_with(&format!("PARHELIA_CONTAINER_ID={id}"))
}

/// A running container whose shell has said `ready`.
fn ready(home: &Home, script: &str) -> String {
    let id = home.start(&[], &["sh", "-c", script]);
    eventually("it is ready", || home.ok(&["containers", "logs", &id]).contains("ready").then_some(()));
    id
}

#[allow(clippy::disallowed_methods, reason = "a test measures on the real clock")]
fn timed<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let done = what();
    (done, start.elapsed())
}

#[test]
fn a_killed_supervisor_takes_everything_with_it_within_seconds() {
    let home = Home::new();
    let _server = home.up(&[]);
    let id = home.start(&[], &["sh", "-c", TREE]);
    let other = home.start(&[], &["sh", "-c", TREE]);
    for id in [&id, &other] {
        eventually("its tree is there", || (tree_of(id) == TREE_SIZE).then_some(()));
    }
    let sandbox = text(&home.seen(&id), "sandbox_id").to_owned();
    let (ended, took) = timed(|| {
        signal_supervisor(&sandbox, Signal::KILL);
        home.until_seen(&id, "state", "terminated")
    });
    println!("supervisor killed -> container terminated: {took:?}");
    assert!(took < Duration::from_secs(30), "sooner than the timer comes: {took:?}");
    assert_eq!(text(&ended, "termination_reason"), "supervisor_lost");
    assert!(ended["exit_code"].is_null(), "nobody knows how it would have ended: {ended}");
    assert_eq!(tree_of(&id), 0, "nothing of it is left when it is called terminated");
    // What is told of its job comes beside it.
    let mut told = home.events_of(&id);
    told.retain(|kind| !kind.starts_with("job_"));
    assert_eq!(told.last().map(String::as_str), Some("container_terminated"), "{told:?}");
    assert_eq!((tree_of(&other), text(&home.seen(&other), "state")), (TREE_SIZE, "running"), "its neighbour");
}

#[test]
fn what_a_supervisor_left_while_no_server_ran_is_swept_by_the_next_one() {
    let home = Home::new();
    let server = home.up(&[]);
    let id = home.start(&[], &["sh", "-c", TREE]);
    eventually("its tree is there", || (tree_of(&id) == TREE_SIZE).then_some(()));
    let sandbox = text(&home.seen(&id), "sandbox_id").to_owned();
    server.kill();
    signal_supervisor(&sandbox, Signal::KILL);
    eventually("its own child dies with it", || (tree_of(&id) < TREE_SIZE).then_some(()));
    assert!(tree_of(&id) > 0, "what left the session survives");
    let _server = home.up(&[]);
    let ended = home.until_seen(&id, "state", "terminated");
    assert_eq!(text(&ended, "termination_reason"), "supervisor_lost");
    assert_eq!(tree_of(&id), 0);
}

#[test]
fn a_frozen_supervisor_is_forced() {
    let home = Home::new();
    let _server = home.up(&[]);
    let id = home.start(&[], &["sh", "-c", TREE]);
    eventually("its tree is there", || (tree_of(&id) == TREE_SIZE).then_some(()));
    signal_supervisor(text(&home.seen(&id), "sandbox_id"), Signal::STOP);
    let said = home.ok(&["containers", "terminate", &id, "--force", "--yes"]);
    assert!(said.contains("Container terminated."), "{said}");
    assert_eq!(tree_of(&id), 0);
    let ended = home.seen(&id);
    assert_eq!((text(&ended, "state"), text(&ended, "termination_reason")), ("terminated", "manual"));
    assert!(ended["stop_attempts"].as_i64().unwrap() > 1, "it was asked more than once: {ended}");
    assert_eq!(alive_with(&format!("PARHELIA_SUPERVISES={}", text(&ended, "sandbox_id"))), 0);
}

#[test]
fn a_child_is_asked_first_and_may_say_how_it_ends() {
    let home = Home::new();
    let _server = home.up(&[]);
    let note = home.path().join("asked");
    let script = format!(
        "trap 'echo asked > {}; exit 3' TERM; echo ready; while :; do sleep 0.05; done",
        note.display()
    );
    let id = ready(&home, &script);
    home.ok(&["containers", "terminate", &id, "--yes"]);
    assert_eq!(std::fs::read_to_string(&note).unwrap(), "asked\n", "SIGTERM came, and once");
    let ended = home.seen(&id);
    assert_eq!((text(&ended, "termination_reason"), ended["exit_code"].as_i64()), ("manual", Some(3)));
}

#[test]
fn a_child_that_does_not_listen_is_forced_after_its_grace() {
    let home = Home::new();
    let _server = home.up(&[]);
    let id = ready(&home, "trap '' TERM; echo ready; while :; do sleep 0.05; done");
    let ((), took) = timed(|| drop(home.ok(&["containers", "terminate", &id, "--grace", "1", "--yes"])));
    println!("grace of 1 s -> terminated: {took:?}");
    assert!(took >= Duration::from_secs(1), "{took:?}");
    let ended = home.seen(&id);
    assert_eq!((text(&ended, "state"), text(&ended, "termination_reason")), ("terminated", "manual"));
    assert!(ended["exit_code"].is_null(), "a signal ended it: {ended}");
    assert_eq!(tree_of(&id), 0);
}

#[test]
fn a_second_stop_shortens_the_grace_and_never_lengthens_it() {
    let home = Home::new();
    let _server = home.up(&[]);
    let deaf = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
    let (patient, hasty) = (ready(&home, deaf), ready(&home, deaf));
    home.ok(&["containers", "stop", &patient, "--grace", "1h", "--no-wait"]);
    home.ok(&["containers", "stop", &hasty, "--grace", "1", "--no-wait"]);
    eventually("both were told", || {
        [&patient, &hasty].iter().all(|id| home.seen(id)["stopping_at"].is_string()).then_some(())
    });
    assert_eq!(home.seen(&patient)["state"], "running");
    home.ok(&["containers", "stop", &hasty, "--grace", "1h", "--no-wait"]);
    assert_eq!(home.seen(&hasty)["stop_grace_seconds"], 1, "the second wish does not lengthen it");
    home.until_seen(&hasty, "state", "terminated");
    home.ok(&["containers", "terminate", &patient, "--force", "--yes"]);
    for id in [&patient, &hasty] {
        let ended = home.seen(id);
        assert_eq!((text(&ended, "state"), text(&ended, "termination_reason")), ("terminated", "manual"));
        assert_eq!(tree_of(id), 0);
        let asked = home.events_of(id).iter().filter(|kind| *kind == "stop_requested").count();
        assert_eq!(asked, 1, "one wish, one event");
    }
}
