//! A long session whose server is killed at random moments: it always completes, each attempt that is recorded had
//! exactly one effect, and nothing that was done is done again.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Home, eventually, text};
use crate::load::{Dice, number};
use crate::postgres::{Team, signal};

const KILLS: u64 = 20;

/// A task that leaves one line for each time that it runs.
fn effect(file: &Path, seconds: &str) -> Value {
    let line = format!(
        "echo \"$PARHELIA_PHASE/$PARHELIA_TASK $PARHELIA_ATTEMPT\" >> '{}'; sleep {seconds}",
        file.display()
    );
    json!(line)
}

/// Thirty phases: commands, levels of parallel tasks, values, waits, and a cascade in the middle.
fn thirty_phases(file: &Path) -> Value {
    let phases: Vec<Value> = (0..30)
        .map(|n| {
            let name = format!("p{n}");
            match n % 6 {
                1 => {
                    let tasks: Vec<Value> = (0..3)
                        .map(|t| json!({ "id": format!("t{t}"), "run": effect(file, "0.1") }))
                        .collect();
                    json!({ "name": name, "tasks": tasks })
                }
                2 => json!({ "name": name, "set": { "n": format!("{{{{ {n} + 1 }}}}") } }),
                3 => json!({ "name": name, "await": { "signal": format!("go-{n}") } }),
                4 if n == 16 => {
                    json!({ "name": name, "cascade": { "definition": { "cascade_id": "below", "phases": [
                    { "name": "below-a", "run": effect(file, "0.2") },
                    { "name": "below-b", "tasks": [
                        { "id": "x", "run": effect(file, "0.1") }, { "id": "y", "run": effect(file, "0.1") },
                    ]},
                    { "name": "below-c", "set": { "done": true } },
                ], "outputs": { "done": "{{ outputs['below-c'].done }}" } } } })
                }
                _ => json!({ "name": name, "run": effect(file, "0.05") }),
            }
        })
        .collect();
    json!({ "cascade_id": "thirty", "workers": { "count": 3 }, "phases": phases })
}

fn start(home: &Home, cascade: &Value) -> String {
    let (status, session) = home.api("POST", "/api/v1/sessions", Some(json!({ "cascade": cascade })));
    assert_eq!(status, 201, "{session}");
    text(&session, "session_id").to_owned()
}

/// Longer than `eventually` waits: what is waited for takes minutes by its nature.
fn reaches(home: &Home, id: &str, wanted: &str) -> Value {
    let mut last = Value::Null;
    for _ in 0..6 {
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually("it is there", || {
                let (code, session) = home.api("GET", &format!("/api/v1/sessions/{id}"), None);
                let over =
                    ["completed", "error", "cancelled"].contains(&session["status"].as_str().unwrap_or(""));
                (code == 200 && (over || session["status"] == wanted)).then_some(session)
            })
        }));
        if let Ok(session) = found {
            last = session;
            break;
        }
    }
    assert_eq!(last["status"], wanted, "{last}");
    last
}

#[test]
fn a_session_whose_server_is_killed_again_and_again_completes_with_every_effect_once() {
    let mut dice = Dice::of_this_run();
    let kills = number("PARHELIA_SOAK_SESSION_KILLS").unwrap_or(KILLS);
    let home = Home::with_config("[reconciler]\npoll_interval_seconds = 1\n");
    let mut moments = 0;
    // A session is soon over: many kills are for many sessions.
    while moments < kills {
        moments += one_session(&home, &mut dice, (kills - moments).min(KILLS));
    }
    let resumed = home.sqlite_count("SELECT COUNT(*) FROM events WHERE event_type = 'session_resumed'");
    println!(
        "PARHELIA_SOAK_SESSION_KILLS={kills}: killed {moments} times in the middle, taken over {resumed} times"
    );
    assert!(resumed > 0, "nobody took it over");
}

/// Gives at how many moments of it the server was killed.
fn one_session(home: &Home, dice: &mut Dice, kills: u64) -> u64 {
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("effects");
    let mut server = home.up(&[]);
    let id = start(home, &thirty_phases(&file));
    // Fired before anybody waits for it, for this session: it is delivered all the same.
    for n in [3, 9, 15, 21, 27] {
        let fired = json!({ "name": format!("go-{n}"), "payload": n, "session": id });
        assert_eq!(home.api("POST", "/api/v1/signals", Some(fired)).0, 201);
    }
    let over = || {
        home.sqlite_count(&format!(
            "SELECT COUNT(*) FROM sessions WHERE session_id = '{id}' AND status = 'completed'"
        )) > 0
    };
    let mut killed = 0;
    while killed < kills && !over() {
        let most = if dice.roll(3) == 0 { 120 } else { 1200 };
        sleep(Duration::from_millis(dice.roll(most)));
        server.kill();
        killed += 1;
        server = home.up_at_once(&[]);
    }
    server.kill();
    let _server = home.up(&[]);
    let session = reaches(home, &id, "completed");
    let effects = std::fs::read_to_string(&file).unwrap();
    let mut lines: BTreeMap<&str, u64> = BTreeMap::new();
    for line in effects.lines() {
        *lines.entry(line).or_default() += 1;
    }
    let twice: Vec<_> = lines.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "one effect for each attempt: {twice:?}");
    let db = home.sqlite();
    let mut query = db
        .prepare(
            "SELECT t.phase || '/' || t.key || ' ' || a.attempt, a.status, t.state, t.attempt FROM attempts a \
             JOIN tasks t ON t.id = a.task_id JOIN sessions s ON s.session_id = a.session_id \
             WHERE s.session_id = ?1 OR s.parent_session_id = ?1",
        )
        .unwrap();
    let recorded: Vec<(String, String, String, i64)> = query
        .query_map([&id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for (attempt, status, state, last) in &recorded {
        assert_eq!((status.as_str(), state.as_str()), ("completed", "completed"), "{attempt}");
        assert_eq!(*last, 1, "what ran when its server died was found again, not started again: {attempt}");
        assert!(lines.contains_key(attempt.as_str()), "{attempt} had no effect");
    }
    assert_eq!(recorded.len(), lines.len(), "every effect is recorded");
    // 14 commands, 5 levels of 3, and 3 tasks below.
    assert_eq!(recorded.len(), 14 + 15 + 3, "{recorded:?}");
    assert_eq!(session["progress"]["phases_done"], 30, "{session}");
    killed
}

#[test]
fn what_may_not_be_resumed_by_itself_waits_for_somebody_to_do_it() {
    let home = Home::new();
    let server = home.up(&[]);
    let cascade = json!({ "cascade_id": "careful", "phases": [
        { "name": "a", "set": { "x": 1 } }, { "name": "b", "await": { "signal": "go" } },
    ]});
    let request = json!({ "cascade": cascade, "auto_resume": false });
    let (_, session) = home.api("POST", "/api/v1/sessions", Some(request));
    let id = text(&session, "session_id").to_owned();
    reaches(&home, &id, "blocked");
    server.kill();
    let _server = home.up(&[]);
    reaches(&home, &id, "orphaned");
    home.api("POST", "/api/v1/signals", Some(json!({ "name": "go" })));
    let (_, still) = home.api("GET", &format!("/api/v1/sessions/{id}"), None);
    assert_eq!(still["status"], "orphaned", "nobody goes on with it");
    let (code, said) = home.api("POST", &format!("/api/v1/sessions/{id}/resume"), None);
    assert_eq!(code, 200, "{said}");
    reaches(&home, &id, "completed");
}

#[test]
fn an_owner_that_slept_past_its_lease_is_refused_at_its_first_write_and_stops() {
    let team = Team::new();
    let (one, two) = (team.home(), team.home());
    let mut first = one.up(&[]);
    let _second = two.up(&[]);
    // Nothing but waiting: whoever owns it has a write to make every second.
    let phases: Vec<Value> = (0..150)
        .map(|n| json!({ "name": format!("p{n}"), "await": { "sensor": { "time": { "after": 1 } } } }))
        .collect();
    let id = start(&one, &json!({ "cascade_id": "ticking", "phases": phases }));
    eventually("it gets on", || {
        let (_, session) = one.api("GET", &format!("/api/v1/sessions/{id}"), None);
        (session["progress"]["phases_done"].as_i64() > Some(1)).then_some(())
    });
    let owner = team.rows(&format!("SELECT owner_id FROM sessions WHERE session_id = '{id}'"))[0][0].clone();
    signal(&mut first, Signal::STOP);
    // Its lease is a minute.
    for _ in 0..4 {
        let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually("the other goes on with it", || {
                (!two.told("session_resumed").is_empty()).then_some(())
            });
        }));
        if taken.is_ok() {
            break;
        }
    }
    let now = team.rows(&format!("SELECT owner_id, owner_epoch FROM sessions WHERE session_id = '{id}'"));
    assert!(now[0][0] != owner && now[0][1] == "2", "{now:?}");
    let taken = team.rows("SELECT MAX(id) FROM events WHERE event_type = 'session_resumed'")[0][0].clone();
    signal(&mut first, Signal::CONT);
    let code = eventually("it stops", || first.has_ended());
    assert_ne!(code, 0, "it says that it was replaced");
    assert!(one.log().contains("taken over") || one.log().contains("Fenced"), "{}", one.log());
    let late = team.rows(&format!(
        "SELECT event_type FROM events WHERE owner_id = '{owner}' AND session_id = '{id}' AND id > {taken}"
    ));
    assert!(late.iter().all(|row| row[0].is_empty()), "it wrote after it was replaced: {late:?}");
    let before =
        two.api("GET", &format!("/api/v1/sessions/{id}"), None).1["progress"]["phases_done"].as_i64();
    eventually("it still gets on", || {
        let (_, session) = two.api("GET", &format!("/api/v1/sessions/{id}"), None);
        (session["progress"]["phases_done"].as_i64() > before).then_some(())
    });
}

#[test]
fn an_owner_that_died_on_this_machine_is_known_by_its_lock_and_nobody_waits_for_its_lease() {
    let team = Team::new();
    let (one, two) = (team.home(), team.home());
    let first = one.up(&[]);
    let _second = two.up(&[]);
    let id = start(
        &one,
        &json!({ "cascade_id": "left", "phases": [
            { "name": "a", "await": { "signal": "go" } }, { "name": "b", "set": { "x": 1 } },
        ]}),
    );
    reaches(&one, &id, "blocked");
    let lease = team.rows(&format!(
        "SELECT o.lease_until FROM owners o JOIN sessions s ON s.owner_id = o.id WHERE s.session_id = '{id}'"
    ))[0][0]
        .clone();
    first.kill();
    eventually("the other goes on with it", || (!two.told("session_resumed").is_empty()).then_some(()));
    let resumed =
        team.rows("SELECT timestamp FROM events WHERE event_type = 'session_resumed'")[0][0].clone();
    assert!(resumed < lease, "at {resumed}, before the lease ended at {lease}");
    assert_eq!(two.api("POST", "/api/v1/signals", Some(json!({ "name": "go" }))).0, 201);
    reaches(&two, &id, "completed");
}
