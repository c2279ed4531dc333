//! Heartbeats and health: the ladder with real silence, real measurements, and what is kept of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Home, alive_with, eventually, moment, signal_supervisor, stored_moment, text};
use crate::postgres::signal;

/// The ladder in seconds instead of minutes.
const QUICK: &str = "[health]\nheartbeat_interval_seconds = 1\ncheck_interval_seconds = 1\n\
                     degraded_after_seconds = 3\ndead_after_seconds = 11\nresumption_window_seconds = 0\n\
                     [reconciler]\nstale_threshold_seconds = 7\n";

fn frozen(home: &Home, id: &str) -> String {
    let sandbox = text(&home.seen(id), "sandbox_id").to_owned();
    signal_supervisor(&sandbox, Signal::STOP);
    sandbox
}

/// Health changes of a container since event `after`: (type, from, to).
fn changes(home: &Home, id: &str, after: i64) -> Vec<(String, String, String)> {
    let (_, list) =
        home.api("GET", &format!("/api/v1/containers/{id}/events?after={after}&limit=1000"), None);
    let health = list["events"].as_array().unwrap().iter().filter(|e| e["source"] == "health_monitor");
    let words = |e: &Value| {
        (text(e, "event_type").to_owned(), text(e, "old_value").to_owned(), text(e, "new_value").to_owned())
    };
    health.map(words).collect()
}

fn last_event(home: &Home) -> i64 {
    home.api("GET", "/api/v1/events?limit=1", None).1["last_id"].as_i64().unwrap()
}

#[test]
fn silence_climbs_the_ladder_and_a_heartbeat_ends_it() {
    let home = Home::with_config(QUICK);
    let _server = home.up(&[]);
    let id = home.start(&["--task", "ta-9"], &["sleep", "600"]);
    home.until_seen(&id, "health", "healthy");
    let before = last_event(&home);
    let sandbox = frozen(&home, &id);
    let dead = home.until_seen(&id, "health", "dead");
    assert_eq!(dead["state"], "running", "health is another axis than state");
    let climbed = changes(&home, &id, before);
    let step = |kind: &str, old: &str, new: &str| (kind.to_owned(), old.to_owned(), new.to_owned());
    let expected = [
        step("container_degraded", "healthy", "degraded"),
        step("container_unhealthy", "degraded", "unhealthy"),
        step("container_dead", "unhealthy", "dead"),
    ];
    assert_eq!(climbed, expected);
    let listed = home.ok(&["containers", "health"]);
    assert!(listed.lines().any(|l| l.starts_with("dead ") && l.contains(&id)), "{listed}");
    assert_eq!(home.ok(&["containers", "-q", "--health", "dead"]).trim(), id);

    let after = last_event(&home);
    signal_supervisor(&sandbox, Signal::CONT);
    home.until_seen(&id, "health", "healthy");
    assert_eq!(changes(&home, &id, after), [step("container_recovered", "dead", "healthy")]);
    assert_eq!(home.seen(&id)["consecutive_failures"], 0);
    let told = &home.told("container_recovered")[0];
    assert_eq!((text(told, "task_id"), text(told, "message")), ("ta-9", "Health recovered"));
}

#[test]
fn cleanup_ends_the_dead_and_spares_the_living() {
    let home = Home::with_config(QUICK);
    let _server = home.up(&[]);
    let dead = home.start(&[], &["sleep", "600"]);
    let alive = home.start(&[], &["sleep", "600"]);
    frozen(&home, &dead);
    home.until_seen(&dead, "health", "dead");
    home.until_seen(&alive, "health", "healthy");
    let shown = home.ok(&["cleanup", "--dead", "--dry-run", "-q"]);
    assert_eq!(shown.trim(), dead);
    let said = home.ok(&["cleanup", "--dead", "--yes"]);
    assert!(said.contains("1 container terminated."), "{said}");
    let ended = home.seen(&dead);
    assert_eq!((text(&ended, "state"), text(&ended, "termination_reason")), ("terminated", "dead_cleanup"));
    assert_eq!(alive_with(&format!("PARHELIA_CONTAINER_ID={dead}")), 0, "nothing of it is left");
    assert_eq!(home.seen(&alive)["state"], "running");
    assert_eq!(alive_with(&format!("PARHELIA_CONTAINER_ID={alive}")), 1);
}

#[test]
fn our_own_outage_ages_nobody() {
    let config = QUICK.replace("resumption_window_seconds = 0", "resumption_window_seconds = 3600");
    let home = Home::with_config(&config);
    let server = home.up(&[]);
    let id = home.start(&[], &["sleep", "600"]);
    home.until_seen(&id, "health", "healthy");
    let sandbox = frozen(&home, &id);
    server.kill();
    // As if the server had been away for days: by the wall clock everybody is long dead and silent.
    let long_ago = stored_moment(-400_000);
    for aged in [
        "UPDATE containers SET started_at = ?1, create_attempted_at = ?1",
        "UPDATE container_vitals SET last_heartbeat_at = ?1",
    ] {
        home.sqlite().execute(aged, [&long_ago]).unwrap();
    }
    let _server = home.up(&[]);
    let first = home.seen(&id);
    assert_eq!(first["health"], "healthy", "a restart is no news about anybody");
    // Long enough in silence to be dead twice over; but the window is open.
    home.until_seen(&id, "health", "unhealthy");
    let began = home.json(&["info"])["started_at"].as_str().unwrap().parse().unwrap();
    eventually("the server has watched for 20 s", || {
        let now = home.seen(&id);
        assert_eq!((text(&now, "health"), text(&now, "state")), ("unhealthy", "running"), "{now}");
        (parhelia_core::time::seconds_between(began, moment(0)) > 20.0).then_some(())
    });
    assert!(home.told("container_dead").is_empty() && home.told("container_silent").is_empty());
    signal_supervisor(&sandbox, Signal::CONT);
    home.until_seen(&id, "health", "healthy");
}

/// A server that was stopped (SIGSTOP, a paused machine) heard nobody meanwhile. By its own clock a silence went on, and
/// the loop that ends the silent may well wake before the one that judges them.
#[test]
fn a_server_that_was_stopped_ends_nobody_for_what_it_did_not_hear() {
    let config = QUICK
        .replace("dead_after_seconds = 11", "dead_after_seconds = 600")
        .replace("stale_threshold_seconds = 7", "stale_threshold_seconds = 20");
    let home =
        Home::with_config(&format!("{config}poll_interval_seconds = 1\nauto_terminate_stale = true\n"));
    let mut server = home.up(&[]);
    let id = home.start(&[], &["sleep", "600"]);
    home.until_seen(&id, "health", "healthy");
    let sandbox = frozen(&home, &id);
    home.until_seen(&id, "health", "degraded");
    signal(&mut server, Signal::STOP);
    // Three periods and twenty seconds: only who is away for longer knows that it was.
    let stopped = moment(0);
    eventually("it was away for 25 s", || {
        (parhelia_core::time::seconds_between(stopped, moment(0)) > 25.0).then_some(())
    });
    signal(&mut server, Signal::CONT);
    home.reconcile();
    let back = home.seen(&id);
    assert_eq!((text(&back, "state"), text(&back, "desired")), ("running", "running"), "{back}");
    assert_ne!(back["health"], "unhealthy", "nobody is older for our absence: {back}");
    signal_supervisor(&sandbox, Signal::CONT);
    home.until_seen(&id, "health", "healthy");
    assert!(home.told("stop_requested").is_empty() && home.told("container_unhealthy").is_empty());

    // What it hears nothing of while it is there ends all the same.
    frozen(&home, &id);
    let ended = home.until_seen(&id, "state", "terminated");
    assert_eq!(text(&ended, "termination_reason"), "stale", "{ended}");
}

fn history(home: &Home, id: &str) -> Vec<Value> {
    let shown = home.json(&["containers", "heartbeats", id, "--limit", "1000"]);
    shown["heartbeats"].as_array().unwrap().clone()
}

#[test]
fn the_numbers_of_a_heartbeat_are_measured() {
    let home = Home::with_config("[health]\nheartbeat_interval_seconds = 1\n");
    let _server = home.up(&[]);
    let fat = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); echo begun; while :; do :; done";
    let busy = home.start(&["--cpu", "1", "--memory", "256m"], &["sh", "-c", fat]);
    let lazy = home.start(&[], &["sleep", "600"]);
    let beat = eventually("a busy heartbeat", || {
        history(&home, &busy).into_iter().find(|b| {
            // After it has begun: before that it is still growing.
            b["cpu_percent"].as_f64().unwrap_or(0.0) > 5.0
                && b["memory_mb"].as_i64().unwrap_or(0) >= 26
                && b["metadata"]["output_bytes"] == 6
        })
    });
    let number =
        |beat: &Value, name: &str| beat[name].as_f64().unwrap_or_else(|| panic!("no {name}: {beat}"));
    assert!((10.0..100.0).contains(&number(&beat, "memory_percent")), "of its 256 MB: {beat}");
    assert!(number(&beat, "disk_percent") > 0.0 && number(&beat, "disk_percent") <= 100.0, "{beat}");
    assert_eq!(beat["claude_responsive"], true, "it has used CPU just now");
    assert_eq!(beat["tmux_active"], Value::Null, "it runs in no tmux session");
    eventually("uptime grows", || {
        let all = history(&home, &lazy);
        let (first, last) = (all.first()?, all.last()?);
        (number(last, "uptime_seconds") >= number(first, "uptime_seconds") + 2.0).then_some(())
    });
    let idle = eventually("an idle heartbeat", || {
        history(&home, &lazy).into_iter().next_back().filter(|b| b["cpu_percent"].is_number())
    });
    assert!(number(&idle, "cpu_percent") < 5.0, "{idle}");
    let since = home.json(&["containers", "heartbeats", &lazy, "--since", "2999-01-01"]);
    assert!(since["heartbeats"].as_array().unwrap().is_empty());
    let shown = home.container(&busy);
    assert!(
        shown["memory_used_mb"].as_i64().unwrap() >= 25 && shown["uptime_seconds"].is_number(),
        "{shown}"
    );
}

/// A tmux server of its own, ended with the test.
struct Tmux {
    _dir: tempfile::TempDir,
    socket: PathBuf,
}

impl Tmux {
    fn with_session(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tmux = Self { socket: dir.path().join("t"), _dir: dir };
        assert!(tmux.run(&["new-session", "-d", "-s", name, "sleep 600"]), "this test needs tmux");
        tmux
    }

    fn run(&self, args: &[&str]) -> bool {
        let mut tmux = Command::new("tmux");
        tmux.args(["-f", "/dev/null", "-S"]).arg(&self.socket).args(args).env_remove("TMUX");
        tmux.status().unwrap().success()
    }

    fn variable(&self) -> String {
        let socket: &Path = &self.socket;
        format!("TMUX={},1,0", socket.display())
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

#[test]
fn a_heartbeat_knows_whether_its_tmux_session_is_there() {
    let home = Home::with_config("[health]\nheartbeat_interval_seconds = 1\n");
    let _server = home.up(&[]);
    let tmux = Tmux::with_session("work");
    let id = home.start(&["--tmux", "work", "--env", &tmux.variable()], &["sleep", "600"]);
    let other = home.start(&["--tmux", "wor", "--env", &tmux.variable()], &["sleep", "600"]);
    let last = |id: &str| history(&home, id).last().map(|b| b["tmux_active"].clone());
    eventually("tmux is active", || (last(&id)? == json!(true)).then_some(()));
    eventually("a prefix of a name is not the name", || (last(&other)? == json!(false)).then_some(()));
    assert!(tmux.run(&["kill-session", "-t", "work"]));
    eventually("tmux is gone", || (last(&id)? == json!(false)).then_some(()));
    let screen = home.ok(&["containers", "heartbeats", &id]);
    assert!(screen.contains("active") && screen.lines().last().unwrap().contains("idle"), "{screen}");
}

#[test]
fn old_heartbeats_become_hours_and_old_history_goes() {
    let home = Home::with_config(
        "[retention]\ninterval_seconds = 1\nraw_heartbeat_hours = 24\nheartbeat_hour_days = 10\n\
         event_days = 20\ncycle_hours = 48\n",
    );
    let _server = home.up(&[]);
    let id = home.start(&[], &["sleep", "600"]);
    home.until_seen(&id, "health", "healthy");
    let db = home.sqlite();
    // One hour of three heartbeats, older than a day; the hour that holds them is known.
    let hour = stored_moment(-30 * 3600)[..13].to_owned();
    let beat = "INSERT INTO heartbeats (container_id, timestamp, cpu_percent, memory_percent, memory_mb, disk_percent) \
                VALUES (?1, ?2, ?3, ?4, ?5, 50)";
    for (minute, cpu, memory) in [(10, 10.0, 5.0), (20, 20.0, 6.0), (30, 60.0, 10.0)] {
        let at = format!("{hour}:{minute}:00.000Z");
        db.execute(beat, rusqlite::params![id, at, cpu, memory, 100 + minute]).unwrap();
    }
    let event = "INSERT INTO events (timestamp, event_type, message) VALUES (?1, 'server_started', ?2)";
    db.execute(event, [stored_moment(-21 * 86_400), "too old".into()]).unwrap();
    db.execute(event, [stored_moment(-19 * 86_400), "old enough to stay".into()]).unwrap();
    let ancient = "INSERT INTO heartbeat_hours (container_id, hour, samples, cpu_samples, memory_samples, first_at, last_at) \
                   VALUES (?1, ?2, 1, 0, 0, ?2, ?2)";
    db.execute(ancient, [id.clone(), stored_moment(-11 * 86_400)]).unwrap();
    db.execute(
        "INSERT INTO reconcile_cycles SELECT NULL, provider, 'ancient', ?1, ?1, duration_ms, outcome, error, \
         sandboxes, db_rows, suspected, orphans, adopted, started, terminated, corrections, foreign_count, actions, \
         failures, waiting, next_at FROM reconcile_cycles LIMIT 1",
        [stored_moment(-49 * 3600)],
    )
    .unwrap();

    let path = format!("/api/v1/containers/{id}/heartbeats");
    let hours = eventually("the hours are folded and the ancient one is gone", || {
        let (_, history) = home.api("GET", &path, None);
        let raw_gone =
            history["heartbeats"].as_array()?.iter().all(|b| !text(b, "timestamp").starts_with(&hour));
        let hours = history["hours"].as_array()?.clone();
        (raw_gone && hours.len() == 1).then_some(hours)
    });
    let folded = &hours[0];
    assert!(text(folded, "hour").starts_with(&hour), "{folded}");
    assert_eq!((&folded["samples"], &folded["memory_mb_max"]), (&json!(3), &json!(130)), "{folded}");
    assert_eq!(
        (&folded["cpu_percent_avg"], &folded["cpu_percent_max"]),
        (&json!(30.0), &json!(60.0)),
        "{folded}"
    );
    assert_eq!(
        (&folded["memory_percent_avg"], &folded["memory_percent_max"]),
        (&json!(7.0), &json!(10.0)),
        "{folded}"
    );
    assert!(!history(&home, &id).is_empty(), "young ones stay as they are");
    assert!(home.ok(&["containers", "heartbeats", &id]).starts_with("HOUR "));
    eventually("old events and cycles are gone", || {
        let messages: Vec<String> =
            home.told("server_started").iter().map(|e| text(e, "message").to_owned()).collect();
        let cycles: i64 = db
            .query_row("SELECT COUNT(*) FROM reconcile_cycles WHERE trigger = 'ancient'", [], |row| {
                row.get(0)
            })
            .unwrap();
        let gone = !messages.contains(&"too old".to_owned()) && cycles == 0;
        assert!(messages.contains(&"old enough to stay".to_owned()), "{messages:?}");
        gone.then_some(())
    });
}
