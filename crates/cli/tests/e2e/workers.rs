//! Workers that live as long as their session: each task is claimed once for each attempt, what a dead worker had is
//! tried again, and a report that comes late is refused.

use serde_json::{Value, json};

use crate::harness::{Home, alive_with, eventually, signal_supervisor, text};

fn start(home: &Home, cascade: Value) -> String {
    let (code, session) = home.api("POST", "/api/v1/sessions", Some(json!({ "cascade": cascade })));
    assert_eq!(code, 201, "{session}");
    text(&session, "session_id").to_owned()
}

fn seen(home: &Home, id: &str) -> Value {
    home.api("GET", &format!("/api/v1/sessions/{id}"), None).1
}

fn tasks(home: &Home, id: &str, phase: &str) -> Vec<Value> {
    let (_, found) = home.api("GET", &format!("/api/v1/sessions/{id}/tasks?phase={phase}"), None);
    found["tasks"].as_array().unwrap().clone()
}

#[test]
fn tasks_are_claimed_once_each_and_what_a_dead_worker_had_is_tried_again() {
    let home = Home::with_config("[reconciler]\npoll_interval_seconds = 1\n");
    let outside = tempfile::tempdir().unwrap();
    let _server = home.up(&[]);
    let effects = outside.path().join("effects");
    let gate = outside.path().join("gate");
    let mut level: Vec<Value> = (0..12)
        .map(|n| {
            json!({ "id": format!("t{n}"), "run": format!("echo $PARHELIA_TASK $PARHELIA_ATTEMPT >> {}", effects.display()) })
        })
        .collect();
    // Its first attempt stays until somebody ends it.
    let slow = format!(
        "echo slow $PARHELIA_ATTEMPT >> {e}; if [ $PARHELIA_ATTEMPT = 1 ]; then touch {g}; sleep 600; fi",
        e = effects.display(),
        g = gate.display()
    );
    level.push(json!({ "id": "slow", "run": slow }));
    let id = start(
        &home,
        json!({ "cascade_id": "claimed", "workers": { "lifetime": "session", "count": 3 }, "phases": [
            { "name": "level", "tasks": level },
            { "name": "after", "run": ["echo", "done"], "outputs": { "said": "{{ stdout | trim }}" } },
        ]}),
    );
    eventually("the slow one runs", || gate.exists().then_some(()));
    let slow = eventually("it is claimed", || {
        let all = tasks(&home, &id, "level");
        all.into_iter().find(|task| task["key"] == "slow" && task["attempt"] == 1)
    });
    let attempt = &slow["attempts"][0];
    let worker = text(attempt, "worker_id").to_owned();
    let db = home.sqlite();
    let place: String =
        db.query_row("SELECT container_id FROM workers WHERE id = ?1", [&worker], |row| row.get(0)).unwrap();
    let container = home.seen(&place);
    signal_supervisor(text(&container, "sandbox_id"), rustix::process::Signal::KILL);
    let session =
        eventually("it completes", || Some(seen(&home, &id)).filter(|s| s["status"] == "completed"));
    assert_eq!(session["phases"][1]["row"]["outputs"]["said"], "done", "{session}");
    let written = std::fs::read_to_string(&effects).unwrap();
    let mut lines: Vec<&str> = written.lines().collect();
    lines.sort_unstable();
    let mut expected: Vec<String> = (0..12).map(|n| format!("t{n} 1")).collect();
    expected.extend(["slow 1".to_owned(), "slow 2".to_owned()]);
    expected.sort_unstable();
    assert_eq!(lines, expected);
    let slow = tasks(&home, &id, "level").into_iter().find(|task| task["key"] == "slow").unwrap();
    assert_eq!((slow["crash_count"].as_i64(), slow["retry_count"].as_i64()), (Some(1), Some(0)), "{slow}");
    assert_eq!(slow["attempts"][0]["failure_reason"], "worker_crash", "{slow}");

    // The dead worker's report comes at last, and nobody takes it.
    let task = text(&slow, "id");
    let attempt = 1;
    let path = format!("/api/v1/tasks/{task}/attempts/{attempt}/result");
    let (code, said) = home.api("POST", &path, Some(json!({ "worker_id": worker, "exit_code": 0 })));
    assert_eq!((code, said["detail"].as_str().unwrap().contains("too late")), (409, true), "{said}");
    let asks = json!({ "worker_id": worker });
    let (_, said) = home.api("POST", &format!("/api/v1/sessions/{id}/claims"), Some(asks));
    assert_eq!((said["finished"].as_bool(), &said["task"]), (Some(true), &Value::Null), "{said}");
    // Nothing is left of the workers: there is nothing more to claim.
    eventually("the workers leave", || {
        (alive_with(&format!("PARHELIA_SESSION_ID={id}")) == 0
            && home.all_seen().iter().all(|c| c["state"] == "terminated"))
        .then_some(())
    });
}

#[test]
fn a_cancelled_session_ends_its_workers_and_what_they_run() {
    let home = Home::with_config("[reconciler]\npoll_interval_seconds = 1\n");
    let _server = home.up(&[]);
    let level: Vec<Value> =
        (0..4).map(|n| json!({ "id": format!("t{n}"), "run": ["sleep", "600"] })).collect();
    let id = start(
        &home,
        json!({ "cascade_id": "claimed", "workers": { "lifetime": "session", "count": 2 }, "phases": [{ "name": "l", "tasks": level }] }),
    );
    let variable = format!("PARHELIA_SESSION_ID={id}");
    eventually("two run", || (alive_with(&variable) >= 2).then_some(()));
    let (code, said) =
        home.api("POST", &format!("/api/v1/sessions/{id}/cancel"), Some(json!({ "grace_seconds": 1 })));
    assert_eq!(code, 200, "{said}");
    eventually("it is cancelled", || Some(seen(&home, &id)).filter(|s| s["status"] == "cancelled"));
    assert_eq!(alive_with(&variable), 0, "cancelled is only said when everything is gone");
}

#[test]
fn workers_of_a_session_run_at_home() {
    let home = Home::new();
    let _server = home.up(&[]);
    let cascade = json!({ "cascade_id": "x", "workers": { "lifetime": "session", "provider": "nowhere" }, "phases": [{ "name": "a", "run": ["true"] }] });
    let (code, said) = home.api("POST", "/api/v1/sessions", Some(json!({ "cascade": cascade })));
    assert_eq!(code, 422, "{said}");
}

#[test]
fn what_a_task_of_a_worker_leaves_behind_ends_with_it_and_holds_nothing_up() {
    let home = Home::new();
    let _server = home.up(&[]);
    let mark = home.mark();
    let id = start(
        &home,
        json!({ "cascade_id": "leftovers", "workers": { "lifetime": "session", "count": 2 }, "phases": [
            { "name": "level", "tasks": [
                { "id": "leaves", "run": "sleep 1000 & echo left one", "env": { &mark: "1" }, "outputs": { "said": "{{ stdout | trim }}" } },
            ]},
            { "name": "slow", "run": "sleep 1000 | cat", "env": { &mark: "1" }, "timeout": 1 },
        ]}),
    );
    let session = eventually("it fails", || Some(seen(&home, &id)).filter(|s| s["status"] == "error"));
    assert_eq!(tasks(&home, &id, "level")[0]["outputs"]["said"], "left one");
    assert!(text(&session, "error_message").contains("longer than its timeout"), "{session}");
    assert_eq!(alive_with(&format!("{mark}=1")), 0);
}

#[test]
fn once_a_task_has_failed_no_worker_is_given_another_of_its_level() {
    let home = Home::new();
    let outside = tempfile::tempdir().unwrap();
    let _server = home.up(&[]);
    let (begun, gate) = (outside.path().join("begun"), outside.path().join("gate"));
    // One holds its worker until the other has failed: whatever is claimed then would be claimed after the failure.
    let held = format!("until [ -e {} ]; do sleep 0.02; done", gate.display());
    let mut level = vec![json!({ "id": "held", "run": held }), json!({ "id": "fails", "run": "exit 4" })];
    let after = format!("echo begun >> {}", begun.display());
    level.extend((0..20).map(|n| json!({ "id": format!("t{n}"), "run": after })));
    let id = start(
        &home,
        json!({ "cascade_id": "stops", "workers": { "lifetime": "session", "count": 2 }, "phases": [
            { "name": "level", "tasks": level },
        ]}),
    );
    eventually("one has failed", || {
        tasks(&home, &id, "level")
            .into_iter()
            .find(|task| task["key"] == "fails" && task["state"] == "failed")
    });
    // The worker that is free asks again and again, and is told that there is nothing.
    let (_, claim) = home.api(
        "POST",
        &format!("/api/v1/sessions/{id}/claims"),
        Some(json!({ "worker_id": free_worker(&home, &id) })),
    );
    assert_eq!(claim["task"], Value::Null, "{claim}");
    std::fs::write(&gate, "").unwrap();
    let session = eventually("it fails", || Some(seen(&home, &id)).filter(|s| s["status"] == "error"));
    assert!(text(&session, "error_message").contains("task fails: it exited with code 4"), "{session}");
    assert!(!begun.exists(), "tasks began after the failure");
}

/// A worker of the session that has no task now.
fn free_worker(home: &Home, id: &str) -> String {
    let db = home.sqlite();
    let free = "SELECT id FROM workers WHERE session_id = ?1 AND id NOT IN
        (SELECT worker_id FROM attempts WHERE worker_id IS NOT NULL AND ended_at IS NULL)";
    db.query_row(free, [id], |row| row.get(0)).unwrap()
}

#[test]
fn whatever_a_task_writes_it_is_run_once_and_too_much_for_a_value_says_so() {
    let home = Home::new();
    let outside = tempfile::tempdir().unwrap();
    let _server = home.up(&[]);
    let runs = outside.path().join("runs");
    // What is no text is several times as long in a report.
    let odd = format!("echo odd >> {}; head -c 600000 /dev/zero", runs.display());
    let long = format!("echo long >> {}; head -c 1500000 /dev/zero | tr '\\0' x", runs.display());
    let id = start(
        &home,
        json!({ "cascade_id": "much", "workers": { "lifetime": "session", "count": 1 }, "phases": [
            { "name": "odd", "run": odd },
            { "name": "long", "run": long, "outputs": { "all": "{{ stdout }}" } },
        ]}),
    );
    let session = eventually("it fails", || Some(seen(&home, &id)).filter(|s| s["status"] == "error"));
    assert!(text(&session, "error_message").contains("more than a value can have"), "{session}");
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "odd\nlong\n");
    let kept: Option<String> = home
        .sqlite()
        .query_row("SELECT last_checkpoint_id FROM sessions WHERE session_id = ?1", [&id], |row| row.get(0))
        .unwrap();
    assert!(kept.is_some(), "what the worker has done is its newest checkpoint");
}

#[test]
fn what_can_never_be_started_fails_and_says_why() {
    let home = Home::new();
    let _server = home.up(&[]);
    let fails = |cascade: Value| {
        let id = start(&home, cascade);
        let session = eventually("it fails", || Some(seen(&home, &id)).filter(|s| s["status"] == "error"));
        text(&session, "error_message").to_owned()
    };
    let large = "x".repeat(200_000);
    let verify =
        fails(json!({ "cascade_id": "large", "inputs": { "large": { "default": large } }, "phases": [
            { "name": "a", "run": ["true"], "verify": ["test", "{{ inputs.large }}"] },
        ]}));
    assert!(verify.contains("its verification cannot be started"), "{verify}");
    // Several are wanted at once, and each of them fails the one phase.
    let workers = json!({ "lifetime": "session", "count": 3, "resources": { "memory_mb": 1 } });
    let workers = fails(json!({ "cascade_id": "small", "workers": workers, "phases": [
        { "name": "a", "tasks": [{ "id": "x", "run": ["true"] }, { "id": "y", "run": ["true"] }] },
    ]}));
    assert!(workers.contains("its workers cannot be started"), "{workers}");
}
