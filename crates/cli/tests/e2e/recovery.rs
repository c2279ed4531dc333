//! The server goes and comes back: what happened meanwhile is known, what was begun is finished, and what
//! cannot be known is not guessed.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Home, alive_with, eventually, signal_supervisor, text};

const PRICED: &str = "[reconciler]\npoll_interval_seconds = 1\n\
    [[prices]]\nprovider = 'process'\neffective_from = '2026-01-01T00:00:00Z'\nsandbox_hour = 0.5\n";

fn tree_of(id: &str) -> usize {
    alive_with(&format!("PARHELIA_CONTAINER_ID={id}"))
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Waits for `file` to be made, then ends with `code`.
fn until_told(file: &Path, code: i64) -> String {
    format!("while [ ! -e {} ]; do sleep 0.05; done; exit {code}", file.display())
}

#[test]
fn ctrl_c_leaves_the_sandboxes_and_the_next_server_knows_what_happened_meanwhile() {
    let home = Home::new();
    let mut server = home.up(&[]);
    let flag = home.path().join("go");
    let ending = home.start(&[], &["sh", "-c", &until_told(&flag, 9)]);
    let lasting = home.start(&[], &["sh", "-c", "echo before; sleep 1000"]);
    let job = home.job_dir(&home.seen(&ending));
    kill_process(Pid::from_child(server.child()), Signal::INT).unwrap();
    assert_eq!(server.wait(), 0);
    assert!(home.log().contains("The sandboxes are left running"), "{}", home.log());
    assert!(tree_of(&ending) > 0 && tree_of(&lasting) > 0);

    std::fs::write(&flag, "").unwrap();
    eventually("it has ended on its own", || job.join("result.json").exists().then_some(()));
    let _server = home.up(&[]);
    let ended = home.until_seen(&ending, "state", "terminated");
    assert_eq!((text(&ended, "termination_reason"), ended["exit_code"].as_i64()), ("failed", Some(9)));
    let result = read(&job.join("result.json"));
    let moment = |value: &Value, field: &str| text(value, field).parse::<jiff::Timestamp>().unwrap();
    assert_eq!(moment(&ended, "terminated_at"), moment(&result, "endedAt"), "its own time, not ours");
    assert_eq!(home.seen(&lasting)["state"], "running");
    assert_eq!(home.ok(&["containers", "logs", &lasting]), "before\n");
    assert_eq!((home.told("server_stopped").len(), home.told("server_started").len()), (1, 2));
    home.ok(&["containers", "terminate", &lasting, "--yes"]);
    assert_eq!(tree_of(&lasting), 0, "the new server can end what the old one started");
}

#[test]
fn a_stop_that_was_under_way_is_finished_by_the_next_server() {
    let home = Home::new();
    let server = home.up(&[]);
    let deaf = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"];
    let (told, asked) = (home.start(&[], &deaf), home.start(&[], &deaf));
    for id in [&told, &asked] {
        eventually("it is deaf", || home.ok(&["containers", "logs", id]).contains("ready").then_some(()));
    }
    home.ok(&["containers", "terminate", &told, "--grace", "3", "--yes", "--no-wait"]);
    eventually("it was told", || home.seen(&told)["stopping_at"].is_string().then_some(()));
    // The other one's request is acknowledged, and perhaps nothing more.
    let path = format!("/api/v1/containers/{asked}/terminate");
    assert_eq!(home.api("POST", &path, Some(json!({ "grace_seconds": 1 }))).0, 200);
    server.kill();
    let _server = home.up(&[]);
    for id in [&told, &asked] {
        let ended = home.until_seen(id, "state", "terminated");
        assert_eq!(text(&ended, "termination_reason"), "manual");
        assert!(ended["stop_confirmed_at"].is_string() && ended["stop_seen_at"].is_string(), "{ended}");
        assert_eq!(tree_of(id), 0);
        let requests = home.events_of(id).iter().filter(|kind| *kind == "stop_requested").count();
        assert_eq!(requests, 1, "asked once, told once");
    }
}

#[test]
fn heartbeats_of_an_outage_arrive_after_it() {
    let home = Home::with_config("[health]\nheartbeat_interval_seconds = 1\n");
    let server = home.up(&[]);
    let id = home.start(&[], &["sleep", "1000"]);
    home.until_seen(&id, "health", "healthy");
    let sentinel = home.job_dir(&home.seen(&id)).join(".sentinel.json");
    server.kill();
    for _ in 0..4 {
        let before = read(&sentinel)["lastHeartbeat"].clone();
        eventually("its heart beats on", || (read(&sentinel)["lastHeartbeat"] != before).then_some(()));
    }
    let _server = home.up(&[]);
    eventually("the beats of the outage are there, with how long they waited", || {
        let path = format!("/api/v1/containers/{id}/heartbeats?limit=1000");
        let history = home.api("GET", &path, None).1;
        let late = |beat: &&Value| beat["metadata"]["delayed_seconds"].as_f64().is_some_and(|s| s >= 0.5);
        let kept = history["heartbeats"].as_array().unwrap().iter().filter(late).count();
        (kept >= 3).then_some(())
    });
    assert_eq!(home.seen(&id)["health"], "healthy");
}

#[test]
fn a_jobs_directory_that_is_away_proves_nothing() {
    let home = Home::with_config("[reconciler]\npoll_interval_seconds = 1\n");
    let _server = home.up(&[]);
    let ids: Vec<String> = (0..5).map(|_| home.start(&[], &["sleep", "1000"])).collect();
    let (jobs, away) = (home.path().join("jobs"), home.path().join("jobs.away"));
    std::fs::rename(&jobs, &away).unwrap();
    for _ in 0..3 {
        let status = home.reconcile();
        assert!(status["providers"][0]["unreachable_since"].is_string(), "{status}");
    }
    assert!(ids.iter().all(|id| home.seen(id)["state"] == "running"));
    let told = home.told("provider_unreachable");
    assert!(told.len() == 1 && text(&told[0], "message").contains("is gone"), "{told:?}");
    std::fs::rename(&away, &jobs).unwrap();
    home.reconcile();
    assert_eq!(home.told("provider_recovered").len(), 1);
    assert!(home.told("container_terminated").is_empty());
    for id in &ids {
        assert_eq!((text(&home.seen(id), "state"), tree_of(id)), ("running", 1));
    }
    home.ok(&["containers", "terminate", &ids[0], "--yes"]);
    assert_eq!(tree_of(&ids[0]), 0);
}

#[test]
fn a_sandbox_that_lost_its_directory_is_not_taken_for_ended() {
    let home = Home::with_config("[reconciler]\npoll_interval_seconds = 1\n");
    let _server = home.up(&[]);
    let id = home.start(&[], &["sh", "-c", "setsid sleep 1000 & wait"]);
    eventually("its tree is there", || (tree_of(&id) == 2).then_some(()));
    // Its supervisor still writes there from time to time: a removal may meet a new file.
    let job = home.job_dir(&home.seen(&id));
    eventually("the directory is gone", || std::fs::remove_dir_all(&job).is_ok().then_some(()));
    for _ in 0..3 {
        home.reconcile();
        assert_eq!((text(&home.seen(&id), "state"), tree_of(&id)), ("running", 2));
    }
    let status = home.json(&["reconciler", "status"]);
    let waiting = status["providers"][0]["last_cycle"]["waiting"].to_string();
    assert!(waiting.contains("2 of its processes still run"), "{status}");
    home.ok(&["containers", "terminate", &id, "--yes"]);
    assert_eq!((text(&home.seen(&id), "termination_reason"), tree_of(&id)), ("manual", 0));
}

#[test]
fn one_corrupt_job_is_set_aside_and_the_rest_goes_on() {
    let home = Home::with_config("[reconciler]\npoll_interval_seconds = 1\n");
    let server = home.up(&[]);
    let ids: Vec<String> = (0..3).map(|_| home.start(&[], &["sleep", "1000"])).collect();
    let [dead, living, healthy] = &ids[..] else { panic!("three") };
    let rows: Vec<Value> = ids.iter().map(|id| home.seen(id)).collect();
    server.kill();
    let junk = home.path().join("jobs/0b0e0000-0000-4000-8000-000000000000");
    std::fs::create_dir(&junk).unwrap();
    signal_supervisor(text(&rows[0], "sandbox_id"), Signal::KILL);
    eventually("it is gone", || (tree_of(dead) == 0).then_some(()));
    for row in &rows[..2] {
        std::fs::write(home.job_dir(row).join("spec.json"), "{ half a fi").unwrap();
    }
    let _server = home.up(&[]);
    home.reconcile();
    let told: Vec<String> =
        home.told("sandbox_quarantined").iter().map(|e| text(e, "message").to_owned()).collect();
    for (row, part) in [(&rows[0], "moved to"), (&rows[1], "it is alive and stays in its place")] {
        let sandbox = text(row, "sandbox_id");
        assert!(told.iter().any(|m| m.contains(sandbox) && m.contains(part)), "{sandbox}: {told:?}");
    }
    assert!(home.path().join("jobs/.quarantine").read_dir().unwrap().count() >= 1);
    assert!(!home.job_dir(&rows[0]).exists() && home.job_dir(&rows[1]).exists());
    assert_eq!(home.until_seen(dead, "state", "terminated")["exit_code"], Value::Null);
    assert_eq!((text(&home.seen(living), "state"), tree_of(living)), ("running", 1), "alive is alive");
    assert_eq!(home.seen(healthy)["state"], "running");
    let more = home.start(&[], &["sh", "-c", "exit 4"]);
    assert_eq!(home.until_seen(&more, "state", "terminated")["exit_code"], 4);
    for id in [living, healthy] {
        home.ok(&["containers", "terminate", id, "--yes"]);
        assert_eq!(tree_of(id), 0);
    }
    // What is no longer alive need not stay in its place either; nothing else is told of again.
    eventually("the second one is set aside after its end", || {
        (!home.job_dir(&rows[1]).exists()).then_some(())
    });
    home.reconcile();
    assert_eq!(home.told("sandbox_quarantined").len(), told.len() + 1);
}

#[test]
fn a_free_lock_is_believed_only_from_this_kernel() {
    let home = Home::with_config("[reconciler]\npoll_interval_seconds = 1\n");
    let server = home.up(&[]);
    let id = home.start(&[], &["sleep", "1000"]);
    let row = home.seen(&id);
    let alive = home.job_dir(&row).join(".alive");
    let note = read(&alive);
    server.kill();
    signal_supervisor(text(&row, "sandbox_id"), Signal::KILL);
    eventually("it is gone", || (tree_of(&id) == 0).then_some(()));

    let elsewhere = json!({ "protocol": 1, "bootId": "another-boot", "machineId": "another-machine" });
    std::fs::write(&alive, elsewhere.to_string()).unwrap();
    let server = home.up(&[]);
    for _ in 0..3 {
        let status = home.reconcile();
        let waiting = status["providers"][0]["last_cycle"]["waiting"].to_string();
        assert!(waiting.contains("started on another machine"), "{status}");
    }
    assert_eq!(home.seen(&id)["state"], "running", "only that machine can say");
    server.kill();

    assert!(note["machineId"].is_string(), "this machine needs /etc/machine-id (systemd-machine-id-setup)");
    let rebooted = json!({ "protocol": 1, "bootId": "an-earlier-boot", "machineId": note["machineId"] });
    std::fs::write(&alive, rebooted.to_string()).unwrap();
    let _server = home.up(&[]);
    let ended = home.until_seen(&id, "state", "terminated");
    assert_eq!(text(&ended, "termination_reason"), "host_rebooted");
}

#[test]
fn a_lost_store_hides_nothing_that_it_left_running() {
    let home = Home::with_config(PRICED);
    let server = home.up(&[]);
    let old = home.instance_id();
    let ids: Vec<String> =
        (0..3).map(|n| home.start(&["--name", &format!("n{n}")], &["sleep", "1000"])).collect();
    server.kill();
    for file in home.path().read_dir().unwrap().flatten() {
        if file.file_name().to_str().unwrap().starts_with("parhelia.sqlite3") {
            std::fs::remove_file(file.path()).unwrap();
        }
    }
    let _server = home.up(&[]);
    assert_ne!(home.instance_id(), old);
    let instance = eventually("the lost instance is listed", || {
        let all = home.json(&["instances", "list"]);
        let lost = all.as_array().unwrap().iter().find(|i| i["id"] == *old).cloned();
        lost.filter(|i| i["foreign"].as_array().unwrap().len() == 3)
    });
    assert!(instance["cost"].as_f64().unwrap() > 0.0 && instance["cost_per_hour_usd"] == 1.5, "{instance}");
    assert!(home.all_seen().is_empty(), "they are not ours yet");
    let screen = home.ok(&["containers"]);
    assert!(screen.contains("Foreign: 3 ($1.50/hr)"), "the screen tells of them: {screen}");
    assert!(ids.iter().all(|id| tree_of(id) == 1));

    let adopted = home.json(&["instances", "adopt", &old, "--yes"]);
    assert_eq!(adopted["containers"].as_array().unwrap().len(), 3);
    for id in &ids {
        let row = home.until_seen(id, "state", "running");
        assert!(row["cost"].as_f64().unwrap() > 0.0 && text(&row, "name").starts_with('n'), "{row}");
        home.ok(&["containers", "terminate", id, "--yes"]);
        assert_eq!(tree_of(id), 0);
        assert_eq!(text(&home.seen(id), "termination_reason"), "manual");
    }
}
