//! Whatever the program has, a test of the binary has seen: every event type, every setting, every route, every
//! command. A new one without a test fails here. What was found, and which test sees it, is written as a report:
//! `wiring.txt` among the temporary files of the target directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parhelia_core::config::{Config, keys};
use parhelia_core::event::EventType;

use crate::harness::{Home, eventually, text};

fn sources(under: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(under).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "rs"));
    files.sort();
    files
}

/// The end-to-end tests: `file::function`, and its text.
fn tests() -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e");
    let mut all = Vec::new();
    for path in sources(&dir) {
        // In a string a line ends with an escape, and the next word stands right behind it.
        let text = std::fs::read_to_string(&path).unwrap().replace("\\n", " ");
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        if file == "harness" {
            continue;
        }
        // Here only what stands below the checks themselves is a test of the binary.
        let checks = if file == "wiring" { text.rfind(BELOW).unwrap() } else { 0 };
        let mut name = "(shared by its tests)".to_owned();
        let mut body = String::new();
        for line in text[checks..].lines() {
            if let Some(rest) = line.split("fn ").nth(1).filter(|_| line.starts_with("fn ")) {
                all.push((format!("{file}::{name}"), std::mem::take(&mut body)));
                name = rest.split(['(', '<']).next().unwrap().to_owned();
            }
            body.push_str(line);
            body.push('\n');
        }
        all.push((format!("{file}::{name}"), body));
    }
    all
}

const BELOW: &str = "fn a_pass_that_cannot_be_decided";

/// Which test sees what, by kind.
#[derive(Default)]
struct Report(BTreeMap<&'static str, Vec<(String, Option<String>)>>);

impl Report {
    fn look(
        &mut self,
        kind: &'static str,
        name: &str,
        tests: &[(String, String)],
        seen: impl Fn(&str) -> bool,
    ) {
        let by = tests.iter().find(|(_, text)| seen(text)).map(|(test, _)| test.clone());
        self.0.entry(kind).or_default().push((name.to_owned(), by));
    }

    fn write(&self) -> String {
        let mut out = String::new();
        for (kind, rows) in &self.0 {
            out.push_str(&format!("{kind} ({})\n", rows.len()));
            for (name, by) in rows {
                out.push_str(&format!("  {name:<60} {}\n", by.as_deref().unwrap_or("NOBODY")));
            }
        }
        out
    }
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
fn every_event_type_setting_route_and_command_is_observed() {
    let tests = tests();
    let home = Home::new();
    let _server = home.up(&[]);
    let mut report = Report::default();
    for kind in EventType::ALL {
        // Spelled whole: `create_failed` is not seen where `recreate_failed_soon` stands.
        let spelled =
            |text: &str| text.contains(&format!("\"{kind}\"")) || text.contains(&format!("'{kind}'"));
        report.look("event types", kind.as_str(), &tests, spelled);
    }
    let mut settings: Vec<String> = keys::ALL.iter().map(|key| key.name.to_owned()).collect();
    for (table, row) in tables() {
        settings.extend(row.into_iter().map(|field| format!("{table}.{field}")));
    }
    for name in &settings {
        let field = name.rsplit('.').next().unwrap();
        // As a word of its own: `listen` is not seen where `listening` stands.
        let word = |text: &str| {
            text.match_indices(field).any(|(at, _)| {
                let part_of = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                !part_of(text[..at].chars().next_back()) && !part_of(text[at + field.len()..].chars().next())
            })
        };
        let variable = keys::find(name).map(|key| key.variable());
        let seen = |text: &str| word(text) || variable.as_ref().is_some_and(|v| text.contains(v));
        report.look("settings", name, &tests, seen);
    }
    let (_, document) = home.api("GET", "/api/openapi.json", None);
    for (path, item) in document["paths"].as_object().unwrap() {
        // Ids are formatted in: any name may stand in the braces, and anything may follow the path.
        let parts: Vec<&str> = path.split("{id}").collect();
        for method in item.as_object().unwrap().keys() {
            let asked = |text: &str| text.lines().any(|line| asks(line, method, &parts));
            report.look("routes", &format!("{} {path}", method.to_uppercase()), &tests, asked);
        }
    }
    for one in commands(&home, &[]) {
        let below = commands(&home, &[&one]);
        if below.is_empty() {
            report.look("commands", &one, &tests, |text| text.contains(&format!("[\"{one}\"")));
        }
        for two in below {
            let used = |text: &str| text.contains(&format!("\"{one}\", \"{two}\""));
            report.look("commands", &format!("{one} {two}"), &tests, used);
        }
    }
    let written = report.write();
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("wiring.txt"), &written).unwrap();
    println!("{written}");
    let counts: Vec<usize> = report.0.values().map(Vec::len).collect();
    assert!(counts.len() == 4 && counts.iter().all(|n| *n >= 20), "this test has lost its way: {counts:?}");
    assert!(!written.contains("NOBODY"), "something that no end-to-end test observes:\n{written}");
}

/// The tables that may stand more than once, and the fields of each.
fn tables() -> BTreeMap<&'static str, Vec<String>> {
    let mut config = Config::parse("").unwrap();
    config.prices = parhelia_core::cost::Prices::built_in();
    let alert = "[[alerts]]\nname='a'\nurl='http://h/'\nseverity='info'\nsecret='s'";
    config.alerts = Config::parse(alert).unwrap().alerts;
    let whole = serde_json::to_value(&config).unwrap();
    let fields = |name: &str| whole[name][0].as_object().unwrap().keys().cloned().collect();
    let engines = "[engines.a]\nprogram='a'\nstart=['{command}']\nresume=[]\nactivity=[]\nwaiting_codes=[]";
    let engines = serde_json::to_value(Config::parse(engines).unwrap().engines).unwrap();
    let engine = engines["a"].as_object().unwrap().keys().cloned().collect();
    BTreeMap::from([("prices", fields("prices")), ("alerts", fields("alerts")), ("engines", engine)])
}

#[test]
fn every_event_type_is_written_somewhere() {
    fn read(dir: &Path, into: &mut String) {
        for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() && !entry.ends_with("tests") {
                read(&entry, into);
            } else if entry.file_stem().is_some_and(|stem| stem != "event" && stem != "tests")
                && entry.is_file()
            {
                into.push_str(&std::fs::read_to_string(entry).unwrap_or_default());
            }
        }
    }
    let mut program = String::new();
    for part in ["core/src", "server/src"] {
        read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(part), &mut program);
    }
    let unwritten: Vec<&EventType> =
        EventType::ALL.iter().filter(|t| !program.contains(&format!("EventType::{t:?}"))).collect();
    assert!(unwritten.is_empty(), "event types that nothing writes: {unwritten:?}");
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

#[test]
fn a_pass_that_cannot_be_decided_is_told_once_and_harms_nothing() {
    let home = Home::with_config("[reconciler]\npoll_interval_seconds = 1\n");
    let _server = home.up(&[]);
    let id = home.start(&[], &["sleep", "600"]);
    home.until_seen(&id, "health", "healthy");
    let set = "UPDATE providers SET unreachable_since = ?1 WHERE name = 'process'";
    let told = eventually("the failure is told", || {
        // A pass that is under way writes it anew.
        home.sqlite().execute(set, ["both"]).unwrap();
        home.told("reconcile_failed").pop()
    });
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
fn the_settings_come_from_the_file_the_environment_and_the_flags_and_say_so() {
    let home = Home::with_config("[server]\nmax_batch = 7\n\n[retention]\ncycle_hours = 3\n");
    let show = |environment: &[(&str, &str)], more: &[&str]| {
        let mut command = home.command(&[&["config", "show", "--origin"], more].concat());
        command.envs(environment.iter().copied()).output().unwrap()
    };
    let shown = show(&[("PARHELIA_RETENTION_CYCLE_HOURS", "5")], &["--changed"]);
    let screen = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(screen.contains("max_batch") && screen.contains("line 2 of"), "{screen}");
    assert!(screen.contains("PARHELIA_RETENTION_CYCLE_HOURS") && !screen.contains("default"), "{screen}");
    let bad = show(&[("PARHELIA_RETENTION_CYCLE_HOURS", "0")], &[]);
    let said = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert!(
        bad.status.code() == Some(2) && said.contains("from 1 to 8760 (PARHELIA_RETENTION_CYCLE_HOURS)"),
        "{said}"
    );
    home.configure("[server]\nmax_batch = 1\n");
    // The server obeys the environment before the file.
    let mut up = home.command(&["up"]);
    let mut server =
        up.env("PARHELIA_SERVER_MAX_BATCH", "2").stdout(std::process::Stdio::null()).spawn().unwrap();
    eventually("it is ready", || home.try_http("GET", "/readyz", None).filter(|(status, _)| *status == 200));
    let beats = |n: usize| {
        let beat = serde_json::json!({"container_id": "c-none0000"});
        home.api("POST", "/api/v1/heartbeats", Some(serde_json::json!({"heartbeats": vec![beat; n]}))).1
    };
    assert!(text(&beats(3), "fix").contains("at most 2"), "{}", beats(3));
    assert_eq!(text(&beats(2), "code"), "not_found");
    home.ok(&["down"]);
    server.wait().unwrap();
    home.configure("\n\n[server]\nmax_batch = 0\n");
    let said = home.run(&["up"]);
    assert!(
        said.code == 2 && said.err.contains("line 4 of") && said.err.contains("from 1 to 100000"),
        "{said:?}"
    );
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
