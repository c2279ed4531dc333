//! Signals: kept, taken once by each wait, also when they came first.

use serde_json::{Value, json};

use crate::harness::{Home, eventually, text};
use crate::sessions::{begin, begin_as, until_session};

fn waits_for(signal: &str) -> Value {
    json!({"cascade_id": "waits", "phases": [
        {"name": "hear", "await": {"signal": signal}},
        {"name": "say", "set": {"heard": "{{ outputs.hear.payload }}"}},
    ]})
}

fn payload(detail: &Value) -> &Value {
    &detail["phases"][0]["row"]["outputs"]["payload"]
}

#[test]
fn a_signal_reaches_its_wait_also_when_it_came_first() {
    let home = Home::new();
    let _server = home.up(&[]);
    assert!(home.run(&["signals"]).err.contains("No signals match"));
    let early =
        home.ok(&["signals", "fire", "green", "--payload", "{\"n\": 1}", "-o", "name"]).trim().to_owned();
    let pending = home.json(&["signals", "list", "--pending"]);
    assert_eq!((text(&pending[0], "id"), &pending[0]["deliveries"]), (early.as_str(), &json!(0)));
    let id = begin(&home, waits_for("green"));
    let done = until_session(&home, &id, "completed");
    assert_eq!(done["waits"][0]["signal_id"], early.as_str(), "{done}");
    assert_eq!(payload(&done), &json!({"n": 1}), "{done}");
    assert_eq!(home.json(&["signals", "list", "--pending"]), json!([]));
    let listed = home.ok(&["signals", "list", "--name", "green"]);
    assert!(listed.contains("1 wait") && listed.contains("local"), "{listed}");

    // One that is taken is not taken again: the next wait waits.
    let second = begin_as(&home, json!({"cascade": waits_for("green"), "name": "second"}));
    let blocked = until_session(&home, &second, "blocked");
    assert_eq!((text(&blocked, "blocked_type"), text(&blocked, "blocked_on")), ("signal", "green"));
    let why = home.ok(&["why", "second"]);
    assert!(
        why.contains("the signal green")
            && why.contains(&format!("parhelia signals fire green --session {second}")),
        "{why}"
    );
    assert!(home.run(&["inbox"]).err.contains("1 wait for signals or sensors"));
    let refused = home.run(&["inbox", "answer", text(&blocked["waits"][0], "id"), "yes"]);
    assert!(refused.code == 4 && refused.err.contains("fire the signal"), "{refused:?}");
    home.ok(&["signals", "fire", "green", "--session", "second", "--payload", "[2]"]);
    assert_eq!(payload(&until_session(&home, &second, "completed")), &json!([2]));

    let over = home.run(&["signals", "fire", "green", "--session", &second]);
    assert!(over.code == 4 && over.err.contains("is over"), "{over:?}");
    assert_eq!(home.run(&["signals", "fire", "green", "--session", "nobody"]).code, 3);
    assert_eq!(home.run(&["signals", "fire", "green", "--payload", "{"]).code, 2);
    assert_eq!(home.run(&["signals", "fire", ""]).code, 2);
    let large = json!({"name": "green", "payload": "x".repeat(300_000)});
    let (status, problem) = home.api("POST", "/api/v1/signals", Some(large));
    assert!(status == 422 && text(&problem, "detail").contains("the payload"), "{problem}");
    let (status, page) = home.api("GET", "/api/v1/signals?limit=1", None);
    assert_eq!((status, page["signals"].as_array().unwrap().len(), page["next"].is_string()), (200, 1, true));
    let fired = home.told("signal_fired");
    assert_eq!(fired.len(), 2, "{fired:?}");
    assert_eq!((&fired[0]["session_id"], text(&fired[1], "session_id")), (&Value::Null, second.as_str()));
    assert_eq!(home.told("signal_delivered").len(), 2);
}

#[test]
fn one_for_everybody_ends_every_wait_that_is_open() {
    let home = Home::new();
    let server = home.up(&[]);
    let ids: Vec<String> = (0..3).map(|_| begin(&home, waits_for("go"))).collect();
    let other = begin(&home, waits_for("stop"));
    for id in ids.iter().chain([&other]) {
        until_session(&home, id, "blocked");
    }
    // Fired while its session has no server: it is not lost.
    home.ok(&["signals", "fire", "go"]);
    server.kill();
    let _server = home.up(&[]);
    for id in &ids {
        until_session(&home, id, "completed");
    }
    until_session(&home, &other, "blocked");
    let signal = eventually("it was delivered to each", || {
        Some(home.json(&["signals", "list", "--name", "go"])[0].clone()).filter(|one| one["deliveries"] == 3)
    });
    assert!(signal["delivered_at"].is_string(), "{signal}");
    home.ok(&["sessions", "cancel", &other, "--wait"]);
}

#[test]
fn what_was_kept_for_one_that_has_ended_is_for_whoever_waits_next() {
    let home = Home::new();
    let server = home.up(&[]);
    let kept = begin_as(&home, json!({"cascade": waits_for("go"), "auto_resume": false}));
    until_session(&home, &kept, "blocked");
    server.kill();
    let _server = home.up(&[]);
    until_session(&home, &kept, "orphaned");
    home.ok(&["signals", "fire", "go", "--payload", "7"]);
    let next = begin(&home, waits_for("go"));
    until_session(&home, &next, "blocked");
    assert_eq!(
        home.json(&["signals", "list", "--name", "go"])[0]["deliveries"],
        0,
        "it is kept for who waited"
    );
    home.ok(&["sessions", "cancel", &kept, "--wait"]);
    let done = until_session(&home, &next, "completed");
    assert_eq!(*payload(&done), 7, "{done}");
}
