//! What a newcomer does first.

use crate::harness::{Home, alive_with, eventually};

#[test]
fn run_see_stop_without_ever_starting_a_server() {
    let home = Home::new();
    let id = home.start(&["--name", "hello", "--task", "ta-1"], &["sh", "-c", "echo one; sleep 600"]);
    let shown = home.until(&id, "state", "running");
    assert_eq!((shown["name"].as_str(), shown["task"].as_str()), (Some("hello"), Some("ta-1")));
    home.until(&id, "health", "healthy");
    let listed = home.ok(&["containers"]);
    assert!(listed.contains(&id) && listed.contains("Total: 1 container | Running: 1"), "{listed}");
    eventually("it has said so", || (home.ok(&["containers", "logs", &id]) == "one\n").then_some(()));
    eventually("the shell and its sleep", || {
        (alive_with(&format!("PARHELIA_CONTAINER_ID={id}")) == 2).then_some(())
    });

    let said = home.ok(&["containers", "terminate", &id, "--yes"]);
    assert!(said.contains("Container terminated."), "{said}");
    let ended = home.container(&id);
    assert_eq!(
        (ended["state"].as_str(), ended["termination_reason"].as_str()),
        (Some("terminated"), Some("manual"))
    );
    for receipt in ["desired_at", "stop_seen_at", "stopping_at", "stop_confirmed_at"] {
        assert!(ended[receipt].is_string(), "{receipt} is missing: {ended}");
    }
    assert_eq!(alive_with(&format!("PARHELIA_CONTAINER_ID={id}")), 0);
    // What is told of its job comes beside what is told of its container.
    let all = eventually("its job is over too", || {
        Some(home.events_of(&id)).filter(|all| all.iter().any(|kind| kind == "job_cancelled"))
    });
    let (of_job, told): (Vec<_>, Vec<_>) = all.into_iter().partition(|kind| kind.starts_with("job_"));
    assert_eq!(of_job, ["job_started", "job_cancelled"]);
    let expected = [
        "container_created",
        "container_started",
        "container_healthy",
        "stop_requested",
        "stop_seen",
        "stop_sent",
        "container_stopped",
        "container_terminated",
    ];
    assert_eq!(told, expected);
}
