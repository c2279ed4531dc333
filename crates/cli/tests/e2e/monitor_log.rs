//! `monitor.log`: the history, line by line, whatever happens to the server that writes it.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::{Home, eventually, text};
use crate::postgres::Team;

/// The files, the oldest first.
fn files(path: &Path) -> Vec<PathBuf> {
    let aside = |n: u32| PathBuf::from(format!("{}.{n}", path.display()));
    let mut all: Vec<PathBuf> = (1..).map(aside).take_while(|file| file.exists()).collect();
    all.reverse();
    all.extend(path.exists().then(|| path.to_owned()));
    all
}

fn lines(path: &Path) -> Vec<String> {
    // One that is being set aside has another name for a moment.
    let text: String = files(path).iter().map(|file| fs::read_to_string(file).unwrap_or_default()).collect();
    text.lines().map(str::to_owned).collect()
}

fn ids(path: &Path) -> Vec<i64> {
    // A line that is torn is no event, and so no history: until the next server has cut it off.
    let id = |line: &String| {
        let read: Value = serde_json::from_str(line).unwrap_or_default();
        read["data"]["event_id"].as_i64().unwrap_or(-1)
    };
    lines(path).iter().map(id).collect()
}

fn history(home: &Home) -> Vec<Value> {
    home.api("GET", "/api/v1/events?order=asc&limit=5000", None).1["events"].as_array().unwrap().clone()
}

fn history_ids(home: &Home) -> Vec<i64> {
    history(home).iter().map(|e| e["id"].as_i64().unwrap()).collect()
}

#[test]
fn the_history_is_in_the_log_in_the_seeds_format() {
    let home = Home::new();
    let _server = home.up(&[]);
    let id = home.start(&["--task", "A-L1-002"], &["true"]);
    home.until_seen(&id, "state", "terminated");
    let log = home.path().join("monitor.log");
    let all =
        eventually("the log has the history", || (ids(&log) == history_ids(&home)).then(|| lines(&log)));
    let events = history(&home);
    assert_eq!(events[0]["event_type"], "server_started", "it begins with the server that began it");
    for (line, event) in all.iter().zip(&events) {
        let read: Value = serde_json::from_str(line).unwrap();
        let keys = ["ts", "level", "worker_id", "event", "task_id", "data"];
        assert_eq!(
            read.as_object().unwrap().keys().map(String::as_str).collect::<BTreeSet<_>>(),
            keys.into()
        );
        let places: Vec<usize> = keys.iter().map(|key| line.find(&format!("\"{key}\":")).unwrap()).collect();
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{line}");
        assert_eq!((&read["event"], &read["task_id"]), (&event["event_type"], &event["task_id"]));
        assert_eq!(read["worker_id"], event["worker_id"]);
        assert_eq!(text(&read, "level"), "INFO");
        // With milliseconds, as in the seed.
        let ts = text(&read, "ts");
        assert!(ts.len() == 24 && ts.ends_with('Z') && ts.parse::<jiff::Timestamp>().is_ok(), "{ts}");
    }
    let created = all.iter().find(|line| line.contains("container_created")).unwrap();
    let read: Value = serde_json::from_str(created).unwrap();
    assert_eq!((text(&read["data"], "container_id"), text(&read, "task_id")), (id.as_str(), "A-L1-002"));
}

#[test]
fn through_deaths_and_rotations_no_event_is_missing_and_none_is_there_twice() {
    let home = Home::with_config("[monitor_log]\npath = 'logs/fleet.log'\nmax_bytes = 4096\nkeep = 1000\n");
    let log = home.path().join("logs/fleet.log");
    for round in 0..10 {
        let server = home.up(&[]);
        let before = lines(&log).len();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..30 {
                    let body = json!({ "subject": format!("{round}-{n}"), "role": "viewer" }).to_string();
                    // The server may be gone by then.
                    let _ = home.try_http("POST", "/api/v1/tokens", Some(&body));
                }
            });
            eventually("the log grows", || (lines(&log).len() > before + round).then_some(()));
            server.kill();
        });
        if round % 3 == 0 {
            // As if it had died in the middle of a line.
            let mut file = fs::OpenOptions::new().append(true).create(true).open(&log).unwrap();
            file.write_all(b"{\"ts\":\"2026-02-03T05:41:55.123Z\",\"lev").unwrap();
        }
    }
    let server = home.up(&[]);
    eventually("the log has the history", || (ids(&log) == history_ids(&home)).then_some(()));
    assert!(files(&log).len() > 3, "it was set aside: {:?}", files(&log));
    assert!(files(&log).iter().all(|file| fs::metadata(file).unwrap().len() <= 4096));
    server.kill();

    // Only so many are kept; and it can be switched off.
    home.configure("[monitor_log]\nmax_bytes = 4096\nkeep = 2\n");
    let server = home.up(&[]);
    let log = home.path().join("monitor.log");
    for n in 0..60 {
        home.http(
            "POST",
            "/api/v1/tokens",
            Some(&json!({ "subject": n.to_string(), "role": "viewer" }).to_string()),
        );
    }
    let newest = history_ids(&home).pop().unwrap();
    eventually("the log is there", || (ids(&log).last() == Some(&newest)).then_some(()));
    assert_eq!(files(&log).len(), 3);
    server.kill();
    home.configure("[monitor_log]\nenabled = false\n");
    let size = fs::metadata(&log).unwrap().len();
    let _server = home.up(&[]);
    let id = home.start(&[], &["true"]);
    home.until_seen(&id, "state", "terminated");
    assert_eq!(fs::metadata(&log).unwrap().len(), size);
}

#[test]
fn every_server_of_a_shared_database_has_its_own() {
    let team = Team::new();
    let (one, two) = (team.home(), team.home());
    let _first = one.up(&[]);
    let _second = two.up(&[]);
    for (n, home) in [&one, &two, &one].into_iter().enumerate() {
        let request = json!({ "subject": n.to_string(), "role": "viewer" });
        assert_eq!(home.api("POST", "/api/v1/tokens", Some(request)).0, 201);
    }
    for home in [&one, &two] {
        let log = home.path().join("monitor.log");
        eventually("it has the history from its own start", || {
            let (has, all) = (ids(&log), history_ids(home));
            (!has.is_empty()
                && all.ends_with(&has)
                && lines(&log).iter().filter(|l| l.contains("token_created")).count() == 3)
                .then_some(())
        });
    }
}
