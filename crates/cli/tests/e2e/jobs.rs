//! Jobs through the door and the commands: asked for, found by any of their names, read, ended with receipts,
//! continued, and with secrets that are nowhere else.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Home, alive_with, eventually, text};

/// Asks for a job and gives it as the API showed it.
pub(crate) fn exec(home: &Home, request: Value) -> Value {
    let (status, job) = home.api("POST", "/api/v1/jobs", Some(request));
    assert_eq!(status, 201, "{job}");
    job
}

pub(crate) fn job(home: &Home, id: &str) -> Value {
    let (status, job) = home.api("GET", &format!("/api/v1/jobs/{id}"), None);
    assert_eq!(status, 200, "{id}: {job}");
    job
}

/// Waits until the API shows `field` = `value`.
pub(crate) fn until_job(home: &Home, id: &str, field: &str, value: impl Into<Value>) -> Value {
    let value = value.into();
    eventually(&format!("job {id} has {field} = {value}"), || {
        Some(job(home, id)).filter(|job| job[field] == value)
    })
}

fn sh(script: &str) -> Value {
    json!({"command": ["sh", "-c", script], "env": {"PATH": std::env::var("PATH").unwrap()}})
}

fn with(mut request: Value, key: &str, value: impl Into<Value>) -> Value {
    request[key] = value.into();
    request
}

#[test]
fn a_job_is_found_by_its_id_a_prefix_its_container_and_its_name() {
    let home = Home::new();
    let _server = home.up(&[]);
    let first = exec(&home, with(sh("echo one; exec sleep 600"), "name", "tests"));
    let id = text(&first, "id").to_owned();
    until_job(&home, &id, "status", "fresh");
    for given in [&id, &id[..8], text(&first, "container_id"), "tests"] {
        assert_eq!(text(&job(&home, given), "id"), id, "{given}");
        let shown = home.ok(&["jobs", "show", given]);
        assert!(shown.starts_with(&format!("Job: {id}")) && shown.contains("tests"), "{shown}");
    }
    assert_eq!(home.run(&["jobs", "show", "nobody"]).code, 3);
    let health = home.json(&["jobs", "health", "tests"]);
    assert_eq!(
        (text(&health, "jobId"), text(&health, "heartbeatStatus")),
        (id.as_str(), "fresh"),
        "{health}"
    );
    assert!(home.ok(&["jobs", "health", &id]).contains("Sentinel:     there"));
    let directory = home.path().join("jobs").join(&id);
    assert_eq!(text(&job(&home, &id), "directory"), directory.to_str().unwrap());
    // Equal names of two that live say nothing.
    let second = exec(&home, with(sh("exit 0"), "name", "tests"));
    until_job(&home, text(&second, "id"), "status", "finished");
    assert_eq!(text(&job(&home, "tests"), "id"), id, "the one that is not over is meant");
    let third = exec(&home, with(sh("exec sleep 600"), "name", "tests"));
    let (status, problem) = home.api("GET", "/api/v1/jobs/tests", None);
    assert_eq!(status, 409, "{problem}");
    assert!(text(&problem, "detail").contains(text(&third, "id")), "{problem}");
    // What `containers run` starts is a job too.
    let container = home.start(&[], &["true"]);
    assert_eq!(text(&job(&home, &container), "engine"), "command");
    let listed = home.json(&["jobs", "list"]);
    assert_eq!(listed.as_array().unwrap().len(), 4, "{listed}");
    let screen = home.ok(&["jobs"]);
    assert!(screen.contains("HEARTBEAT") && screen.contains("Total: 4 jobs"), "{screen}");
    let fresh = home.ok(&["jobs", "list", "--status", "fresh,stale", "-o", "name"]);
    assert!(fresh.contains(&id) && !fresh.contains(text(&second, "id")), "{fresh}");
    let page = home.api("GET", "/api/v1/jobs?limit=1", None).1;
    let next = text(&page, "next");
    let rest = home.api("GET", &format!("/api/v1/jobs?before={next}"), None).1;
    assert_eq!((page["jobs"].as_array().unwrap().len(), rest["jobs"].as_array().unwrap().len()), (1, 3));
    assert_eq!(page["totals"]["total"], 4);
    assert_eq!(home.api("GET", "/api/v1/jobs?limit=0", None).0, 422);
    assert_eq!(home.api("GET", "/api/v1/jobs?status=well", None).0, 422);
}

#[test]
fn the_output_is_what_the_child_wrote_and_nothing_else() {
    let home = Home::new();
    let _server = home.up(&[]);
    let asked = exec(&home, sh("printf 'a\\nb\\nc\\n'; echo err >&2; exit 7"));
    let id = text(&asked, "id");
    let followed = home.ok(&["jobs", "logs", id, "-f"]);
    assert_eq!(followed, "a\nb\nc\nerr\n");
    assert_eq!(home.ok(&["jobs", "logs", id, "--tail", "2"]), "c\nerr\n");
    // Its result is enough for the job; the record of its container follows.
    until_job(&home, id, "status", "failed");
    let ended = until_job(&home, id, "state", "terminated");
    assert_eq!(ended["exit_code"], 7, "{ended}");
    assert!(text(&ended, "status_reason").contains("code 7"), "{ended}");
}

#[test]
fn a_cancelled_job_goes_with_everything_it_started_and_shows_each_receipt() {
    let home = Home::new();
    let _server = home.up(&[]);
    // Neither the command nor its grandchild listens to a polite word.
    let script = "trap '' TERM; sh -c \"trap '' TERM; sleep 600\" & echo ready; while :; do sleep 1; done";
    let asked = exec(&home, with(sh(script), "name", "deaf"));
    let id = text(&asked, "id");
    eventually("it is ready", || home.run(&["jobs", "logs", id]).out.contains("ready").then_some(()));
    let mark = format!("PARHELIA_JOB_ID={id}");
    eventually("both are there", || (alive_with(&mark) >= 2).then_some(()));
    let said = home.ok(&["jobs", "cancel", "deaf", "--grace", "1s", "--reason", "enough", "--wait"]);
    assert!(said.contains("is gone"), "{said}");
    assert_eq!(alive_with(&mark), 0, "the whole tree");
    let ended = until_job(&home, id, "status", "failed");
    let receipts = &ended["receipts"];
    // As times: as texts they do not sort, for a fraction that ends in zeros is shorter.
    let order = ["desired_at", "stop_seen_at", "stopping_at", "stop_confirmed_at"]
        .map(|key| text(receipts, key).parse::<jiff::Timestamp>().unwrap());
    assert!(order.is_sorted(), "{receipts}");
    assert_eq!((text(receipts, "desired_by"), text(receipts, "reason")), ("local", "manual"));
    assert!(text(&ended, "status_reason").contains("cancelled by local"), "{ended}");
    let shown = home.ok(&["jobs", "show", id]);
    for part in ["Requested:", "Grace:      1s", "Seen:", "Sent:", "Gone:"] {
        assert!(shown.contains(part) && !shown.contains("not yet"), "{part}: {shown}");
    }
    // Once more is no mistake; by force it is at once.
    assert!(home.ok(&["jobs", "cancel", id]).contains("already over"));
    let other = exec(&home, sh("trap '' TERM; echo up; while :; do sleep 1; done"));
    let other = text(&other, "id");
    eventually("it runs", || home.run(&["jobs", "logs", other]).out.contains("up").then_some(()));
    home.ok(&["jobs", "cancel", "--force", "--wait", other]);
    assert_eq!(job(&home, other)["receipts"]["grace_seconds"], 0);
    let (status, problem) =
        home.api("POST", &format!("/api/v1/jobs/{other}/cancel"), Some(json!({"grace_seconds": -1})));
    assert_eq!(status, 422, "{problem}");
}

#[test]
fn who_needs_a_person_says_so_in_the_list_and_after_its_end() {
    let home = Home::new();
    let _server = home.up(&[]);
    let line = r#"{"type":"needs_human","reason":"may I push?"}"#;
    let asks = exec(&home, with(sh(&format!("echo '{line}'; exec sleep 600")), "name", "asks"));
    let waiting = until_job(&home, text(&asks, "id"), "activity", "waiting");
    assert_eq!(text(&waiting, "waiting_reason"), "may I push?");
    let blocked = exec(&home, with(sh("exit 3"), "name", "blocked"));
    let ended = until_job(&home, text(&blocked, "id"), "status", "finished");
    assert_eq!((text(&ended, "activity"), &ended["exit_code"]), ("waiting", &json!(3)), "{ended}");
    let said = home.run(&["jobs", "list", "--waiting"]);
    assert!(
        said.out.contains("waiting: may I push?") && said.out.contains("Waiting for a person: 2"),
        "{said:?}"
    );
    assert!(said.err.contains("parhelia jobs resume"), "{said:?}");
    exec(&home, with(sh("exit 0"), "name", "done"));
    assert!(!home.ok(&["jobs", "--waiting"]).contains("done"));
}

#[test]
fn a_resumed_job_is_a_new_one_with_the_earlier_command_and_its_origin() {
    let home = Home::new();
    let _server = home.up(&[]);
    let asked =
        exec(&home, with(with(sh("echo \"again $MARK $*\""), "name", "again"), "labels", json!({"a": "b"})));
    let id = text(&asked, "id");
    until_job(&home, id, "status", "finished");
    let next = home.ok(&["jobs", "resume", id, "-o", "name", "--", "x", "y z"]);
    let next = next.trim();
    let resumed = until_job(&home, next, "status", "finished");
    assert_eq!((text(&resumed, "origin_id"), text(&resumed, "name")), (id, "again"));
    assert_eq!(resumed["command"].as_array().unwrap()[3..], ["x", "y z"]);
    assert_eq!(home.ok(&["jobs", "logs", next]), "again  y z\n");
    assert!(home.ok(&["jobs", "show", next]).contains(&format!("Continues:    {id}")));
    let told = home.told("container_created");
    assert_eq!(told.last().unwrap()["details"]["origin"], id);
    // Not while it lives: two would write into one session.
    let lives = exec(&home, sh("exec sleep 600"));
    let (status, problem) = home.api("POST", &format!("/api/v1/jobs/{}/resume", text(&lives, "id")), None);
    assert_eq!(status, 409, "{problem}");
}

/// Every file under a directory that contains `what`.
fn holding(dir: &Path, what: &[u8], into: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            holding(&path, what, into);
        } else if std::fs::read(&path).is_ok_and(|bytes| bytes.windows(what.len()).any(|at| at == what)) {
            into.push(path.display().to_string());
        }
    }
}

#[test]
fn the_secret_of_a_job_is_in_its_environment_and_on_no_disk() {
    let home = Home::new();
    let secrets = home.path().join("secrets");
    std::fs::create_dir(&secrets).unwrap();
    std::fs::write(secrets.join("API_KEY"), "hunter2-8a61c5\n").unwrap();
    let _server = home.up(&[]);
    // The child proves that it has it without saying it.
    let script =
        "[ \"$API_KEY\" = \"$(cat \"$PARHELIA_HOME/secrets/API_KEY\")\" ] && echo same; exec sleep 600";
    let asked = exec(&home, with(sh(script), "secrets", json!(["API_KEY"])));
    let id = text(&asked, "id");
    eventually("it has looked", || home.run(&["jobs", "logs", id]).out.contains("same").then_some(()));
    until_job(&home, id, "status", "fresh");
    let mut found = Vec::new();
    holding(home.path(), b"hunter2-8a61c5", &mut found);
    assert_eq!(found, [secrets.join("API_KEY").display().to_string()]);
    assert_eq!(home.json(&["jobs", "show", id])["id"], id);
    let refused = exec(&home, with(sh("true"), "secrets", json!(["NOBODY_HAS_IT"])));
    let ended = until_job(&home, text(&refused, "id"), "status", "failed");
    assert_eq!(text(&ended, "termination_reason"), "create_failed", "{ended}");
    let why = home.events_of(text(&refused, "container_id"));
    assert!(why.contains(&"create_failed".to_owned()), "{why:?}");
}
