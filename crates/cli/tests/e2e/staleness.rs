//! Silence, and everything that can be wrong with a sentinel, while the server watches.

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{
    FakeWorld, Home, alive_with, eventually, freeze_supervisor, put, signal_supervisor, text,
};
use crate::jobs::{exec, job, until_job};

/// The ladder in seconds instead of minutes.
const QUICK: &str = "[health]\nheartbeat_interval_seconds = 1\ncheck_interval_seconds = 1\n\
     degraded_after_seconds = 3\ndead_after_seconds = 8\nresumption_window_seconds = 0\n\
     [reconciler]\nstale_threshold_seconds = 5\n[jobs]\ncheck_seconds = 1\n";

fn started(home: &Home, script: &str) -> String {
    let path = std::env::var("PATH").unwrap();
    let asked = exec(home, json!({"command": ["sh", "-c", script], "env": {"PATH": path}}));
    let id = text(&asked, "id").to_owned();
    until_job(home, &id, "status", "fresh");
    id
}

fn sentinel(home: &Home, id: &str) -> PathBuf {
    home.path().join("jobs").join(id).join(".sentinel.json")
}

fn told(home: &Home, id: &str) -> Vec<String> {
    let container = text(&job(home, id), "container_id").to_owned();
    home.events_of(&container).into_iter().filter(|kind| kind.starts_with("job_")).collect()
}

#[test]
fn a_frozen_supervisor_is_stale_and_never_dead_while_its_lock_is_held() {
    let home = Home::with_config(QUICK);
    let _server = home.up(&[]);
    let (id, other) = (started(&home, "exec sleep 600"), started(&home, "exec sleep 600"));
    let container = text(&job(&home, &id), "container_id").to_owned();
    freeze_supervisor(&id);
    let stale = until_job(&home, &id, "status", "stale");
    assert!(text(&stale, "status_reason").contains("its lock is held"), "{stale}");
    let (status, answer) = home.api("GET", "/api/admin/recovery/jobs/stale", None);
    let one = &answer["staleJobs"][0];
    let mut names: Vec<&String> = one.as_object().unwrap().keys().collect();
    names.sort();
    assert_eq!(names, ["ageMinutes", "jobId", "lastHeartbeat", "recommendedAction", "workspacePath"]);
    assert_eq!(
        (status, text(one, "jobId"), text(one, "recommendedAction")),
        (200, id.as_str(), "investigate")
    );
    assert!(one["ageMinutes"].as_f64().unwrap() > 0.03 && one["workspacePath"].is_string(), "{one}");
    let beats = home.json(&["recovery", "heartbeats"]);
    assert_eq!(beats["summary"], json!({"total": 2, "fresh": 1, "stale": 1, "dead": 0}), "{beats}");
    let mut names: Vec<&String> = beats["jobs"][0].as_object().unwrap().keys().collect();
    names.sort();
    assert_eq!(names, ["ageSeconds", "agentEngine", "jobId", "lastHeartbeat", "status"]);
    let (_, health) = home.api("GET", &format!("/api/admin/jobs/{id}/health"), None);
    let mut names: Vec<&String> = health.as_object().unwrap().keys().collect();
    names.sort();
    let all = [
        "ageSeconds",
        "heartbeatStatus",
        "jobId",
        "lastHeartbeat",
        "sentinelFileExists",
        "sessionDataExists",
        "workspaceExists",
    ];
    assert_eq!(names, all);
    assert_eq!(
        (text(&health, "heartbeatStatus"), &health["sentinelFileExists"], &health["workspaceExists"]),
        ("stale", &json!(true), &json!(true)),
        "{health}"
    );
    assert!(home.ok(&["recovery", "stale"]).contains(&id));
    let why = home.json(&["why", &id]);
    assert_eq!(text(&why, "kind"), "job");
    let says = |from: &str| {
        let all = why["evidence"].as_array().unwrap();
        text(all.iter().find(|one| one["from"] == from).unwrap(), "says").to_owned()
    };
    assert!(says("lock").starts_with("held") && says("sentinel").starts_with("running, written "), "{why}");
    // Long after the time at which silence alone would be death.
    home.until_seen(&container, "health", "dead");
    assert_eq!(text(&job(&home, &id), "status"), "stale");
    signal_supervisor(&id, Signal::CONT);
    until_job(&home, &id, "status", "fresh");
    assert_eq!(told(&home, &id), ["job_started", "job_stale", "job_recovered"]);
    assert_eq!(told(&home, &other), ["job_started"]);
}

#[test]
fn a_sentinel_that_cannot_be_read_is_kept_aside_and_its_lock_decides() {
    let home = Home::with_config(QUICK);
    let _server = home.up(&[]);
    let ids: Vec<String> = (0..3).map(|_| started(&home, "exec sleep 600")).collect();
    let [corrupt, empty, well] = &ids[..] else { unreachable!() };
    for (id, content) in [(corrupt, "{\"jobId\": 7"), (empty, "")] {
        freeze_supervisor(id);
        put(&sentinel(&home, id), content);
        let event = eventually("it is told", || {
            home.told("job_quarantined").into_iter().find(|event| event["details"]["job_id"] == id.as_str())
        });
        assert!(text(&event, "message").contains("cannot be read"), "{event}");
        let dir = home.path().join("jobs").join(id);
        let copy = std::fs::read_dir(&dir)
            .unwrap()
            .flatten()
            .find(|entry| entry.file_name().to_string_lossy().starts_with(".sentinel.json.damaged-"));
        assert_eq!(std::fs::read_to_string(copy.unwrap().path()).unwrap(), content);
    }
    let files = home.json(&["recovery", "sentinels"]);
    assert_eq!(
        home.api("GET", "/api/admin/recovery/jobs/sentinels", None).1["sentinels"].as_array().unwrap().len(),
        3
    );
    let state = |id: &str| {
        let all = files["sentinels"].as_array().unwrap();
        let one = all.iter().find(|one| one["jobId"] == id).unwrap();
        (text(one, "state").to_owned(), text(one, "lock").to_owned())
    };
    assert_eq!(state(corrupt), ("corrupt".into(), "held".into()));
    assert_eq!(state(empty), ("empty".into(), "held".into()));
    assert_eq!(state(well), ("read".into(), "held".into()));
    // Silent for as long as the sentinel says nothing, and alive all the same.
    until_job(&home, corrupt, "status", "stale");
    for id in [corrupt, empty] {
        signal_supervisor(id, Signal::CONT);
        until_job(&home, id, "status", "fresh");
    }
    assert_eq!(home.told("job_quarantined").len(), 2, "once each");
    assert_eq!(told(&home, well), ["job_started"]);
}

#[test]
fn a_missing_sentinel_and_one_from_the_future_kill_nobody() {
    let home = Home::with_config(QUICK);
    let _server = home.up(&[]);
    let (missing, future) = (started(&home, "exec sleep 600"), started(&home, "exec sleep 600"));
    freeze_supervisor(&missing);
    std::fs::remove_file(sentinel(&home, &missing)).unwrap();
    freeze_supervisor(&future);
    let path = sentinel(&home, &future);
    let mut content: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    content["lastHeartbeat"] = json!("2999-01-01T00:00:00.000Z");
    put(&path, &content.to_string());
    eventually("it is warned of", || home.log().contains("ahead of the clock here").then_some(()));
    let beats = home.api("GET", "/api/admin/recovery/jobs/heartbeats", None).1;
    let one = beats["jobs"].as_array().unwrap().iter().find(|one| one["jobId"] == future.as_str()).unwrap();
    assert_eq!(one["ageSeconds"], 0, "{one}");
    // By the observer's own clock it grows silent like everybody else.
    let stale = until_job(&home, &future, "status", "stale");
    assert!(text(&stale, "status_reason").contains("its lock is held"), "{stale}");
    let stale = until_job(&home, &missing, "status", "stale");
    assert!(text(&stale, "status_reason").contains("no sentinel"), "{stale}");
    for id in [&missing, &future] {
        signal_supervisor(id, Signal::CONT);
        until_job(&home, id, "status", "fresh");
        assert_eq!(told(&home, id), ["job_started", "job_stale", "job_recovered"]);
    }
}

#[test]
fn where_the_lock_says_nothing_silence_is_death_and_a_heartbeat_corrects_it() {
    let home = Home::with_config(QUICK);
    let _server = home.up(&[]);
    let id = started(&home, "exec sleep 600");
    freeze_supervisor(&id);
    std::fs::remove_file(home.path().join("jobs").join(&id).join(".alive")).unwrap();
    until_job(&home, &id, "status", "stale");
    let dead = until_job(&home, &id, "status", "dead");
    assert!(dead["cleanup_at"].is_string() && dead["ended_at"].is_string(), "{dead}");
    let sum = home.api("GET", "/api/admin/recovery/jobs/heartbeats", None).1["summary"].clone();
    assert_eq!(sum["dead"], 1, "{sum}");
    signal_supervisor(&id, Signal::CONT);
    let alive = until_job(&home, &id, "status", "fresh");
    assert!(alive["cleanup_at"].is_null() && alive["ended_at"].is_null(), "{alive}");
    assert_eq!(told(&home, &id), ["job_started", "job_stale", "job_dead", "job_recovered"]);
}

#[test]
fn a_killed_supervisor_is_a_failed_job_with_nothing_left_of_it() {
    let home = Home::new();
    let _server = home.up(&[]);
    let id = started(&home, "(sleep 602 & sleep 601) & exec sleep 600");
    let all = format!("PARHELIA_JOB_ID={id}");
    eventually("the whole tree runs", || (alive_with(&all) >= 3).then_some(()));
    signal_supervisor(&id, Signal::KILL);
    let failed = until_job(&home, &id, "status", "failed");
    assert!(text(&failed, "status_reason").contains("supervisor died"), "{failed}");
    eventually("child and grandchildren are gone", || (alive_with(&all) == 0).then_some(()));
    assert_eq!(told(&home, &id), ["job_started", "job_failed"]);
}

#[test]
fn whoever_needs_a_person_is_told_of_until_it_goes_on() {
    let home = Home::new();
    let _server = home.up(&[]);
    let go = home.path().join("go");
    let asks = r#"{"type":"needs_human","reason":"which branch?"}"#;
    let id = started(
        &home,
        &format!(
            "echo begin; sleep 1; echo '{asks}'; until [ -e '{}' ]; do sleep 0.1; done; while :; do echo on; sleep 0.3; done",
            go.display()
        ),
    );
    let waits = until_job(&home, &id, "activity", "waiting");
    assert_eq!(text(&waits, "waiting_reason"), "which branch?");
    assert!(waits["waiting_since"].is_string(), "{waits}");
    let event = home.told("job_waiting").pop().unwrap();
    assert_eq!(text(&event, "message"), "Job needs a person: which branch?");
    let metrics = home.http("GET", "/metrics", None).1;
    assert!(
        metrics.contains("parhelia_jobs_waiting{} 1") && metrics.contains("status=\"fresh\""),
        "{metrics}"
    );
    assert!(home.ok(&["recovery", "status"]).contains("which branch?"));
    std::fs::write(&go, "").unwrap();
    until_job(&home, &id, "activity", "running");
    assert_eq!(told(&home, &id), ["job_started", "job_waiting", "job_working"]);
}

#[test]
fn a_job_of_another_provider_follows_its_container() {
    let world = FakeWorld::new();
    let often = QUICK.replace("[reconciler]\n", "[reconciler]\npoll_interval_seconds = 1\n");
    let home = Home::with_config(&format!("{}{often}", world.line()));
    let _server = home.up(&[]);
    let asked = exec(&home, json!({"command": ["agent"], "provider": "fake"}));
    let (id, container) = (text(&asked, "id").to_owned(), text(&asked, "container_id").to_owned());
    home.until_seen(&container, "state", "running");
    // Its provider's word is enough.
    until_job(&home, &id, "status", "fresh");
    let beat = || {
        let beat = json!({"heartbeats": [{"container_id": container}]});
        assert_eq!(home.api("POST", "/api/v1/heartbeats", Some(beat)).0, 200);
    };
    beat();
    until_job(&home, &id, "status", "fresh");
    let silent = until_job(&home, &id, "status", "stale");
    assert!(text(&silent, "status_reason").starts_with("its container is "), "{silent}");
    until_job(&home, &id, "status", "dead");
    beat();
    until_job(&home, &id, "status", "fresh");
    beat();
    world.change(|world| {
        let sandbox = &mut world["sandboxes"][0];
        sandbox["ended_at"] = sandbox["created_at"].clone();
        sandbox["exit_code"] = json!(6);
    });
    home.reconcile();
    let failed = until_job(&home, &id, "status", "failed");
    assert_eq!(failed["exit_code"], 6, "{failed}");
    let all = ["job_started", "job_stale", "job_dead", "job_recovered", "job_failed"];
    assert_eq!(told(&home, &id), all);
}
