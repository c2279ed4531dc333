//! Every example is really run: waits are answered, outputs compared.

use serde_json::{Value, json};

use crate::cascade::{all_examples, examples};
use crate::docker_engine::{DockerEngine, IMAGE};
use crate::harness::{Home, eventually, text};

/// What has been run, so that no example is forgotten.
const RUN: [&str; 14] = [
    "agent",
    "approval",
    "docker",
    "hello",
    "inputs",
    "parallel",
    "questions",
    "sensor",
    "signal",
    "sub_cascade",
    "timeouts",
    "values",
    "verify_and_retry",
    "when",
];

#[test]
fn no_example_is_left_out() {
    let there: Vec<String> =
        all_examples().iter().map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(there, RUN);
}

fn file(name: &str) -> String {
    examples().join(format!("{name}.yaml")).display().to_string()
}

/// Attached, to its end: the outputs of the whole.
fn run(home: &Home, name: &str, more: &[&str]) -> Value {
    assert!(RUN.contains(&name));
    home.json(&[&["run", &file(name)], more].concat())["outputs"].clone()
}

fn detached(home: &Home, name: &str, more: &[&str]) -> String {
    assert!(RUN.contains(&name));
    let out = home.ok(&[&["run", &file(name), "--detach", "-o", "name"], more].concat());
    let id = out.trim().to_owned();
    assert!(id.starts_with("sess-") && !id.contains('\n'), "{out}");
    id
}

fn over(home: &Home, id: &str) -> Value {
    eventually(&format!("{id} is over"), || {
        let session = home.json(&["sessions", "show", id]);
        let status = text(&session, "status");
        assert!(!["error", "cancelled"].contains(&status), "{session}");
        (status == "completed").then_some(session)
    })
}

/// The wait that this session has open in that phase.
fn asked(home: &Home, id: &str, phase: &str) -> String {
    eventually(&format!("{id} waits in {phase}"), || {
        let inbox = home.json(&["inbox"]);
        let items = inbox.as_array().or_else(|| inbox["items"].as_array()).unwrap().clone();
        let mine = items.iter().find(|item| item["session_id"] == id && item["phase"] == phase)?;
        Some(text(mine, "id").to_owned())
    })
}

#[test]
fn those_that_need_nobody() {
    let home = Home::new();
    let _server = home.up(&[]);
    let scratch = home.path().join("attempts").display().to_string();
    assert_eq!(run(&home, "hello", &[]), json!({"said": "hello from greet"}));
    assert_eq!(
        run(&home, "inputs", &["-i", "who=Ada", "-i", "times=2", "-i", "tone=loud"]),
        json!({"line": "HELLO, ADA!", "each": [0, 1]})
    );
    assert_eq!(run(&home, "parallel", &[]), json!({"total": 6}));
    assert_eq!(run(&home, "verify_and_retry", &["-i", &format!("file={scratch}")]), json!({"attempts": 3}));
    assert_eq!(run(&home, "sub_cascade", &["-i", "words=[\"one\", \"three\"]"]), json!({"letters": 8}));
    assert_eq!(run(&home, "when", &[]), json!({"backup": "none was needed"}));
    assert_eq!(run(&home, "when", &["-i", "target=production"]), json!({"backup": "a backup was made"}));
    let odd = "$(rm -rf /); 'x' \"y\" `z` {{ no }}\\n";
    assert_eq!(
        run(&home, "values", &["-i", &format!("text={odd}")]),
        json!({"text": odd, "bytes": odd.len(), "sizes": [1, 2]})
    );
    assert_eq!(run(&home, "timeouts", &[]), json!({"size": "small", "asked_in_vain": true, "news": null}));
}

#[test]
fn those_that_wait() {
    let home = Home::new();
    let _server = home.up(&[]);

    let id = detached(&home, "approval", &["-i", "version=1.4", "--name", "yes"]);
    home.ok(&["inbox", "approve", &asked(&home, &id, "release"), "--reason", "fine"]);
    assert_eq!(over(&home, &id)["outputs"], json!({"approved": true}));
    let id = detached(&home, "approval", &["-i", "version=1.5"]);
    home.ok(&["inbox", "deny", &asked(&home, &id, "release"), "--reason", "not today"]);
    let failed = eventually("a denial fails it", || {
        Some(home.json(&["sessions", "show", &id])).filter(|session| session["status"] == "error")
    });
    assert!(text(&failed, "error_message").contains("not today"), "{failed}");

    let id = detached(&home, "questions", &[]);
    home.ok(&["inbox", "answer", &asked(&home, &id, "sure"), "yes"]);
    home.ok(&["inbox", "answer", &asked(&home, &id, "colour"), "green"]);
    home.ok(&["inbox", "answer", &asked(&home, &id, "days"), "--choice", "mon", "--choice", "wed"]);
    let version = asked(&home, &id, "version");
    assert_ne!(home.run(&["inbox", "answer", &version, "soon"]).code, 0, "it must match");
    home.ok(&["inbox", "answer", &version, "1.4"]);
    home.ok(&["inbox", "answer", &asked(&home, &id, "stars"), "4"]);
    assert_eq!(
        over(&home, &id)["outputs"],
        json!({"colour": "green", "days": ["mon", "wed"], "version": "1.4", "stars": 4})
    );

    // Fired before anybody waits.
    home.ok(&["signals", "fire", "deployed", "--payload", r#"{"version": "7"}"#]);
    assert_eq!(run(&home, "signal", &[]), json!({"version": "7", "said": "checking 7"}));

    let ready = home.path().join("ready");
    let id = detached(&home, "sensor", &["-i", &format!("file={}", ready.display())]);
    eventually("it looks for the file", || {
        Some(home.json(&["sessions", "show", &id])).filter(|session| session["blocked_type"] == "sensor")
    });
    std::fs::write(&ready, "here\n").unwrap();
    assert_eq!(over(&home, &id)["outputs"], json!({"text": "here"}));
}

#[test]
fn the_one_with_an_agent() {
    let scribe = examples().join("parts/scribe.sh");
    let home = Home::with_config(&format!("[engines.scribe]\nprogram = '{}'\n", scribe.display()));
    let _server = home.up(&[]);
    assert_eq!(
        run(&home, "agent", &["-i", "topic=rain"]),
        json!({"line": "asked to: Write a line about rain."})
    );
}

#[test]
fn the_one_in_docker() {
    let engine = DockerEngine::start();
    let home = Home::with_config(&format!("[docker]\nhost = '{}'\n", engine.host()));
    let _server = home.up(&[]);
    engine.ok(&["tag", IMAGE, "busybox"]);
    assert_eq!(run(&home, "docker", &[]), json!({"said": "hello in a container"}));
}
