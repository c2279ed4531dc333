//! `parhelia why`: the provider's word of now beside the record, what it waits for, and the way out.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::doors::{call, listening, secret};
use crate::harness::{FakeWorld, Home, eventually, signal_supervisor, text};

fn why(home: &Home, id: &str) -> Value {
    home.json(&["why", id])
}

fn says(why: &Value, from: &str) -> String {
    let all = why["evidence"].as_array().unwrap();
    let one = all.iter().find(|e| text(e, "from").starts_with(from));
    text(one.unwrap_or_else(|| panic!("no evidence from {from}: {why}")), "says").to_owned()
}

fn waits(why: &Value) -> String {
    why["waiting"].as_array().unwrap().iter().map(|w| text(w, "what")).collect::<Vec<_>>().join("\n")
}

fn commands(why: &Value) -> String {
    let all = why["remedies"].as_array().unwrap();
    all.iter().filter_map(|r| r["command"].as_str()).collect::<Vec<_>>().join("\n")
}

/// A server with the fake provider, and a container there that runs.
fn lab(world: &FakeWorld) -> (Home, crate::harness::Server, String) {
    let config = "[reconciler]\npoll_interval_seconds = 1\nprovider_timeout_seconds = 1\n";
    let home = Home::with_config(&(world.line() + config));
    let server = home.up(&[]);
    let request = json!({ "provider": "fake", "command": ["agent"], "env": { "API_KEY": "s3cret-env" } });
    let (status, made) = home.api("POST", "/api/v1/containers", Some(request));
    assert_eq!(status, 201, "{made}");
    let id = text(&made, "id").to_owned();
    home.until_seen(&id, "state", "running");
    (home, server, id)
}

#[test]
fn a_stop_that_is_ignored_and_one_that_is_refused() {
    let world = FakeWorld::new();
    let (home, _server, id) = lab(&world);
    world.change(|w| w["faults"] = json!({ "stop": "ignore" }));
    let stop = Some(json!({ "grace_seconds": 600 }));
    home.api("POST", &format!("/api/v1/containers/{id}/stop"), stop);
    let asked = eventually("the request was taken", || {
        Some(why(&home, &id)).filter(|w| !says(w, "stop receipts").contains("sent not yet"))
    });
    assert!(text(&asked, "state").starts_with("It is being ended: local has asked"), "{asked}");
    assert_eq!(says(&asked, "provider fake now"), "it is running");
    assert!(says(&asked, "stop receipts").ends_with("confirmed gone not yet"), "{asked}");
    let told = eventually("the planner has said what it waits for", || {
        Some(why(&home, &id)).filter(|w| waits(w).contains("told to stop; force in"))
    });
    let force = told["waiting"].as_array().unwrap().iter().find(|w| w["until"].is_string()).unwrap();
    assert_eq!(text(force, "what"), "its own end; then force");
    assert!(commands(&told).contains(&format!("containers terminate {id} --force")), "{told}");
    assert!(told["events"].as_array().unwrap().iter().any(|e| e["event_type"] == "stop_sent"), "{told}");

    world.change(|w| w["faults"] = json!({ "stop": "error" }));
    let now = Some(json!({ "grace_seconds": 0 }));
    home.api("POST", &format!("/api/v1/containers/{id}/terminate"), now);
    let failing = eventually("the refusal is known", || {
        Some(why(&home, &id)).filter(|w| text(w, "state").contains("fake refuses to end it"))
    });
    assert!(says(&failing, "last stop").contains("failed: "), "{failing}");
    assert!(commands(&failing).contains("parhelia doctor"), "{failing}");

    world.change(|w| w["faults"] = json!({}));
    home.until_seen(&id, "state", "terminated");
    let over = why(&home, &id);
    assert!(text(&over, "state").contains("manual. Somebody asked for it."), "{over}");
    assert_eq!(over["waiting"].as_array().unwrap().len(), 0, "{over}");
    let screen = home.ok(&["why", &id[..10]]);
    assert!(screen.starts_with(&format!("container {id}\n  It has ended")), "{screen}");
    assert!(screen.contains("\n  Waits for:\n    nothing\n"), "{screen}");
    assert!(!screen.contains("s3cret") && !over.to_string().contains("s3cret"), "{screen}");
}

#[test]
fn a_provider_that_does_not_answer_is_unknown_and_never_absent() {
    let world = FakeWorld::new();
    let (home, _server, id) = lab(&world);
    world.change(|w| w["faults"] = json!({ "list": "error", "inspect": "hang" }));
    let away = eventually("the silence was noticed", || {
        Some(why(&home, &id)).filter(|w| waits(w).contains("fake to answer again"))
    });
    assert_eq!(says(&away, "provider fake now"), "unknown: no answer within 1s");
    assert!(text(&away, "state").contains("nothing is concluded from that"), "{away}");
    assert!(commands(&away).contains("parhelia doctor"), "{away}");
    world.change(|w| w["faults"] = json!({ "list": "error", "inspect": "error" }));
    assert!(says(&why(&home, &id), "provider fake now").starts_with("unknown: "));
    let provider = why(&home, "fake");
    assert!(text(&provider, "state").starts_with("fake does not answer"), "{provider}");
    let told = provider["events"].as_array().unwrap();
    assert!(told.iter().any(|e| e["event_type"] == "provider_unreachable"), "{provider}");
    world.change(|w| w["faults"] = json!({}));
    eventually("it answers again", || text(&why(&home, "fake"), "state").eq("fake answers.").then_some(()));
}

#[test]
fn a_frozen_supervisor_is_degraded_and_its_lock_says_that_it_lives() {
    let home = Home::with_config(
        "[health]\nheartbeat_interval_seconds = 1\ncheck_interval_seconds = 1\ndegraded_after_seconds = 3\n\
         dead_after_seconds = 3600\nresumption_window_seconds = 0\n[reconciler]\nstale_threshold_seconds = 1800\n",
    );
    let _server = home.up(&[]);
    let id = home.start(&["--task", "T-7"], &["sleep", "600"]);
    home.until_seen(&id, "health", "healthy");
    let well = why(&home, &id);
    assert_eq!((text(&well, "state"), waits(&well).as_str()), ("It runs and is healthy.", ""));
    signal_supervisor(text(&home.seen(&id), "sandbox_id"), Signal::STOP);
    home.until_seen(&id, "health", "degraded");
    let silent = why(&home, &id);
    assert!(text(&silent, "state").contains("is silent: degraded"), "{silent}");
    assert_eq!(says(&silent, "lock"), "held: its supervisor lives");
    assert!(says(&silent, "sentinel").starts_with("running, written "), "{silent}");
    assert!(waits(&silent).contains("without one it is called unhealthy"), "{silent}");
    let until = |word: &str| {
        let all = silent["waiting"].as_array().unwrap();
        let wait = all.iter().find(|w| text(w, "what").ends_with(word)).unwrap();
        text(wait, "until").parse::<jiff::Timestamp>().unwrap()
    };
    let between = parhelia_core::time::seconds_between(until("called unhealthy"), until("called dead"));
    assert!((between - 1800.0).abs() <= 1.0, "the ladder's own distance: {between}");
    assert!(commands(&silent).contains(&format!("containers logs {id}")), "{silent}");
    let task = why(&home, "T-7");
    assert_eq!((text(&task, "kind"), text(&task, "state")), ("task", "One container works on it."));
    assert!(says(&task, &id).starts_with("running, degraded"), "{task}");
    signal_supervisor(text(&home.seen(&id), "sandbox_id"), Signal::CONT);
}

#[test]
fn every_kind_of_id_has_its_why_and_a_worker_only_its_own() {
    let world = FakeWorld::new();
    let home = Home::with_config(&(world.line() + "[reconciler]\npoll_interval_seconds = 1\n"));
    let (_server, address) = listening(&home, &[]);
    let (own, other) = (home.start(&[], &["sleep", "600"]), home.start(&[], &["sleep", "600"]));
    let kind = |id: &str| text(&why(&home, id), "kind").to_owned();
    assert_eq!((kind(&own).as_str(), kind("process").as_str()), ("container", "provider"));

    let viewer = secret(&home, "ann", "viewer", &["--expires", "1h"]);
    let worker = secret(&home, "the-worker", "worker", &["--container", &own]);
    let tokens = home.json(&["tokens", "list"]);
    let token = text(&tokens[0], "id").to_owned();
    let of_token = why(&home, &token);
    assert!(text(&of_token, "state").starts_with("It holds, for "), "{of_token}");
    assert!(commands(&of_token).contains(&format!("tokens revoke {token}")), "{of_token}");
    assert!(!of_token.to_string().contains(&viewer) && !of_token.to_string().contains(&worker));
    home.ok(&["tokens", "revoke", &token]);
    assert!(text(&why(&home, &token), "state").contains("it was revoked"));

    let instance = home.instance_id();
    assert_eq!(text(&why(&home, &instance), "state"), "It is this instance.");
    let elsewhere = "22222222-2222-4222-8222-222222222222";
    world.add("sb-foreign", elsewhere, "c-foreign0", 3600);
    let foreign = eventually("the foreign one is seen", || {
        let said = home.run(&["why", "c-foreign0", "-o", "json"]);
        (said.code == 0).then(|| serde_json::from_str::<Value>(&said.out).unwrap())
    });
    assert_eq!(text(&foreign, "kind"), "foreign");
    assert!(commands(&foreign).contains(&format!("instances adopt {elsewhere}")), "{foreign}");
    assert!(text(&why(&home, elsewhere), "state").contains("1 sandboxes that run"));

    let set = "UPDATE containers SET desired = ?1 WHERE id = ?2";
    home.sqlite().execute(set, ["both", other.as_str()]).unwrap();
    let broken = why(&home, &other);
    assert!(text(&broken, "state").contains("cannot be read"), "{broken}");
    assert!(says(&broken, "store").contains("both"), "{broken}");
    home.sqlite().execute(set, ["running", other.as_str()]).unwrap();

    let said = home.run(&["why", "c-nobody00"]);
    assert_eq!(said.code, 3, "{said:?}");
    let said = home.run(&["why", "c-"]);
    assert!(said.code == 4 && said.err.contains("not unique"), "{said:?}");

    let asks =
        |id: &str, token: &str| call(&address, "GET", &format!("/api/v1/why/{id}"), Some(token), None).0;
    let still = if token == text(&tokens[0], "id") { secret(&home, "eve", "viewer", &[]) } else { viewer };
    assert_eq!(asks(&own, &still), 200);
    let worker = secret(&home, "again", "worker", &["--container", &own]);
    assert_eq!((asks(&own, &worker), asks(&other, &worker), asks("process", &worker)), (200, 403, 403));
}

#[test]
fn a_job_is_explained_by_its_name_and_by_its_id() {
    let home = Home::new();
    let _server = home.up(&[]);
    let id = home.ok(&["exec", "--detach", "-o", "name", "--name", "fixer", "--", "sleep", "600"]);
    let id = id.trim();
    for given in ["fixer", id, &id[..8]] {
        let screen = eventually("its sentinel is among the evidence", || {
            Some(home.ok(&["why", given])).filter(|screen| screen.contains("sentinel"))
        });
        assert!(screen.contains(id), "{given}: {screen}");
    }
    let other = home.ok(&["exec", "--detach", "-o", "name", "--name", "fixer", "--", "sleep", "600"]);
    let said = home.run(&["why", "fixer"]);
    assert_ne!(said.code, 0, "{said:?}");
    assert!(said.err.contains(id) && said.err.contains(other.trim()), "both are named: {said:?}");
}
