//! The directories of jobs go by age and state, by hand or by themselves; never one that is alive or undecided.

use serde_json::json;

use crate::harness::{Home, eventually, text};
use crate::jobs::{exec, job, until_job};

const LONG_AGO: &str = "2020-01-01T00:00:00.000Z";

fn sh(home: &Home, script: &str) -> String {
    text(&exec(home, json!({"command": ["sh", "-c", script]})), "id").to_owned()
}

#[test]
fn what_is_over_goes_when_it_is_asked_for_and_what_lives_stays() {
    let home = Home::new();
    let _server = home.up(&[]);
    let (lives, failed, done) = (sh(&home, "exec sleep 600"), sh(&home, "exit 9"), sh(&home, "echo out"));
    until_job(&home, &failed, "status", "failed");
    until_job(&home, &done, "status", "finished");
    // Until then its directory is what the reconciler learns of it from.
    for id in [&failed, &done] {
        until_job(&home, id, "state", "terminated");
    }
    until_job(&home, &lives, "status", "fresh");
    let dir = |id: &str| home.path().join("jobs").join(id);
    // Nothing is old enough by itself.
    assert!(home.ok(&["jobs", "cleanup", "--dry-run", "-o", "name"]).trim().is_empty());
    let shown = home.ok(&["jobs", "cleanup", "--older-than", "0s", "--dry-run", "-o", "name"]);
    assert!(shown.contains(&failed) && shown.contains(&done) && !shown.contains(&lives), "{shown}");
    assert!(dir(&failed).is_dir() && dir(&done).is_dir());
    assert_eq!(
        home.run(&["jobs", "cleanup", "--older-than", "0s"]).code,
        2,
        "it asks, and here nobody answers"
    );
    let said = home.ok(&["jobs", "cleanup", "--older-than", "0s", "--status", "failed", "--yes"]);
    assert!(said.contains("1 job cleaned up"), "{said}");
    assert!(!dir(&failed).exists() && dir(&done).is_dir());
    let cleaned = job(&home, &failed);
    assert!(cleaned["cleaned_at"].is_string() && cleaned["directory"].is_null(), "{cleaned}");
    assert_eq!(cleaned["exit_code"], 9, "its result is kept");
    let logs = home.run(&["jobs", "logs", &failed]);
    assert!(logs.code == 3 && logs.err.contains("cleaned up"), "{logs:?}");
    let told = home.told("job_cleaned");
    assert_eq!((told.len(), text(&told[0]["details"], "job")), (1, failed.as_str()));
    // By name it is refused too: the request says what was shown, and each is looked at again.
    let ask = json!({"older_than_seconds": 0, "ids": [lives, failed]});
    let (status, report) = home.api("POST", "/api/v1/jobs/cleanup", Some(ask));
    assert_eq!(status, 200, "{report}");
    let verdicts: Vec<&str> =
        report["outcomes"].as_array().unwrap().iter().map(|one| text(one, "verdict")).collect();
    assert_eq!(verdicts, ["skipped", "skipped"], "{report}");
    assert!(dir(&lives).is_dir());
    let open = json!({"statuses": ["fresh"]});
    assert_eq!(home.api("POST", "/api/v1/jobs/cleanup", Some(open)).0, 422);
    assert_eq!(text(&job(&home, &lives), "status"), "fresh");
}

#[test]
fn old_ones_go_by_themselves_unless_nobody_knows_how_they_ended() {
    let home = Home::with_config("[jobs]\nkeep_days = 30\n[reconciler]\npoll_interval_seconds = 1\n");
    let server = home.up(&[]);
    let (old, young, undecided) = (sh(&home, "exit 1"), sh(&home, "exit 1"), sh(&home, "exit 1"));
    for id in [&old, &young, &undecided] {
        until_job(&home, id, "status", "failed");
        until_job(&home, id, "state", "terminated");
    }
    let dir = |id: &str| home.path().join("jobs").join(id);
    let past = |id: &str| {
        let set = "UPDATE containers SET terminated_at = ?1 WHERE id = (SELECT container_id FROM jobs WHERE id = ?2)";
        home.sqlite().execute(set, [LONG_AGO, id]).unwrap();
    };
    // As a server that was killed before it had looked: over for the reconciler, and not yet for the jobs loop.
    server.kill();
    let set = "UPDATE jobs SET status = 'stale', ended_at = NULL WHERE id = ?1";
    home.sqlite().execute(set, [&undecided]).unwrap();
    past(&undecided);
    past(&old);
    let _server = home.up(&[]);
    eventually("the old one is gone", || (!dir(&old).exists()).then_some(()));
    let told = eventually("it is told", || home.told("job_cleaned").pop());
    assert!(text(&told, "message").contains("its time is over"), "{told}");
    // The recovery decides what was undecided; then its time is over too.
    eventually("the undecided one is decided first", || {
        (job(&home, &undecided)["status"] == "failed").then_some(())
    });
    eventually("then it goes", || (!dir(&undecided).exists()).then_some(()));
    home.reconcile();
    assert!(dir(&young).is_dir(), "30 days are not over");
    assert!(job(&home, &young)["cleaned_at"].is_null());
    assert_eq!(home.told("job_cleaned").len(), 2);
}
