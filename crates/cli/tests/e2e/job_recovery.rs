//! Jobs over the death of their server: who lives is found again, who ended has its true result, who died is known
//! with the reason; and a start is written down step by step, however often it is cut off.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Home, alive_with, eventually, freeze_supervisor, put, signal_supervisor, text};
use crate::jobs::{exec, job, until_job};

/// Beats every second, so that silence is noticed within a test.
const QUICK: &str = "[health]\nheartbeat_interval_seconds = 1\ncheck_interval_seconds = 1\n\
     degraded_after_seconds = 30\ndead_after_seconds = 60\nresumption_window_seconds = 15\n\
     [reconciler]\nstale_threshold_seconds = 45\n[jobs]\ncheck_seconds = 1\n";

fn started(home: &Home, script: &str) -> String {
    let path = std::env::var("PATH").unwrap();
    let job = exec(home, json!({"command": ["sh", "-c", script], "env": {"PATH": path}}));
    text(&job, "id").to_owned()
}

/// Ends with `code` once the file is there.
fn until_file(file: &Path, code: i32) -> String {
    format!("until [ -e '{}' ]; do sleep 0.05; done; exit {code}", file.display())
}

fn recovery(home: &Home) -> Value {
    let (status, found) = home.api("GET", "/api/admin/recovery/jobs/status", None);
    assert_eq!(status, 200, "{found}");
    found
}

/// Waits until the start has found out about everybody.
fn recovered(home: &Home) -> Value {
    eventually("the recovery is over", || {
        Some(recovery(home)).filter(|found| found["recovery"]["phase"] == "finished")
    })
}

fn startups(home: &Home) -> Vec<Value> {
    let (status, log) = home.api("GET", "/api/admin/startup-log", None);
    assert_eq!(status, 200, "{log}");
    log["startups"].as_array().unwrap().clone()
}

/// Waits until the last start is over, and gives it.
fn completed(home: &Home) -> Value {
    eventually("the start is completed", || {
        let newest = startups(home).into_iter().next()?;
        newest["finishedAt"].is_string().then_some(newest)
    })
}

fn step<'a>(start: &'a Value, name: &str) -> &'a Value {
    start["steps"].as_array().unwrap().iter().find(|step| step["step"] == name).unwrap()
}

/// What was told of a job, oldest first.
fn told(home: &Home, id: &str) -> Vec<String> {
    let container = text(&job(home, id), "container_id").to_owned();
    home.events_of(&container).into_iter().filter(|kind| kind.starts_with("job_")).collect()
}

#[test]
fn twenty_jobs_over_three_deaths_of_their_server() {
    let home = Home::with_config(QUICK);
    let server = home.up(&[]);
    let go = home.path().join("go");
    let end = home.path().join("end");
    let living: Vec<String> = (0..14).map(|_| started(&home, &until_file(&end, 0))).collect();
    let good: Vec<String> = (0..2).map(|_| started(&home, &until_file(&go, 0))).collect();
    let bad: Vec<String> = (0..2).map(|_| started(&home, &until_file(&go, 5))).collect();
    let lost: Vec<String> = (0..2).map(|_| started(&home, "sleep 601 & exec sleep 600")).collect();
    let all: Vec<&String> = [&living, &good, &bad, &lost].into_iter().flatten().collect();
    for id in &all {
        until_job(&home, id, "status", "fresh");
    }
    let beats = home.api("GET", "/api/admin/recovery/jobs/heartbeats", None).1;
    assert_eq!(beats["summary"], json!({"total": 20, "fresh": 20, "stale": 0, "dead": 0}), "{beats}");
    server.kill();

    std::fs::write(&go, "").unwrap();
    for id in good.iter().chain(&bad) {
        let result = home.path().join("jobs").join(id).join("result.json");
        eventually("it ended while nobody watched", || result.exists().then_some(()));
    }
    for id in &lost {
        signal_supervisor(id, Signal::KILL);
        eventually("its supervisor is gone", || {
            (alive_with(&format!("PARHELIA_SUPERVISES={id}")) == 0).then_some(())
        });
    }
    let server = home.up(&[]);
    let found = recovered(&home);
    let counts = &found["recovery"];
    assert_eq!(
        (&counts["total"], &counts["reattached"], &counts["ended"], &counts["gone"]),
        (&json!(20), &json!(14), &json!(4), &json!(2)),
        "{found}"
    );
    for id in &living {
        let shown = job(&home, id);
        assert_eq!(
            (text(&shown, "status"), &shown["reattached_count"]),
            ("reattached", &json!(1)),
            "{shown}"
        );
        assert!(shown["reattach_ms"].as_i64().is_some_and(|ms| ms >= 0), "{shown}");
    }
    for (ids, status, code) in [(&good, "finished", 0), (&bad, "failed", 5)] {
        for id in ids {
            let shown = job(&home, id);
            assert_eq!((text(&shown, "status"), &shown["exit_code"]), (status, &json!(code)), "{shown}");
            assert_eq!(told(&home, id), ["job_started", &format!("job_{status}")]);
        }
    }
    for id in &lost {
        let shown = job(&home, id);
        assert_eq!(text(&shown, "status"), "failed");
        assert!(text(&shown, "status_reason").contains("supervisor died"), "{shown}");
        eventually("nothing of it is left", || {
            (alive_with(&format!("PARHELIA_JOB_ID={id}")) == 0).then_some(())
        });
    }
    let start = completed(&home);
    let names: Vec<&str> = start["steps"].as_array().unwrap().iter().map(|step| text(step, "step")).collect();
    assert_eq!(names, ["store", "leadership", "jobs", "sessions", "orphans"]);
    assert!(
        text(step(&start, "jobs"), "message").contains("14 reattached, 4 ended meanwhile, 2 gone"),
        "{start}"
    );
    let event = home.told("startup_completed").pop().unwrap();
    assert_eq!(event["details"]["jobs"]["reattached"], 14, "{event}");
    let metrics = home.json(&["recovery", "metrics"]);
    assert_eq!((&metrics["total"], &metrics["failed"]), (&json!(20), &json!(2)), "{metrics}");
    assert!((metrics["successRate"].as_f64().unwrap() - 0.9).abs() < 1e-9, "{metrics}");
    assert!(metrics["meanReattachMs"].as_f64().is_some(), "{metrics}");
    assert_eq!(home.api("GET", "/api/admin/recovery/jobs/metrics", None).1, metrics);

    server.kill();
    let server = home.up(&[]);
    recovered(&home);
    server.kill();
    let _server = home.up(&[]);
    recovered(&home);
    for id in &living {
        let shown = job(&home, id);
        assert_eq!(
            (text(&shown, "status"), &shown["reattached_count"]),
            ("reattached", &json!(3)),
            "{shown}"
        );
    }
    std::fs::write(&end, "").unwrap();
    for id in &living {
        until_job(&home, id, "status", "finished");
        // Never anything else in between.
        let again = "job_reattached";
        assert_eq!(told(&home, id), ["job_started", again, again, again, "job_finished"]);
    }
    for id in good.iter().chain(&bad).chain(&lost) {
        assert_eq!(told(&home, id).len(), 2, "what is over stays as it was");
    }
    let failed = home.json(&["recovery", "failed"]);
    assert_eq!(failed["failedJobs"].as_array().unwrap().len(), 4, "{failed}");
}

#[test]
fn a_start_that_is_cut_off_is_noted_and_the_next_one_completes() {
    let home = Home::with_config(QUICK);
    let server = home.up(&[]);
    let ids: Vec<String> = (0..5).map(|_| started(&home, "exec sleep 600")).collect();
    for id in &ids {
        until_job(&home, id, "status", "fresh");
    }
    server.kill();
    // Killed at later and later moments until one was caught in the middle of its start.
    let mut wait = Duration::from_millis(10);
    let cut_off = eventually("a start is cut off", || {
        let server = home.up_at_once(&[]);
        std::thread::sleep(wait);
        server.kill();
        wait = if wait > Duration::from_secs(2) {
            Duration::from_millis(5)
        } else {
            wait * 11 / 10 + Duration::from_millis(1)
        };
        let db = home.sqlite();
        let newest = "SELECT owner_id, finished_at IS NULL FROM startups ORDER BY started_at DESC LIMIT 1";
        let row: (String, bool) = db.query_row(newest, [], |row| Ok((row.get(0)?, row.get(1)?))).ok()?;
        row.1.then_some(row.0)
    });
    let _server = home.up(&[]);
    recovered(&home);
    let start = completed(&home);
    assert!(text(step(&start, "store"), "message").contains("was cut off after"), "{start}");
    let log = startups(&home);
    assert!(log.len() <= 10, "{}", log.len());
    let before = log.iter().find(|start| start["ownerId"] == cut_off.as_str()).unwrap();
    assert!(before["finishedAt"].is_null(), "{before}");
    for id in &ids {
        let shown = job(&home, id);
        assert_eq!(text(&shown, "status"), "reattached", "{shown}");
    }
    let screen = home.ok(&["startup-log"]);
    assert!(screen.contains("completed in") && screen.contains("cut off"), "{screen}");
    assert_eq!(home.json(&["startup-log"])["startups"].as_array().unwrap().len(), log.len());
}

/// Freezes its supervisor, takes its lock away and makes its heartbeat old: nobody can say whether it lives.
fn make_uncertain(home: &Home, id: &str, seconds: i64) {
    freeze_supervisor(id);
    let dir = home.path().join("jobs").join(id);
    std::fs::remove_file(dir.join(".alive")).unwrap();
    let path = dir.join(".sentinel.json");
    let mut sentinel: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let now: jiff::Timestamp = text(&sentinel, "lastHeartbeat").parse().unwrap();
    let old = parhelia_core::time::plus_seconds(now, -seconds);
    sentinel["lastHeartbeat"] = json!(parhelia_core::time::to_text(old));
    put(&path, &sentinel.to_string());
}

#[test]
fn whoever_is_uncertain_is_watched_and_then_decided() {
    let home = Home::with_config(QUICK);
    let server = home.up(&[]);
    let ids: Vec<String> = (0..4).map(|_| started(&home, "exec sleep 600")).collect();
    for id in &ids {
        until_job(&home, id, "status", "fresh");
    }
    let [well, wakes, silent, old] = &ids[..] else { unreachable!() };
    server.kill();
    make_uncertain(&home, wakes, 300);
    make_uncertain(&home, silent, 300);
    make_uncertain(&home, old, 1900);
    let _server = home.up(&[]);
    // The start itself does not wait for them.
    let start = completed(&home);
    let watched = step(&start, "jobs")["details"]["watched"].as_array().unwrap().clone();
    assert_eq!(watched.len(), 2, "{start}");
    assert_eq!(text(&job(&home, old), "status"), "dead");
    assert!(text(&job(&home, old), "status_reason").contains("before this start"), "{}", job(&home, old));
    let found = recovery(&home);
    if found["recovery"]["phase"] == "watching" {
        let jobs = found["jobs"].as_array().unwrap();
        let one = jobs.iter().find(|one| one["jobId"] == silent.as_str()).unwrap();
        assert_eq!((text(one, "finding"), text(one, "status")), ("watched", "fresh"), "{one}");
        assert!(one["watchedUntil"].is_string() && text(one, "watchedBecause").contains("lock"), "{one}");
    }
    signal_supervisor(wakes, Signal::CONT);
    until_job(&home, wakes, "status", "reattached");
    let dead = until_job(&home, silent, "status", "dead");
    assert!(text(&dead, "status_reason").contains("no heartbeat within"), "{dead}");
    assert_eq!(recovered(&home)["recovery"]["gone"], 2);
    assert_eq!(text(&job(&home, well), "status"), "reattached");
    assert_eq!(home.told("job_dead").len(), 2);
    // It lived after all: what was written is corrected.
    signal_supervisor(silent, Signal::CONT);
    until_job(&home, silent, "status", "fresh");
    assert_eq!(told(&home, silent), ["job_started", "job_dead", "job_recovered"]);
}

#[test]
fn a_failed_job_goes_on_in_a_new_one_when_somebody_asks() {
    let home = Home::new();
    let _server = home.up(&[]);
    let id = started(&home, "exit 9");
    until_job(&home, &id, "status", "failed");
    let failed = home.api("GET", "/api/admin/recovery/jobs/failed", None).1;
    let one = &failed["failedJobs"][0];
    assert_eq!((text(one, "jobId"), &one["exitCode"]), (id.as_str(), &json!(9)), "{failed}");
    assert_eq!(one["resume"]["withSession"], false, "{one}");
    assert!(text(&one["resume"], "command").contains(&id), "{one}");
    for checkpoint in [true, false] {
        let asked = json!({"jobId": id, "fromCheckpoint": checkpoint});
        let (status, next) = home.api("POST", "/api/admin/recovery/jobs/resume", Some(asked));
        assert_eq!((status, text(&next, "origin_id")), (201, id.as_str()), "{next}");
        until_job(&home, text(&next, "id"), "status", "failed");
    }
    let (status, _) = home.api("POST", "/api/admin/recovery/jobs/resume", Some(json!({"jobId": "nobody"})));
    assert_eq!(status, 404);
}
