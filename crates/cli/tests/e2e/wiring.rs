//! Whatever the program has, a test of the binary has seen: every event type, every setting, every route,
//! every command. A new one without a test fails here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use parhelia_core::config::Config;
use parhelia_core::event::EventType;
use serde_json::Value;

use crate::harness::{Home, eventually, text};

fn sources(under: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(under).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "rs"));
    files
}

/// The text of every end-to-end test.
fn tests() -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e");
    sources(&dir)
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            // Here only what stands below the checks themselves is a test of the binary.
            let checks = if path.ends_with("wiring.rs") { text.rfind(BELOW).unwrap() } else { 0 };
            text[checks..].to_owned()
        })
        .collect()
}

const BELOW: &str = "fn a_pass_that_cannot_be_decided";

fn all_seen(what: &str, names: impl IntoIterator<Item = (String, bool)>) {
    let names: Vec<(String, bool)> = names.into_iter().collect();
    assert!(!names.is_empty(), "no {what} found: this test has lost its way");
    let unseen: Vec<&str> = names.iter().filter(|(_, seen)| !seen).map(|(name, _)| name.as_str()).collect();
    assert!(unseen.is_empty(), "{what} that no end-to-end test observes: {unseen:?}");
}

#[test]
fn every_event_type_is_observed() {
    let tests = tests();
    // Spelled whole: `create_failed` is not seen where `recreate_failed_soon` stands.
    let spelled = |word: &str| tests.contains(&format!("\"{word}\"")) || tests.contains(&format!("'{word}'"));
    all_seen("event types", EventType::ALL.iter().map(|t| (t.to_string(), spelled(t.as_str()))));
}

#[test]
fn every_event_type_is_written_somewhere() {
    let mut written = String::new();
    for part in ["core/src/reconcile", "core/src", "server/src/loops", "server/src/service", "server/src"] {
        for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(part)) {
            if path.file_stem().is_some_and(|stem| stem != "event" && stem != "tests") {
                written.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let named = |t: &EventType| written.contains(&format!("EventType::{t:?}"));
    all_seen("event types in the program", EventType::ALL.iter().map(|t| (t.to_string(), named(t))));
}

#[test]
fn every_setting_is_observed() {
    let tests = tests();
    let mut config = Config::parse("").unwrap();
    config.fake_world = Some(String::new());
    config.prices = parhelia_core::cost::Prices::built_in();
    let alert = "[[alerts]]\nname='a'\nurl='http://h/'\nseverity='info'\nsecret='s'";
    config.alerts = Config::parse(alert).unwrap().alerts;
    let whole = serde_json::to_value(&config).unwrap();
    let mut keys = BTreeSet::new();
    for (section, value) in whole.as_object().unwrap() {
        match value {
            Value::Object(settings) => keys.extend(settings.keys().cloned()),
            Value::Array(rows) => keys.extend(rows[0].as_object().unwrap().keys().cloned()),
            _ => drop(keys.insert(section.clone())),
        }
    }
    assert!(keys.len() > 25, "{keys:?}");
    all_seen("settings", keys.into_iter().map(|key| (key.clone(), tests.contains(&key))));
}

#[test]
fn every_route_is_observed() {
    let tests = tests();
    let home = Home::new();
    let _server = home.up(&[]);
    let (_, document) = home.api("GET", "/api/openapi.json", None);
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        // Ids are formatted in: any name may stand in the braces, and anything may follow the path.
        let parts: Vec<&str> = path.split("{id}").collect();
        for method in item.as_object().unwrap().keys() {
            let asked = tests.lines().any(|line| asks(line, method, &parts));
            routes.push((format!("{} {path}", method.to_uppercase()), asked));
        }
    }
    assert!(routes.len() >= 20, "{routes:?}");
    all_seen("routes", routes);
}

/// Whether a line of a test asks for a path of these parts. A path that is used on the next line counts when
/// its method is written on either.
fn asks(line: &str, method: &str, parts: &[&str]) -> bool {
    let Some((_, rest)) = line.split_once(&format!("\"{}", parts[0])) else {
        // Through a variable: `&format!("{path}/events")`.
        return parts.len() == 2
            && !parts[1].is_empty()
            && line.contains(&format!("\"{{path}}{}\"", parts[1]))
            && line.contains(&format!("\"{}\"", method.to_uppercase()));
    };
    let path = rest.split('"').next().unwrap();
    let fits = match parts {
        [_] => path.is_empty() || path.starts_with('?'),
        [_, last] => match path.split_once('}') {
            Some((id, tail)) => id.starts_with('{') && tail.split('?').next() == Some(*last),
            None => false,
        },
        _ => false,
    };
    let other = if method == "get" { "\"POST\"" } else { "\"GET\"" };
    fits && !line.contains(other)
}

/// The commands under a command, from its own help.
fn commands(home: &Home, path: &[&str]) -> Vec<String> {
    let help = home.ok(&[path, &["--help"]].concat());
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let lines = list.lines().take_while(|line| !line.trim().is_empty());
    // Only the names stand two columns in; the words of a long description stand further.
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_command_is_used() {
    let home = Home::new();
    let tests = tests();
    let mut used = Vec::new();
    let first = commands(&home, &[]);
    assert!(first.len() >= 10 && first.contains(&"containers".to_owned()), "{first:?}");
    for one in &first {
        let below = commands(&home, &[one]);
        if below.is_empty() {
            used.push((one.clone(), tests.contains(&format!("[\"{one}\""))));
        }
        for two in &below {
            used.push((format!("{one} {two}"), tests.contains(&format!("\"{one}\", \"{two}\""))));
        }
    }
    assert!(used.len() > 22, "{used:?}");
    all_seen("commands", used);
}

#[test]
fn a_pass_that_cannot_be_decided_is_told_once_and_harms_nothing() {
    let home = Home::with_config("[reconciler]\npoll_interval_seconds = 1\n");
    let _server = home.up(&[]);
    let id = home.start(&[], &["sleep", "600"]);
    home.until_seen(&id, "health", "healthy");
    let set = "UPDATE providers SET unreachable_since = ?1 WHERE name = 'process'";
    home.sqlite().execute(set, ["both"]).unwrap();
    let told = eventually("the failure is told", || home.told("reconcile_failed").pop());
    assert!(text(&told, "message").contains("cannot read"), "{told}");
    for _ in 0..3 {
        let (status, problem) = home.api("POST", "/api/v1/reconciler/run", None);
        assert_eq!(status, 503, "a pass that failed is not reported as done: {problem}");
        assert!(text(&problem, "detail").contains("the pass over process failed"), "{problem}");
    }
    assert_eq!(home.told("reconcile_failed").len(), 1, "once, however often it fails");
    home.sqlite().execute(set, [None::<&str>]).unwrap();
    eventually("it works again", || {
        home.api("POST", "/api/v1/reconciler/run", None).0.eq(&200).then_some(())
    });
    assert_eq!(home.seen(&id)["state"], "running");
}

#[test]
fn one_row_that_cannot_be_read_hides_no_other() {
    let home = Home::with_config("[reconciler]\npoll_interval_seconds = 1\n");
    let _server = home.up(&[]);
    let (bad, good) = (home.start(&[], &["sleep", "600"]), home.start(&[], &["sleep", "600"]));
    home.until_seen(&good, "health", "healthy");
    let set = "UPDATE containers SET desired = ?1 WHERE id = ?2";
    home.sqlite().execute(set, ["both", bad.as_str()]).unwrap();
    let listed = home.ok(&["containers", "-o", "name"]);
    assert_eq!(listed.trim(), good);
    let said = home.run(&["containers", "show", &bad]);
    assert_ne!(said.code, 3, "it is there, and cannot be read: {said:?}");
    assert!(said.err.contains("both") && said.err.contains(&bad), "{said:?}");
    home.ok(&["containers", "terminate", &good, "--yes"]);
    home.sqlite().execute(set, ["running", bad.as_str()]).unwrap();
    home.until_seen(&bad, "state", "running");
}
