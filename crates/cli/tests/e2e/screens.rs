//! The screens beside the seed's, the formats for programs, and every exit code.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{FakeWorld, Home, Said, Server, eventually, parhelia, signal_the_one_with};

const PRICES: &str = "[[prices]]\nprovider = 'fake'\neffective_from = '2020-01-01T00:00:00Z'\nsandbox_hour = 0.5\n\
                      [[prices]]\nprovider = 'process'\neffective_from = '2020-01-01T00:00:00Z'\nsandbox_hour = 0.25\n";

/// A fleet with something of everything: two that run, one that has ended, an orphan, a foreign one.
struct Fleet {
    home: Home,
    world: FakeWorld,
    _server: Server,
    first: String,
    second: String,
    ended: String,
}

fn fleet() -> Fleet {
    let world = FakeWorld::new();
    let config = format!("{}[health]\nheartbeat_interval_seconds = 1\n{PRICES}", world.line());
    let home = Home::with_config(&config);
    let server = home.up(&[]);
    let label = ["--name", "build", "--task", "ta-def456", "--task-title", "Run tests for auth module"];
    let sized =
        [&label[..], &["--cpu", "4", "--memory", "8g", "--label", "team=core", "--label", "tier=a"]].concat();
    let first = home.start(&sized, &["sleep", "600"]);
    let second = home.start(&["--provider", "fake", "--label", "team=core"], &["agent"]);
    let ended = home.ok(&["containers", "run", "--wait", "-q", "--", "true"]).trim().to_owned();
    world.add("sb-lost", &home.instance_id(), "c-0rphan0000000001", 12_000);
    world.add("sb-other", "11111111-2222-3333-4444-555555555555", "c-f0re1gn000000001", 8_100);
    home.reconcile();
    home.until_seen("c-0rphan0000000001", "state", "orphaned");
    home.reconcile();
    eventually("it has been heard twice", || home.seen(&first)["cpu_percent"].is_number().then_some(()));
    Fleet { home, world, _server: server, first, second, ended }
}

/// The columns of a screen's first line.
fn columns(screen: &str) -> Vec<&str> {
    screen.lines().next().unwrap().split("  ").map(str::trim).filter(|word| !word.is_empty()).collect()
}

fn line_with<'a>(screen: &'a str, word: &str) -> &'a str {
    screen.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("no {word} in:\n{screen}"))
}

/// `$1.23` or `$0.0042`
fn is_money(text: &str) -> bool {
    let Some(digits) = text.strip_prefix('$').or_else(|| text.strip_prefix("<$")) else { return false };
    let Some((whole, rest)) = digits.split_once('.') else { return false };
    let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    number(whole) && number(rest) && matches!(rest.len(), 2 | 4)
}

#[test]
fn the_screens_are_the_seeds() {
    let fleet = fleet();
    let home = &fleet.home;

    let list = home.ok(&["containers"]);
    assert_eq!(columns(&list), ["ID", "SANDBOX", "STATE", "HEALTH", "TASK", "AGE", "COST"]);
    let row: Vec<&str> = line_with(&list, &fleet.first).split_whitespace().collect();
    assert_eq!((row[2], row[4]), ("running", "ta-def456"), "{list}");
    assert!(is_money(row.last().unwrap()), "{list}");
    let orphan: Vec<&str> = line_with(&list, "sb-lost").split_whitespace().collect();
    assert_eq!(orphan[2..], ["orphaned", "unknown", "-", "3h", "20m", "$1.67"], "{list}");
    assert!(!list.contains(&fleet.ended), "terminated ones need --all");
    let total = list.lines().last().unwrap();
    let rest = total.strip_prefix("Total: 3 containers | Running: 2 | Orphaned: 1 | Cost: ").expect(total);
    let (accrued, rest) = rest.split_once(" accrued, ").expect(total);
    assert!(is_money(accrued) && rest.starts_with("$1.25/hr"), "{total}");
    assert!(rest.contains("Foreign: 1 ($0.50/hr), see 'parhelia instances list'"), "{total}");
    assert!(home.ok(&["containers", "list", "--all"]).contains(&fleet.ended));
    let wide = home.ok(&["containers", "--all", "-o", "wide"]);
    for column in ["NAME", "PROVIDER", "REASON", "EXIT", "CPU", "MEM", "COMMAND"] {
        assert!(columns(&wide).contains(&column), "{wide}");
    }
    assert!(line_with(&wide, &fleet.ended).contains("completed"), "{wide}");

    let show = home.ok(&["containers", "show", &fleet.first]);
    assert!(show.starts_with(&format!("Container: {}\n  Sandbox:      ", fleet.first)), "{show}");
    for part in [
        "\n  State:        running\n",
        "\n  Health:       healthy (last heartbeat: ",
        "\n  Task:         ta-def456 (Run tests for auth module)\n",
        "\n  Worker:       -\n",
        "\n  Session:      -\n",
        "\n\n  Resources:\n    CPU:        4 cores (",
        "\n    Memory:     8192 MB (",
        "\n    GPU:        None\n",
        "\n\n  Lifecycle:\n    Created:    20",
        "\n    Started:    20",
        "\n    Uptime:     ",
        "\n\n  Cost:\n    Rate:       $0.25/hr\n    Accrued:    ",
    ] {
        assert!(show.contains(part), "no {part:?} in:\n{show}");
    }

    let events = home.ok(&["containers", "events", &fleet.first, "--limit", "10"]);
    assert_eq!(columns(&events), ["TIMESTAMP", "EVENT", "MESSAGE"]);
    let created = line_with(&events, "created");
    assert!(created.ends_with("     created            Container created for task ta-def456"), "{created}");
    assert_eq!(created.split_whitespace().next().unwrap().len(), "2026-01-21".len());
    assert!(line_with(&events, "Initial health check passed").contains("     healthy  "), "{events}");

    let orphans = home.ok(&["containers", "orphans"]);
    assert_eq!(columns(&orphans), ["ID", "SANDBOX", "AGE", "COST", "TASK (if known)"]);
    let hint = "1 orphan detected. Run 'parhelia cleanup --orphans' to terminate.";
    assert_eq!(orphans.lines().last().unwrap(), hint);

    let health = home.ok(&["containers", "health"]);
    assert_eq!(columns(&health), ["HEALTH", "COUNT", "CONTAINERS"]);
    let words: Vec<&str> = health.lines().skip(1).map(|l| l.split_whitespace().next().unwrap()).collect();
    assert_eq!(words[..5], ["healthy", "degraded", "unhealthy", "dead", "orphaned"], "{health}");
    assert!(line_with(&health, "healthy ").contains(&fleet.first), "{health}");
    assert!(line_with(&health, "dead ").ends_with("0        -"), "{health}");

    let status = home.ok(&["reconciler", "status"]);
    for part in [
        "Reconciler: running\n  Last run:       ",
        "\n  Next run:       ",
        "\n  Poll interval:  60 seconds\n",
        "  Last cycle (fake):\n    Provider containers:  3\n    DB containers:        2\n",
        "    Orphans detected:     ",
        "    Terminated:           ",
        "    State corrections:    ",
        "  Last cycle (process):\n",
    ] {
        assert!(status.contains(part), "no {part:?} in:\n{status}");
    }

    let instances = home.ok(&["instances", "list"]);
    assert_eq!(columns(&instances), ["INSTANCE", "RELATION", "SANDBOXES", "COST", "RATE"]);
    assert!(line_with(&instances, "sb-other").contains("2h 15m"), "{instances}");
    assert!(instances.contains("Run 'parhelia instances adopt ID'"), "{instances}");
    let all = home.ok(&["events", "list"]);
    assert_eq!(columns(&all), ["TIMESTAMP", "EVENT", "CONTAINER", "MESSAGE"]);
    let beats = home.ok(&["containers", "heartbeats", &fleet.first]);
    assert_eq!(columns(&beats), ["TIMESTAMP", "CPU", "MEM", "MEMORY", "DISK", "UPTIME", "TMUX", "CLAUDE"]);

    let said = home.ok(&["containers", "terminate", "c-0rphan0000000001", "--yes"]);
    let expected = "Terminating container c-0rphan0000000001 (sb-lost)...\nContainer terminated.\n";
    assert_eq!(said, expected);
}

/// Enough of YAML to see that it is one document of the expected kind: no tabs, no braces left open.
fn is_yaml(text: &str, list: bool) {
    assert!(!text.contains('\t') && text.ends_with('\n'), "{text}");
    let first = text.lines().next().unwrap();
    match list {
        true => assert!(first.starts_with("- ") || first == "[]", "{text}"),
        false => assert!(first.contains(": ") || first.ends_with(':'), "{text}"),
    }
    for line in text.lines() {
        let body = line.trim_start().trim_start_matches("- ");
        let key = body.split(':').next().unwrap();
        assert!(!key.is_empty() || body.is_empty(), "{line}");
    }
}

#[test]
fn every_format_of_every_list() {
    let fleet = fleet();
    let home = &fleet.home;
    let lists: [(&[&str], &str, Option<&str>); 7] = [
        (&["containers", "list"], "id", Some(&fleet.first)),
        (&["containers"], "id", Some(&fleet.second)),
        (&["containers", "events", &fleet.first], "id", None),
        (&["containers", "orphans"], "id", Some("c-0rphan0000000001")),
        (&["containers", "health"], "health", Some("healthy")),
        (&["instances", "list"], "id", Some("11111111-2222-3333-4444-555555555555")),
        (&["events", "list"], "id", None),
    ];
    for (command, key, member) in lists {
        let of = |format: &str| {
            let said = home.run(&[command, &["-o", format]].concat());
            assert_eq!((said.code, said.err.as_str()), (0, ""), "{command:?} -o {format}: {said:?}");
            assert!(!said.out.contains('\u{1b}'), "no colours in a pipe: {said:?}");
            said.out
        };
        let array: Value = serde_json::from_str(&of("json")).unwrap();
        let names = |items: &[Value]| -> Vec<String> {
            let word = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
            items.iter().map(|item| word(&item[key])).collect()
        };
        let ids = names(array.as_array().expect("a list is an array"));
        assert!(!ids.is_empty(), "{command:?}");
        assert!(member.is_none_or(|m| ids.iter().any(|id| id == m)), "{command:?}: {ids:?}");
        let lines: Vec<Value> = of("jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(names(&lines), ids, "{command:?}");
        assert_eq!(of("name").lines().collect::<Vec<_>>(), ids, "{command:?}");
        is_yaml(&of("yaml"), true);
        assert_eq!(home.ok(&[command, &["-q"]].concat()).lines().collect::<Vec<_>>(), ids, "{command:?}");
        for format in ["table", "wide"] {
            assert!(of(format).lines().count() > ids.len(), "{command:?} -o {format}");
        }
    }
    let ones: [(&[&str], &str); 5] = [
        (&["containers", "show", &fleet.first], &fleet.first),
        (&["reconciler", "status"], "running"),
        (&["reconciler", "run"], "done"),
        (&["info"], &home.instance_id()),
        (&["version"], env!("CARGO_PKG_VERSION")),
    ];
    for (command, name) in ones {
        let of = |format: &str| home.ok(&[command, &["-o", format]].concat());
        for format in ["json", "jsonl"] {
            let one: Value = serde_json::from_str(&of(format)).unwrap();
            assert!(one.is_object(), "{command:?}");
        }
        assert_eq!(of("jsonl").lines().count(), 1);
        is_yaml(&of("yaml"), false);
        assert_eq!(of("name").trim(), name, "{command:?}");
        assert!(!of("table").is_empty() && !of("wide").is_empty());
    }
    let one = home.container(&fleet.first);
    for column in
        ["id", "sandbox", "state", "health", "task", "age", "cost", "cost_accrued_usd", "last_heartbeat_at"]
    {
        assert!(one.get(column).is_some(), "{column} is missing: {one}");
    }
    let beats = home.json(&["containers", "heartbeats", &fleet.first]);
    assert!(!beats["heartbeats"].as_array().unwrap().is_empty() && beats["hours"].is_array(), "{beats}");
}

#[test]
fn filters_choose() {
    let fleet = fleet();
    let home = &fleet.home;
    home.until_seen(&fleet.first, "health", "healthy");
    let ids = |args: &[&str]| -> Vec<String> {
        let out = home.ok(&[&["containers", "list", "-q"], args].concat());
        let mut ids: Vec<String> = out.lines().map(str::to_owned).collect();
        ids.sort();
        ids
    };
    let (first, second, ended) = (fleet.first.as_str(), fleet.second.as_str(), fleet.ended.as_str());
    let both = {
        let mut both = vec![first, second];
        both.sort_unstable();
        both
    };
    assert_eq!(ids(&["--state", "running"]), both);
    assert_eq!(ids(&["--state", "terminated"]), [ended]);
    assert_eq!(ids(&["--state", "orphaned,terminated"]).len(), 2);
    assert_eq!(ids(&["--health", "healthy"]), [first]);
    assert_eq!(ids(&["--provider", "fake", "--state", "running"]), [second]);
    assert_eq!(ids(&["--task", "ta-def456"]), [first]);
    assert_eq!(ids(&["--label", "team=core"]), both);
    assert_eq!(ids(&["--label", "team=core", "--label", "tier=a"]), [first], "all labels must match");
    assert_eq!(ids(&["--limit", "1"]).len(), 1);
    assert_eq!(ids(&["--health", "dead"]).len(), 0);
    let empty = home.run(&["containers", "--health", "dead"]);
    assert!(empty.code == 0 && empty.out.starts_with("Total: 0 containers | "), "{empty:?}");
    assert!(empty.err.contains("No containers match"), "{empty:?}");

    let types = |list: &str| -> Vec<String> {
        let events = home.json(&["events", "list", "--type", list, "--container", first]);
        events.as_array().unwrap().iter().map(|e| e["event_type"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(types("container_created"), ["container_created"]);
    assert_eq!(types("started"), ["container_started"], "the short word of the screen works too");
    assert_eq!(types("container_started,container_created"), ["container_created", "container_started"]);
    assert!(home.json(&["events", "list", "--since", "2999-01-01"]).as_array().unwrap().is_empty());
    assert!(
        !home
            .json(&["events", "list", "--since", "1h", "--task", "ta-def456"])
            .as_array()
            .unwrap()
            .is_empty()
    );
    assert!(home.json(&["events", "list", "--until", "2020-01-01"]).as_array().unwrap().is_empty());

    let (status, stats) = home.api("GET", "/api/v1/containers/stats", None);
    assert_eq!(status, 200);
    assert_eq!((&stats["total"], &stats["by_state"]["running"]), (&json!(4), &json!(2)), "{stats}");
    assert!(
        stats["total_cost_usd"].as_f64().unwrap() > 1.6 && stats["oldest_running"].is_string(),
        "{stats}"
    );

    let (_, status) = home.api("GET", "/api/v1/reconciler", None);
    assert_eq!((status["running"].as_bool(), status["providers"].as_array().unwrap().len()), (Some(true), 2));
    let (_, seen) = home.api("GET", "/api/v1/instances", None);
    let other = seen["instances"].as_array().unwrap().iter().find(|i| i["is_self"] == false).unwrap();
    assert_eq!(other["foreign"][0]["sandbox"], "sb-other");
    let id = other["id"].as_str().unwrap();
    let (status, report) = home.api("POST", &format!("/api/v1/instances/{id}/adopt"), None);
    assert_eq!((status, report["containers"][0].as_str()), (200, Some("c-f0re1gn000000001")), "{report}");
    assert_eq!(home.seen("c-f0re1gn000000001")["state"], "running");
}

/// `[14:32:15] c-abc123  healthy   CPU: 45%  MEM: 62%  ↑ 2h 15m`
fn is_watch_line(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let time = words.next().unwrap_or("");
    let digits = time.trim_start_matches('[').trim_end_matches(']');
    let clock =
        time.len() == 10 && digits.split(':').all(|part| part.len() == 2 && part.parse::<u8>().is_ok());
    let id = words.next().is_some_and(|id| id.starts_with("c-"));
    let health =
        words.next().is_some_and(|h| ["unknown", "healthy", "degraded", "unhealthy", "dead"].contains(&h));
    let rest: Vec<&str> = words.collect();
    let percent =
        |text: &str| text == "-" || text.strip_suffix('%').is_some_and(|n| n.parse::<u32>().is_ok());
    clock
        && id
        && health
        && matches!(rest[..], ["CPU:", cpu, "MEM:", memory, "↑", _, ..] if percent(cpu) && percent(memory))
}

#[test]
fn what_follows_follows_and_ends() {
    let fleet = fleet();
    let home = &fleet.home;
    let watched =
        home.ok(&["containers", "watch", "--count", "2", "--interval", "100ms", "--state", "running"]);
    assert_eq!(watched.lines().count(), 4, "two containers, two rounds: {watched}");
    assert!(watched.lines().all(is_watch_line), "{watched}");
    let objects = home.ok(&["containers", "watch", "--count", "1", "-o", "json"]);
    assert!(objects.lines().all(|line| serde_json::from_str::<Value>(line).unwrap()["id"].is_string()));

    let script = "for i in 1 2 3 4 5; do echo line $i; sleep 0.2; done; printf 'no newline \\033[1m\\0'";
    let id = home.start(&[], &["sh", "-c", script]);
    let exactly = "line 1\nline 2\nline 3\nline 4\nline 5\nno newline \u{1b}[1m\0";
    assert_eq!(home.ok(&["containers", "logs", &id, "--follow"]), exactly);
    home.until_seen(&id, "state", "terminated");
    assert_eq!(home.ok(&["containers", "logs", &id]), exactly, "and the same again, afterwards");
    assert_eq!(home.ok(&["containers", "logs", &id, "--tail", "2"]), "line 5\nno newline \u{1b}[1m\0");
    assert_eq!(home.ok(&["containers", "logs", &id, "--tail-bytes", "5"]), "\u{1b}[1m\0");
    let followed = home.run(&["containers", "run", "--follow", "--", "echo", "hello"]);
    assert_eq!((followed.code, followed.out.as_str()), (0, "hello\n"), "{followed:?}");

    let last = home.json(&["events", "list", "--limit", "1"])[0]["id"].to_string();
    let types = "container_created,container_terminated";
    let tail =
        home.command(&["events", "tail", "--after", &last, "--type", types, "--count", "2", "-o", "jsonl"]);
    let tail = spawn(tail);
    let id = home.ok(&["containers", "run", "--wait", "-q", "--", "true"]).trim().to_owned();
    let told: Vec<(String, String)> = ended(tail)
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|e| {
            (e["container_id"].as_str().unwrap().to_owned(), e["event_type"].as_str().unwrap().to_owned())
        })
        .collect();
    let expected = [(id.clone(), "container_created".to_owned()), (id, "container_terminated".to_owned())];
    assert_eq!(told, expected);
    let lines = home.ok(&["events", "tail", "--after", "0", "--count", "3"]);
    assert_eq!(lines.lines().count(), 3);
    assert!(lines.contains("server_started"), "{lines}");
}

fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn ended(child: Child) -> Said {
    child.wait_with_output().unwrap().into()
}

#[test]
fn an_export_is_complete() {
    let fleet = fleet();
    let home = &fleet.home;
    for n in 0..3 {
        home.ok(&["containers", "run", "--wait", "--name", &format!("a,\"b\" {n}"), "--", "true"]);
    }
    let exported: Vec<Value> =
        home.ok(&["events", "export"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<i64> = exported.iter().map(|e| e["id"].as_i64().unwrap()).collect();
    let last = *ids.last().unwrap();
    let (_, all) = home.api("GET", "/api/v1/events?after=0&order=asc&limit=10000", None);
    let expected: Vec<&Value> =
        all["events"].as_array().unwrap().iter().filter(|e| e["id"].as_i64().unwrap() <= last).collect();
    assert!(expected.len() > 12, "{expected:?}");
    assert_eq!(exported.iter().collect::<Vec<_>>(), expected, "every event, oldest first, with every field");

    let file = home.path().join("events.csv");
    let said =
        home.run(&["events", "export", "--format", "csv", "--file", file.to_str().unwrap(), "--since", "1h"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("events written to"), "{said:?}");
    let csv = std::fs::read_to_string(&file).unwrap();
    assert!(csv.starts_with("id,timestamp,event_type,container_id,"), "{csv}");
    let rows: Vec<&str> = csv.split("\r\n").skip(1).filter(|row| !row.is_empty()).collect();
    assert!(rows.len() >= expected.len());
    for (row, event) in rows.iter().zip(&expected) {
        assert!(row.starts_with(&format!("{},", event["id"])), "{row}");
        assert!(row.contains(event["event_type"].as_str().unwrap()), "{row}");
    }
    assert!(!home.path().join("events.csv.partial").exists());
}

#[test]
fn each_exit_code_has_its_meaning_and_errors_are_json_when_asked() {
    let fleet = fleet();
    let home = &fleet.home;
    let json_error = |said: &Said, code: i32, word: &str| {
        assert_eq!((said.code, said.out.as_str()), (code, ""), "{said:?}");
        let error: Value = serde_json::from_str(said.err.trim()).unwrap_or_else(|e| panic!("{e}: {said:?}"));
        assert_eq!(error["code"], word, "{said:?}");
        assert!(!error["message"].as_str().unwrap().is_empty() && error["fix"].is_string(), "{said:?}");
        assert_eq!(error.as_object().unwrap().len(), 3, "{said:?}");
    };
    assert_eq!(home.run(&["containers"]).code, 0);
    let said = home.run(&["containers", "run", "-o", "json", "--", "no-such-command-anywhere"]);
    json_error(&said, 1, "not_started");
    json_error(&home.run(&["containers", "list", "--state", "runing", "-o", "json"]), 2, "usage");
    json_error(&home.run(&["containers", "terminate", &fleet.first, "-o", "json"]), 2, "usage");
    json_error(&home.run(&["containers", "show", "c-0000nobody", "-o", "json"]), 3, "not_found");
    json_error(&home.run(&["instances", "adopt", "99999999", "-o", "yaml"]), 3, "not_found");
    json_error(&home.run(&["instances", "adopt", &home.instance_id(), "-o", "json"]), 4, "own_instance");
    let failed = home.run(&["containers", "run", "--wait", "--", "sh", "-c", "exit 3"]);
    assert_eq!(failed.code, 5, "{failed:?}");
    assert!(failed.out.contains("terminated (failed, exit code 3)"), "{failed:?}");
    assert!(failed.err.contains("did not succeed: failed, exit code 3"), "{failed:?}");
    assert!(failed.err.contains("fix: see 'parhelia containers logs"), "{failed:?}");
    assert_eq!(home.run(&["containers", "run", "--wait", "--", "sh", "-c", "kill -9 $$"]).code, 5);
    assert_eq!(home.run(&["containers", "run", "--follow", "--", "false"]).code, 5);

    fleet.world.change(|world| world["faults"]["stop"] = "ignore".into());
    let said = home.run(&["containers", "stop", "--grace", "0s", "--timeout", "1s", &fleet.second]);
    assert_eq!(said.code, 6, "{said:?}");
    assert!(said.err.contains("is still running after") && said.err.contains("goes on trying"), "{said:?}");
    fleet.world.change(|world| world["faults"]["stop"] = "none".into());
    home.until_seen(&fleet.second, "state", "terminated");

    let mark = format!("E2E_MARK={}", home.path().display());
    let mut tail = home.command(&["events", "tail", "--after", "0", "-o", "name"]);
    tail.env("E2E_MARK", home.path());
    let mut tail = spawn(tail);
    // When it has printed something it is under way, and hears Ctrl-C.
    tail.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    signal_the_one_with(&mark, Signal::INT);
    let said = ended(tail);
    assert_eq!(said.code, 130, "{said:?}");
    assert_eq!(said.err, "", "Ctrl-C is the usual end: {said:?}");
}

#[test]
fn nothing_is_ended_without_a_yes() {
    let fleet = fleet();
    let home = &fleet.home;
    let commands: [&[&str]; 3] = [
        &["containers", "terminate", &fleet.first],
        &["cleanup", "--orphans"],
        &["instances", "adopt", "11111111"],
    ];
    for command in commands {
        let said = home.run(command);
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains("no terminal to ask on") && said.err.contains("--yes"), "{said:?}");
        for answer in ["\n", "n\n", "nope\n", "yess\n"] {
            let (code, screen) = on_a_terminal(home, command, answer);
            assert!(screen.contains("[y/N]"), "{command:?}: {screen}");
            assert!(screen.contains("Nothing was "), "{command:?} {answer:?}: {screen}");
            assert_eq!(code, 0, "{screen}");
        }
    }
    let dry = home.run(&["cleanup", "--orphans", "--dry-run"]);
    assert!(dry.out.contains("sb-lost") && dry.out.contains("1 orphan | Cost: $"), "{dry:?}");
    assert!(dry.err.contains("Dry run: nothing was ended."), "{dry:?}");
    assert!(home.ok(&["cleanup", "--dead", "--dry-run", "-q"]).is_empty());
    let young = home.run(&["cleanup", "--orphans", "--older-than", "4h", "--yes"]);
    assert!(young.err.contains("No orphans"), "{young:?}");
    assert_eq!(home.seen(&fleet.first)["state"], "running");
    assert_eq!(home.seen("c-0rphan0000000001")["state"], "orphaned");
    assert!(home.told("stop_requested").is_empty() && home.told("instance_adopted").is_empty());

    let (code, screen) = on_a_terminal(home, &["containers", "terminate", &fleet.first], "y\n");
    assert_eq!(code, 0, "{screen}");
    assert_eq!(home.seen(&fleet.first)["state"], "terminated", "{screen}");
    let adopted = home.ok(&["instances", "adopt", "11111111", "--yes"]);
    assert!(adopted.contains("1 container."), "{adopted}");
    assert_eq!(home.told("instance_adopted").len(), 1);
    let cleaned = home.ok(&["cleanup", "--orphans", "--yes"]);
    assert!(cleaned.contains("1 container terminated."), "{cleaned}");
    assert_eq!(home.seen("c-0rphan0000000001")["termination_reason"], "orphan_cleanup");
}

/// Runs a command on a terminal of its own and answers its question; its exit code and all that it showed.
fn on_a_terminal(home: &Home, command: &[&str], answer: &str) -> (i32, String) {
    let line = [&[parhelia().to_str().unwrap()], command].concat().join(" ");
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &line, "/dev/null"]).env("PARHELIA_HOME", home.path()).env_remove("PARHELIA_URL");
    let mut child = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let mut screen = child.stdout.take().unwrap();
    let (mut shown, mut chunk) = (Vec::new(), [0; 1024]);
    let mut answered = false;
    loop {
        match screen.read(&mut chunk) {
            Ok(got) if got > 0 => shown.extend_from_slice(&chunk[..got]),
            _ => break,
        }
        if !answered && shown.windows(5).any(|w| w == b"[y/N]") {
            keys.write_all(answer.as_bytes()).unwrap();
            keys.flush().unwrap();
            answered = true;
        }
    }
    drop(keys);
    let code = child.wait().unwrap().code().unwrap_or(-1);
    (code, String::from_utf8_lossy(&shown).into_owned())
}

#[test]
fn colours_are_for_terminals_and_can_be_refused() {
    let home = Home::new();
    let id = home.start(&[], &["sleep", "600"]);
    home.until(&id, "health", "healthy");
    for no_color in [None, Some("1")] {
        let mut command = home.command(&["containers"]);
        match no_color {
            None => command.env_remove("NO_COLOR"),
            Some(value) => command.env("NO_COLOR", value),
        };
        let said: Said = command.output().unwrap().into();
        assert!(!said.out.contains('\u{1b}'), "{said:?}");
    }
    let terminal = |extra: &str| {
        let mut command = Command::new("script");
        let line = format!("{} containers {extra}", parhelia().display());
        command.args(["-qec", &line, "/dev/null"]).env("PARHELIA_HOME", home.path()).env("TERM", "xterm");
        command.env_remove("NO_COLOR").env_remove("PARHELIA_URL").stdin(Stdio::null());
        command
    };
    let shown =
        |mut command: Command| String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned();
    assert!(shown(terminal("")).contains("\u{1b}[32mhealthy"));
    assert!(!shown(terminal("--no-color")).contains('\u{1b}'));
    let mut refused = terminal("");
    refused.env("NO_COLOR", "1");
    assert!(!shown(refused).contains('\u{1b}'));
}

#[test]
fn shells_and_manuals_are_served() {
    let home = Home::new();
    for (shell, word) in
        [("bash", "complete -F"), ("zsh", "#compdef parhelia"), ("fish", "complete -c parhelia")]
    {
        let script = home.ok(&["completions", shell]);
        assert!(script.contains(word) && script.contains("reconciler"), "{shell}: {script}");
    }
    assert!(home.ok(&["man"]).contains(".TH parhelia 1"));
    let dir = home.path().join("man");
    home.ok(&["man", dir.to_str().unwrap()]);
    let pages: Vec<String> =
        std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    for page in ["parhelia.1", "parhelia-containers.1", "parhelia-containers-run.1", "parhelia-cleanup.1"] {
        assert!(pages.iter().any(|p| p == page), "{page} is not among {pages:?}");
    }
    assert!(pages.iter().all(|p| std::fs::metadata(dir.join(p)).unwrap().len() > 100));
    assert!(!home.path().join("parhelia.sock").exists(), "none of this needs a server");
    assert_eq!(home.run(&["version", "--server"]).out.lines().last().unwrap(), "server   not running");
}
