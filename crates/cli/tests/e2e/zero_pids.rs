//! Contract 15: no process id is stored or compared across processes. The source says so, and so does the disk.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::{Home, eventually, processes_with, text};
use crate::jobs::{exec, until_job};

/// Where a process may be named by number, each with the reason why that number is never kept nor sent.
const ALLOWED: &[(&str, &str)] = &[
    ("providers/src/process/lock.rs", "a field of the kernel's question about a lock, always 0"),
    (
        "providers/src/supervise/ending.rs",
        "a supervisor's own child, not yet reaped, compared within that process",
    ),
    (
        "cli/src/commands/worker.rs",
        "a worker's own child, not yet reaped, whose group is ended within that process",
    ),
    (
        "providers/src/process/procs.rs",
        "turns an environment that was just read into a checked pidfd, and forgets it",
    ),
    (
        "providers/src/docker/observe.rs",
        "a field of the engine's own answer, in a test of its reader; it is not read",
    ),
    ("server/src/doctor/machine.rs", "the kernel's limit on how many processes there may be (pids.max)"),
    (
        "store/src/postgres/leader.rs",
        "ends the database's own sessions of a replaced leader, by a query of that moment",
    ),
];

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path()) {
        if entry.is_dir() {
            sources(&entry, into);
        } else if entry.extension().is_some_and(|e| e == "rs" || e == "sql") {
            into.push(entry);
        }
    }
}

/// Whether a line of code speaks of a process id.
fn names_a_process(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or(line).trim_start();
    let code = if code.starts_with("--") { "" } else { code };
    let is_it = |word: &str| {
        let word = word.to_ascii_lowercase();
        let parts: Vec<&str> = word.split('_').collect();
        parts
            .iter()
            .any(|part| matches!(*part, "pid" | "pids" | "ppid" | "getpid" | "getppid" | "pgid" | "tgid"))
    };
    let by_word = code.split(|c: char| !c.is_alphanumeric() && c != '_').any(is_it);
    by_word || code.contains("process::id(")
}

#[test]
fn no_source_stores_or_compares_a_process_id() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for name in ["core", "store", "providers", "server", "cli", "sim"] {
        sources(&crates.join(name).join("src"), &mut files);
        for sql in ["sql", "migrations"].map(|dir| crates.join(name).join(dir)) {
            if sql.is_dir() {
                sources(&sql, &mut files);
            }
        }
    }
    assert!(files.len() > 200, "this test has lost its way: {}", files.len());
    let (mut wrong, mut used) = (String::new(), std::collections::BTreeSet::new());
    for file in files {
        let short = file.strip_prefix(crates).unwrap().display().to_string();
        let text = std::fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| names_a_process(line)) {
            match ALLOWED.iter().find(|(path, _)| short == *path) {
                Some((path, _)) => drop(used.insert(*path)),
                None => wrong.push_str(&format!("{short}:{}: {}\n", number + 1, line.trim())),
            }
        }
    }
    assert!(wrong.is_empty(), "a process id without a reason:\n{wrong}");
    assert_eq!(used.len(), ALLOWED.len(), "an exception that nobody needs any more; used: {used:?}");
}

#[test]
fn the_guard_knows_a_process_id_when_it_sees_one() {
    for bad in ["let pid = 1;", "child_pid: u32", "std::process::id()", "getppid()", "pid INTEGER NOT NULL,"]
    {
        assert!(names_a_process(bad), "{bad}");
    }
    for good in ["// no pid here", "let rapid = 1;", "-- a pid is not kept", "pidfd_open(x)"] {
        assert!(!names_a_process(good), "{good}");
    }
}

/// Every number that stands anywhere in it as a value of its own.
fn numbers(value: &Value, into: &mut Vec<(String, i64)>, at: &str) {
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| numbers(value, into, &format!("{at}.{key}")))
        }
        Value::Array(all) => all.iter().for_each(|value| numbers(value, into, at)),
        Value::Number(number) => into.extend(number.as_i64().map(|n| (at.to_owned(), n))),
        Value::String(text) => into.extend(text.parse().ok().map(|n| (at.to_owned(), n))),
        _ => {}
    }
}

#[test]
fn no_file_of_a_home_and_no_column_names_a_living_process() {
    let home = Home::new();
    let _server = home.up(&[]);
    let mut living: Vec<i64> = Vec::new();
    for n in 0..4 {
        let asked = exec(
            &home,
            json!({"command": ["sh", "-c", "sleep 600 & echo up; wait"], "name": format!("job {n}")}),
        );
        let id = text(&asked, "id");
        until_job(&home, id, "status", "fresh");
        let of_it = [format!("PARHELIA_JOB_ID={id}"), format!("PARHELIA_SUPERVISES={id}")];
        let here = eventually("the supervisor, the command and its child are there", || {
            let here: Vec<_> = of_it.iter().flat_map(|variable| processes_with(variable)).collect();
            (here.len() >= 3).then_some(here)
        });
        living.extend(here.iter().map(|one| i64::from(one.as_raw_nonzero().get())));
    }
    assert!(living.len() >= 12, "supervisors, commands and their children: {living:?}");
    let mut found = Vec::new();
    let mut looked = 0;
    for dir in std::fs::read_dir(home.path().join("jobs")).unwrap().flatten().filter(|e| e.path().is_dir()) {
        for file in std::fs::read_dir(dir.path()).unwrap().flatten() {
            let Ok(text) = std::fs::read_to_string(file.path()) else { continue };
            looked += 1;
            if let Ok(json) = serde_json::from_str::<Value>(&text) {
                numbers(&json, &mut found, &file.file_name().to_string_lossy());
            }
        }
    }
    assert!(looked >= 12, "specification, sentinel and lock of each: {looked}");
    let db = home.sqlite();
    let tables: Vec<String> = db
        .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for table in &tables {
        let mut statement = db.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            for (n, column) in columns.iter().enumerate() {
                let at = format!("{table}.{column}");
                match row.get_ref(n).unwrap() {
                    rusqlite::types::ValueRef::Integer(number) => found.push((at, number)),
                    rusqlite::types::ValueRef::Text(text) => {
                        let text = String::from_utf8_lossy(text);
                        numbers(
                            &serde_json::from_str(&text).unwrap_or(Value::String(text.into_owned())),
                            &mut found,
                            &at,
                        );
                    }
                    _ => {}
                }
            }
        }
    }
    // Numbers that count something else may be equal to one by accident: only those are left out whose meaning is
    // stated in the protocol or the schema.
    let counts = |at: &str| {
        ["inode", "device", "bytes", "_mb", "seconds", "Seconds", "_ms", "offset", ".id", "event_id", "epoch"]
            .iter()
            .any(|known| at.ends_with(known))
            || at.ends_with("Bytes")
    };
    let named: Vec<_> = found.iter().filter(|(at, number)| living.contains(number) && !counts(at)).collect();
    assert!(named.is_empty(), "a living process is named by {named:?}");
}
