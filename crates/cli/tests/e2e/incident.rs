//! The incident of 2026-01-21 replayed: sandboxes that run, cost and are in nobody's books.

use std::process::{Child, Command, Stdio};

use rusqlite::TransactionBehavior;
use serde_json::{Value, json};

use crate::harness::{Home, alive_with, eventually, text};

const LOST: usize = 25;
/// The shell, its child, and a grandchild that left the session.
const TREE: [&str; 3] = ["sh", "-c", "sh -c 'setsid sleep 1000 & wait' & wait"];
const TREE_SIZE: usize = 3;

fn config(grace: &str) -> String {
    format!(
        "[reconciler]\npoll_interval_seconds = 1\n{grace}\n\
         [[prices]]\nprovider = 'process'\neffective_from = '2026-01-01T00:00:00Z'\nsandbox_hour = 0.5\n"
    )
}

fn tree_of(id: &str) -> usize {
    alive_with(&format!("PARHELIA_CONTAINER_ID={id}"))
}

/// A process that has nothing to do with any of this; one even looks like a job of somebody else.
struct Bystander(Child);

impl Bystander {
    fn new(variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new("sleep");
        Self(command.arg("1000").envs(variables.iter().copied()).stdin(Stdio::null()).spawn().unwrap())
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Containers that run with their whole tree.
fn fleet(home: &Home, count: usize) -> Vec<String> {
    let request = json!({ "command": TREE, "task_id": "ta-fleet" });
    let ids: Vec<String> = (0..count)
        .map(|_| {
            let (status, made) = home.api("POST", "/api/v1/containers", Some(request.clone()));
            assert_eq!(status, 201, "{made}");
            text(&made, "id").to_owned()
        })
        .collect();
    for id in &ids {
        home.until_seen(id, "state", "running");
        eventually("its tree is there", || (tree_of(id) == TREE_SIZE).then_some(()));
    }
    ids
}

/// What no server ever does: the rows vanish with everything that refers to them.
fn forget(home: &Home, ids: &[String]) {
    let mut db = home.sqlite();
    let books = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    for id in ids {
        for table in ["events", "heartbeats", "heartbeat_hours", "jobs"] {
            books.execute(&format!("DELETE FROM {table} WHERE container_id = ?1"), [id]).unwrap();
        }
        assert_eq!(books.execute("DELETE FROM containers WHERE id = ?1", [id]).unwrap(), 1);
    }
    books.commit().unwrap();
}

/// What `command` lists, once it is exactly `ids` and `fits` each.
fn listed(home: &Home, command: &[&str], ids: &[String], fits: impl Fn(&Value) -> bool) -> Vec<Value> {
    eventually(&format!("{command:?} lists all that were forgotten"), || {
        let found = home.json(command).as_array().unwrap().clone();
        let all = ids.iter().all(|id| found.iter().any(|c| c["id"] == **id && fits(c)));
        (all && found.len() == ids.len()).then_some(found)
    })
}

#[test]
fn twenty_five_forgotten_sandboxes_are_found_priced_and_ended_and_nothing_else_is() {
    let home = Home::with_config(&config("orphan_grace_period_seconds = 3"));
    let _server = home.up(&[]);
    let forgotten = fleet(&home, LOST);
    let wanted = fleet(&home, 3);
    let mut bystanders =
        [Bystander::new(&[]), Bystander::new(&[("PARHELIA_JOB_ID", "0b0e0000-0000-4000-8000-000000000000")])];
    forget(&home, &forgotten);

    let orphans = listed(&home, &["containers", "orphans"], &forgotten, |c| c["state"] == "orphaned");
    for orphan in &orphans {
        let (age, cost) = (orphan["age"].as_i64().unwrap(), orphan["cost"].as_f64().unwrap());
        assert!(age >= 3 && cost > 0.0 && orphan["cost_rate_per_hour"] == 0.5, "{orphan}");
        assert_eq!(
            (orphan["task"].as_str(), orphan["desired"].as_str()),
            (Some("ta-fleet"), Some("running"))
        );
    }
    for id in &forgotten {
        // Between the two it may have been heard.
        let told = home.events_of(id).into_iter().filter(|kind| kind != "container_healthy");
        let told: Vec<String> = told.take(2).collect();
        assert_eq!(told, ["container_suspected", "orphan_detected"], "{id}");
    }
    let screen = home.ok(&["containers"]);
    assert!(screen.contains("Total: 28 containers") && screen.contains("Orphaned: 25"), "{screen}");

    let shown = home.run(&["cleanup", "--orphans", "--dry-run"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(
        forgotten.iter().all(|id| shown.out.contains(id.as_str())) && shown.out.contains("25 orphans"),
        "{shown:?}"
    );
    assert!(wanted.iter().all(|id| !shown.out.contains(id.as_str())), "{shown:?}");
    let refused = home.run(&["cleanup", "--orphans"]);
    assert_ne!(refused.code, 0, "nobody confirmed: {refused:?}");
    for id in &forgotten {
        assert_eq!(tree_of(id), TREE_SIZE, "a dry run ends nothing");
    }

    let done = home.run(&["cleanup", "--orphans", "--yes"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("25 containers terminated."), "{done:?}");
    for id in &forgotten {
        assert_eq!(tree_of(id), 0, "nothing of {id} is left when cleanup says so");
        let row = home.seen(id);
        assert_eq!((text(&row, "state"), text(&row, "termination_reason")), ("terminated", "orphan_cleanup"));
        for receipt in ["desired_at", "stop_seen_at", "stopping_at", "stop_confirmed_at", "terminated_at"] {
            assert!(row[receipt].is_string(), "{receipt} is missing: {row}");
        }
        assert!(row["cost"].as_f64().unwrap() > 0.0, "{row}");
    }
    for id in &wanted {
        assert_eq!(home.seen(id)["state"], "running");
        assert_eq!(tree_of(id), TREE_SIZE, "{id} was wanted");
    }
    assert!(bystanders.iter_mut().all(Bystander::lives));
    assert_eq!(home.json(&["containers", "orphans"]), json!([]));
}

#[test]
fn with_the_usual_grace_they_are_seen_at_once_and_spared_until_it_is_over() {
    let home = Home::with_config(&config(""));
    let server = home.up(&[]);
    let forgotten = fleet(&home, 3);
    forget(&home, &forgotten);
    let suspects =
        listed(&home, &["containers"], &forgotten, |c| c["state"] == "unknown" && c["suspected"] == true);
    assert!(suspects.iter().all(|c| c["cost"].as_f64().unwrap() > 0.0), "{suspects:?}");
    let said = home.ok(&["containers", "orphans"]);
    assert!(forgotten.iter().all(|id| said.contains(id.as_str())), "listed at first sight: {said}");
    assert!(said.contains("0 orphans detected") && said.contains("(3 suspected"), "{said}");
    let said = home.ok(&["cleanup", "--orphans", "--yes"]);
    assert!(!said.contains("terminated"), "a suspect is no orphan yet: {said}");
    assert!(forgotten.iter().all(|id| tree_of(id) == TREE_SIZE));

    // The same jobs eleven hours later: their own record says how old they are.
    server.kill();
    forget(&home, &forgotten);
    for suspect in &suspects {
        let path = home.job_dir(suspect).join("spec.json");
        let mut spec: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let made: jiff::Timestamp = text(&spec, "createdAt").parse().unwrap();
        let earlier = made - jiff::SignedDuration::from_hours(11);
        spec["createdAt"] = json!(earlier.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string());
        std::fs::write(&path, spec.to_string()).unwrap();
    }
    let _server = home.up(&[]);
    let orphans = listed(&home, &["containers", "orphans"], &forgotten, |c| c["state"] == "orphaned");
    assert!(orphans.iter().all(|c| c["age"].as_i64().unwrap() >= 11 * 3600), "{orphans:?}");
    home.ok(&["cleanup", "--orphans", "--yes", "--older-than", "10h"]);
    assert!(forgotten.iter().all(|id| tree_of(id) == 0));
}
