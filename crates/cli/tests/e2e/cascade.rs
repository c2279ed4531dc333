//! Cascade files without a server: `parhelia cascade check` and `parhelia cascade schema`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{Home, Said, python};

pub(crate) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").canonicalize().unwrap()
}

pub(crate) fn all_examples() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(examples()).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "yaml"));
    files.sort();
    assert!(files.len() >= 12, "{files:?}");
    files
}

/// What `check` says of this text in a file `c.yaml`, on standard error.
fn check(home: &Home, text: &str) -> Said {
    std::fs::write(home.path().join("c.yaml"), text).unwrap();
    let mut command = home.command(&["cascade", "check", "c.yaml"]);
    command.current_dir(home.path()).output().unwrap().into()
}

fn told(home: &Home, text: &str) -> Vec<String> {
    let said = check(home, text);
    assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
    said.err.lines().map(str::to_owned).collect()
}

#[test]
fn every_mistake_has_its_file_line_and_column() {
    let home = Home::new();
    // Its first line is line 3.
    let phases = |text: &str| format!("cascade_id: c\nphases:\n{text}");
    let cases: Vec<(String, Vec<&str>)> = vec![
        (String::new(), vec!["c.yaml:1:1: there is nothing in it"]),
        ("cascade_id: c\nphases: [\n".to_owned(), vec!["c.yaml:2:9: this is not YAML: unclosed bracket"]),
        (
            "phases: []\n".to_owned(),
            vec!["c.yaml:1:1: a cascade needs 'cascade_id'", "c.yaml:1:9: a cascade needs at least one"],
        ),
        (
            "cascade_id: 'a b'\nphases: x\n".to_owned(),
            vec!["c.yaml:1:13: 'a b' is not a cascade_id", "c.yaml:2:9: 'phases' must be a list, not text"],
        ),
        (
            phases("  - {name: a, rum: 'true'}\n"),
            vec![
                "c.yaml:3:5: a phase needs one of run,",
                "c.yaml:3:15: a phase has no key 'rum' (did you mean 'run'?)",
            ],
        ),
        (
            phases("  - {name: a, run: 'true', set: {}}\n"),
            vec!["c.yaml:3:28: a phase does one thing, and 'run' is there already"],
        ),
        (
            phases("  - {name: a, run: 'true'}\n  - {name: a, run: 'true'}\n"),
            vec!["c.yaml:4:12: another phase is called 'a' already: number 1"],
        ),
        (
            phases("  - name: a\n    tasks:\n      - {id: t, run: 'true'}\n      - {id: t, run: 'true'}\n"),
            vec!["c.yaml:6:14: another task is called 't'"],
        ),
        (phases("  - {name: a, needs: [b], run: 'true'}\n"), vec!["c.yaml:3:23: there is no phase 'b'"]),
        (phases("  - {name: a, needs: [a], run: 'true'}\n"), vec!["c.yaml:3:23: 'a' needs itself"]),
        (
            phases("  - {name: a, needs: [b], run: 'true'}\n  - {name: b, needs: [a], run: 'true'}\n"),
            vec!["c.yaml:3:22: these wait for each other: a → b → a"],
        ),
        (
            phases("  - {name: a, run: 'true', timeout: 5 minutes}\n"),
            vec!["c.yaml:3:37: 'timeout' is not a duration (whole seconds, or text as 90s, 5m, 2h)"],
        ),
        (
            phases("  - {name: a, run: 'echo {{ inputs.x }}'}\n"),
            vec![
                "c.yaml:3:20: a shell line is never changed, so a template in it would mean nothing (values reach a shell line through env:",
            ],
        ),
        (
            phases("  - {name: a, run: [echo, '{{ inputs.x }}']}\n"),
            vec!["c.yaml:3:27: there is no input 'x'"],
        ),
        (phases("  - {name: a, run: [echo, '{{ ']}\n"), vec!["c.yaml:3:27: '{{': is not a template"]),
        (
            phases("  - {name: a, run: [echo, '{{ outputs.b.x }}']}\n  - {name: b, set: {x: 1}}\n"),
            vec!["c.yaml:3:27: 'b' need not be over when this phase begins (add 'b' to its needs)"],
        ),
        (
            phases("  - {name: a, set: {x: 1}}\n  - {name: b, when: 'outputs.a.y', set: {}}\n"),
            vec!["c.yaml:4:21: phase 'a' gives no 'y'; it gives x"],
        ),
        (
            phases("  - {name: a, await: {hitl: {kind: text, question: q, pattern: '['}}}\n"),
            vec!["c.yaml:3:64: '[' is not a regular expression"],
        ),
        (
            phases("  - {name: a, cascade: nowhere.yaml}\n"),
            vec!["c.yaml:3:24: cannot read 'nowhere.yaml': No such file"],
        ),
    ];
    for (text, expected) in cases {
        let told = told(&home, &text);
        assert_eq!(told.len(), expected.len(), "{text}\n{told:#?}");
        for (line, beginning) in told.iter().zip(expected) {
            assert!(line.starts_with(beginning), "{text}\nsays   {line}\nwanted {beginning}");
        }
    }
    // In the file of a sub-cascade, by its own name.
    std::fs::write(home.path().join("sub.yaml"), "cascade_id: s\nphases:\n  - {name: x}\n").unwrap();
    let below = told(&home, &phases("  - {name: a, cascade: sub.yaml}\n"));
    assert!(below.len() == 1 && below[0].starts_with("sub.yaml:3:5: a phase needs one of"), "{below:?}");
}

#[test]
fn programs_get_the_mistakes_as_json_and_good_files_end_with_zero() {
    let home = Home::new();
    std::fs::write(home.path().join("bad.yaml"), "cascade_id: c\nphases:\n  - {name: a, runn: x}\n").unwrap();
    let said: Said = home
        .command(&["cascade", "check", "bad.yaml", "missing.yaml", "-o", "json"])
        .current_dir(home.path())
        .output()
        .unwrap()
        .into();
    assert_eq!((said.code, said.err.as_str()), (1, ""), "{said:?}");
    let found: Vec<Value> = serde_json::from_str(&said.out).unwrap();
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(
        (&found[1]["file"], &found[1]["line"], &found[1]["column"]),
        (&"bad.yaml".into(), &3.into(), &15.into())
    );
    assert_eq!(found[1]["path"], "phases[0].runn");
    assert_eq!(found[1]["suggestion"], "did you mean 'run'?");
    assert_eq!((&found[2]["file"], &found[2]["line"]), (&"missing.yaml".into(), &Value::Null));

    let files: Vec<String> = all_examples().iter().map(|path| path.display().to_string()).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let said = home.run(&[&["cascade", "check"], &files[..]].concat());
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.err.lines().count(), files.len(), "{said:?}");
    assert!(said.err.contains("hello.yaml: hello is fine: 1 phase, 1 task"), "{said:?}");
    // None of this needs a server.
    assert!(!home.path().join("parhelia.sock").exists());
}

const VALIDATE: &str = "
import json, sys, yaml
from jsonschema import Draft202012Validator
schema = json.load(open(sys.argv[1]))
Draft202012Validator.check_schema(schema)
validator = Draft202012Validator(schema)
for path in sys.argv[2:]:
    print(len(list(validator.iter_errors(yaml.safe_load(open(path))))), path)
";

/// By a validator that we did not write.
#[test]
fn the_schema_accepts_every_example_and_refuses_mistakes() {
    let home = Home::new();
    let schema = home.path().join("schema.json");
    std::fs::write(&schema, home.ok(&["cascade", "schema"])).unwrap();
    let mut files = all_examples();
    files.push(examples().join("parts/count.yaml"));
    let good = files.len();
    for (n, phase) in [
        "{name: a}",
        "{name: a, run: 'true', set: {}}",
        "{name: a, run: 'true', runn: x}",
        "{name: 'a b', run: 'true'}",
        "{name: a, run: 'echo {{ x }}'}",
        "{name: a, run: []}",
        "{name: a, run: 'true', timeout: soon}",
        "{name: a, run: 'true', timeout: 0}",
        "{name: a, run: 'true', env: {1A: x}}",
        "{name: a, run: 'true', retry: {backoff: linear}}",
        "{name: a, tasks: []}",
        "{name: a, tasks: [{run: 'true'}]}",
        "{name: a, await: {}}",
        "{name: a, await: {signal: x, approval: y}}",
        "{name: a, await: {hitl: {kind: choice, question: q}}}",
        "{name: a, await: {sensor: {time: {}}}}",
        "{name: a, agent: {engine: e}}",
        "{name: a, cascade: {}}",
    ]
    .iter()
    .enumerate()
    {
        let path = home.path().join(format!("bad{n}.yaml"));
        std::fs::write(&path, format!("cascade_id: c\nphases:\n  - {phase}\n")).unwrap();
        // What the schema refuses, so does the check.
        assert_eq!(home.run(&["cascade", "check", path.to_str().unwrap()]).code, 1, "{phase}");
        files.push(path);
    }
    let output = Command::new(python().join("python"))
        .args(["-c", VALIDATE])
        .arg(&schema)
        .args(&files)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), files.len(), "{out}");
    for (n, line) in lines.iter().enumerate() {
        assert_eq!(line.starts_with("0 "), n < good, "{line}");
    }
}
