//! The registry as it was: what `containers` said at a moment is found again in the history.

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{FakeWorld, Home, moment, signal_supervisor, text};

const QUICK: &str = "[health]\nheartbeat_interval_seconds = 1\ncheck_interval_seconds = 1\n\
                     degraded_after_seconds = 3\ndead_after_seconds = 600\nresumption_window_seconds = 0\n\
                     [reconciler]\npoll_interval_seconds = 1\nstale_threshold_seconds = 500\n\
                     orphan_grace_period_seconds = 5\n\
                     [[prices]]\nprovider = 'process'\neffective_from = '2026-01-01T00:00:00Z'\nsandbox_hour = 36.0\n\
                     [[prices]]\nprovider = 'fake'\neffective_from = '2026-01-01T00:00:00Z'\nsandbox_hour = 7.2\n";

/// What the list said, and the moments just before and just after it was asked.
struct Snapshot {
    what: &'static str,
    before: String,
    after: String,
    containers: Vec<Value>,
}

fn listed(home: &Home, more: &[&str]) -> Vec<Value> {
    home.json(&[&["containers", "--all"], more].concat()).as_array().unwrap().clone()
}

fn snapshot(home: &Home, what: &'static str) -> Snapshot {
    let before = moment(0).to_string();
    let containers = listed(home, &[]);
    Snapshot { what, before, after: moment(0).to_string(), containers }
}

fn facts(container: &Value) -> [String; 5] {
    ["id", "state", "health", "desired", "suspected"].map(|field| container[field].to_string())
}

#[test]
fn what_was_listed_is_found_again_at_its_moment() {
    let world = FakeWorld::new();
    let home = Home::with_config(&(world.line() + QUICK));
    let _server = home.up(&[]);
    let mut taken = Vec::new();

    let first = home.start(&["--task", "T-1"], &["sleep", "600"]);
    home.until_seen(&first, "health", "healthy");
    taken.push(snapshot(&home, "one healthy"));

    let second = home.start(&[], &["sleep", "600"]);
    home.until_seen(&second, "health", "healthy");
    taken.push(snapshot(&home, "two healthy"));

    let sandbox = text(&home.seen(&first), "sandbox_id").to_owned();
    signal_supervisor(&sandbox, Signal::STOP);
    home.until_seen(&first, "health", "degraded");
    taken.push(snapshot(&home, "one degraded"));
    signal_supervisor(&sandbox, Signal::CONT);
    home.until_seen(&first, "health", "healthy");
    taken.push(snapshot(&home, "recovered"));

    world.add("sb-stray", &home.instance_id(), "c-stray000", 1);
    home.reconcile();
    let suspect = home.seen("c-stray000");
    assert_eq!(suspect["suspected"], true, "{suspect}");
    taken.push(snapshot(&home, "a suspect"));
    home.until_seen("c-stray000", "state", "orphaned");
    // Nobody ever heard it, which is noticed in the same seconds.
    home.until_seen("c-stray000", "health", "degraded");
    taken.push(snapshot(&home, "an orphan"));

    home.ok(&["containers", "terminate", &second, "--yes"]);
    home.until_seen(&second, "state", "terminated");
    taken.push(snapshot(&home, "one ended"));

    for Snapshot { what, before, after, containers } in &taken {
        let [early, late] = [before, after].map(|at| listed(&home, &["--at", at]));
        assert_eq!(early.len(), containers.len(), "{what}: {early:?}");
        for ((then, early), late) in containers.iter().zip(&early).zip(&late) {
            assert_eq!(facts(early), facts(then), "{what}");
            assert_eq!(facts(late), facts(then), "{what}");
            // The list was made somewhere between the two, and so was its cost.
            let cost = |of: &Value| of["cost"].as_f64().unwrap();
            let between = cost(early) - 1e-6 <= cost(then) && cost(then) <= cost(late) + 1e-6;
            assert!(between, "{what}: {} {} {}", cost(early), cost(then), cost(late));
            let rate = |of: &Value| of["cost_rate_per_hour"].as_f64();
            assert_eq!(rate(early), rate(then), "{what}");
        }
    }
    // Only what there was: the first moment knows nothing of the second container, and filters work on the past.
    assert_eq!(listed(&home, &["--at", &taken[0].after]).len(), 1);
    let degraded = home.ok(&["containers", "-q", "--health", "degraded", "--at", &taken[2].after]);
    assert_eq!(degraded.trim(), first);
    let screen = home.ok(&["containers", "--at", &taken[2].after]);
    assert!(screen.contains("\nAs of ") && screen.contains("Total: 2 containers | Running: 2"), "{screen}");
    let wished = home.json(&["containers", "--all", "--at", &taken[6].after]);
    let ended = wished.as_array().unwrap().iter().find(|c| c["id"] == second.as_str()).unwrap().clone();
    assert_eq!((text(&ended, "desired_by"), text(&ended, "termination_reason")), ("local", "manual"));
    assert!(ended["stop_confirmed_at"].is_string() && ended["stop_seen_at"].is_string(), "{ended}");
}

#[test]
fn a_moment_outside_of_the_history_is_refused_with_the_earliest_that_is_possible() {
    let home = Home::with_config("[retention]\nevent_days = 1\n");
    let _server = home.up(&[]);
    let id = home.start(&[], &["sleep", "600"]);
    let said = home.run(&["containers", "--at", "2020-01-01T00:00:00Z", "-o", "json"]);
    assert_eq!(said.code, 2, "{said:?}");
    let problem: Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!(problem["code"], "before_the_history");
    let message = text(&problem, "message");
    let earliest = message.rsplit("rebuilt is ").next().unwrap().to_owned();
    // What it names works.
    home.ok(&["containers", "--at", &earliest]);

    // Retention's horizon counts, even where older events are still there.
    let old = "UPDATE events SET timestamp = '2026-01-01T00:00:00.000Z' WHERE id = 1";
    home.sqlite().execute(old, []).unwrap();
    let (status, problem) = home.api("GET", "/api/v1/containers?at=2026-01-01T00:00:01Z", None);
    assert_eq!(status, 422, "{problem}");
    let horizon: jiff::Timestamp =
        text(&problem, "detail").rsplit("rebuilt is ").next().unwrap().parse().unwrap();
    assert!(horizon < moment(-86_000) && horizon > moment(-87_000), "{problem}");
    assert!(text(&problem, "fix").contains("retention.event_days"), "{problem}");

    // A container that is older than its events was as it is: nothing has changed since.
    home.until_seen(&id, "health", "healthy");
    home.sqlite().execute("DELETE FROM events WHERE container_id = ?1", [&id]).unwrap();
    let then = home.json(&["containers", "--at", &moment(0).to_string()]);
    assert_eq!((text(&then[0], "state"), text(&then[0], "health")), ("running", "healthy"), "{then}");

    for (at, word) in [("3026-01-01T00:00:00Z", "future"), ("yesterday", "not a moment")] {
        let (status, problem) = home.api("GET", &format!("/api/v1/containers?at={at}"), None);
        assert_eq!(status, 422);
        assert!(text(&problem, "detail").contains(word), "{problem}");
    }
}
