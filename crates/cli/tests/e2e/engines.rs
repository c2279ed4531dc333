//! Engines with small agents that only write down how they were called.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::harness::{Home, text};
use crate::jobs::{exec, job, until_job};

/// A directory with programs that record their arguments, one a line.
struct Agents(tempfile::TempDir);

impl Agents {
    fn new(names: &[&str]) -> Self {
        let agents = Self(tempfile::tempdir().unwrap());
        for name in names {
            let path = agents.0.path().join(name);
            let script = "#!/bin/sh\nfor word in \"$(basename \"$0\")\" \"$@\"; do echo \"$word\"; done\n";
            std::fs::write(&path, script).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        agents
    }

    fn ask(&self, engine: Option<&str>, command: &[&str]) -> Value {
        let path = format!("{}:{}", self.0.path().display(), std::env::var("PATH").unwrap());
        json!({"command": command, "engine": engine, "env": {"PATH": path}})
    }
}

/// What the agent was called with.
fn called(home: &Home, id: &str) -> Vec<String> {
    until_job(home, id, "status", "finished");
    home.ok(&["jobs", "logs", id]).lines().map(str::to_owned).collect()
}

fn resumed(home: &Home, id: &str, more: &[&str]) -> Vec<String> {
    let next = home.ok(&[&["jobs", "resume", id, "-o", "name", "--"], more].concat());
    called(home, next.trim())
}

#[test]
fn built_in_engines_start_and_resume_their_agents() {
    let home = Home::new();
    let _server = home.up(&[]);
    let agents = Agents::new(&["claude", "gemini", "codex"]);
    let asked = exec(&home, agents.ask(Some("claude-code"), &["claude", "-p", "fix it; $(rm)"]));
    let (id, session) = (text(&asked, "id"), text(&asked, "agent_session"));
    assert_eq!(session.len(), 36, "a fresh session: {asked}");
    assert_eq!(called(&home, id), ["claude", "--session-id", session, "-p", "fix it; $(rm)"]);
    assert_eq!(resumed(&home, id, &["-p", "go on"]), ["claude", "--resume", session, "-p", "go on"]);
    // Its own session stays its own, and the program need not be named.
    let own = exec(&home, agents.ask(Some("claude-code"), &["--session-id", "mine", "-p", "x"]));
    assert_eq!(text(&own, "agent_session"), "mine");
    assert_eq!(called(&home, text(&own, "id")), ["claude", "--session-id", "mine", "-p", "x"]);
    // Without being named the engine is only guessed, and the command stays as it was given.
    let guessed = exec(&home, agents.ask(None, &["claude", "-p", "x"]));
    assert_eq!((text(&guessed, "engine"), &guessed["agent_session"]), ("claude-code", &Value::Null));
    assert_eq!(called(&home, text(&guessed, "id")), ["claude", "-p", "x"]);
    assert_eq!(
        resumed(&home, text(&guessed, "id"), &[]),
        ["claude", "-p", "x"],
        "no session: the same again"
    );
    for (engine, given, start, resume) in [
        ("gemini", vec!["-p", "hi"], vec!["gemini", "-p", "hi"], vec!["gemini", "--resume", "s-7", "go on"]),
        (
            "codex",
            vec!["codex", "exec", "hi"],
            vec!["codex", "exec", "hi"],
            vec!["codex", "exec", "resume", "s-7", "go on"],
        ),
    ] {
        let mut request = agents.ask(Some(engine), &given);
        request["session"] = json!("s-7");
        let asked = exec(&home, request);
        assert_eq!(called(&home, text(&asked, "id")), start);
        assert_eq!(resumed(&home, text(&asked, "id"), &["go on"]), resume);
    }
    let (status, problem) = home.api("POST", "/api/v1/jobs", Some(agents.ask(Some("cursor"), &["x"])));
    assert_eq!(status, 422);
    assert!(text(&problem, "detail").contains("claude-code, codex, command, gemini"), "{problem}");
    let of_codex = home.json(&["jobs", "list", "--engine", "codex"]);
    assert_eq!(of_codex.as_array().unwrap().len(), 2, "{of_codex}");
}

#[test]
fn engines_of_the_configuration_add_to_the_built_in_ones_and_change_them() {
    let home = Home::with_config(
        "[engines.helper]\nprogram = 'helper'\nstart = ['{program}', '--id={sessionId}', '--', '{command}']\n\
         resume = ['{program}', '--again={sessionId}', '{command}']\nactivity = ['output']\nwaiting_codes = [42]\n\
         [engines.command]\nwaiting_codes = []\n",
    );
    let _server = home.up(&[]);
    let agents = Agents::new(&["helper"]);
    let asked = exec(&home, agents.ask(Some("helper"), &["one", "two"]));
    let session = text(&asked, "agent_session").to_owned();
    assert_eq!(called(&home, text(&asked, "id")), ["helper", &format!("--id={session}"), "--", "one", "two"]);
    assert_eq!(resumed(&home, text(&asked, "id"), &["x"]), ["helper", &format!("--again={session}"), "x"]);
    // Only 42 is a question here, and of a plain command nothing is.
    let sh = |engine: &str, code: &str| {
        exec(&home, json!({"command": ["sh", "-c", format!("exit {code}")], "engine": engine}))
    };
    let plain = sh("command", "3");
    assert_eq!(text(&until_job(&home, text(&plain, "id"), "status", "failed"), "activity"), "processing");
    let shown = home.ok(&["config", "show", "--changed", "--origin"]);
    assert!(shown.contains("engines") && shown.contains("line "), "{shown}");
    assert_eq!(text(&job(&home, text(&asked, "id")), "engine"), "helper");
    for (wrong, told) in [
        ("[engines.a]\nstart = ['x']\n", "engines.start"),
        ("[engines.a]\nwaiting_codes = [256]\n", "from 1 to 255"),
        ("[engines.a]\nactivity = ['smell']\n", "line 2"),
        ("[engines.a]\nshell = 'sh -c'\n", "shell"),
    ] {
        home.configure(wrong);
        let said = home.run(&["config", "show"]);
        assert!(said.code == 2 && said.err.contains(told), "{wrong}: {said:?}");
    }
}

#[test]
fn a_session_that_the_agent_prints_is_gone_on_with_unless_it_looks_like_an_option() {
    let home = Home::new();
    let _server = home.up(&[]);
    let agents = Agents::new(&["codex"]);
    let codex = agents.0.path().join("codex");
    let path = format!("{}:{}", agents.0.path().display(), std::env::var("PATH").unwrap());
    for (session, resumes) in [("th-42", true), ("--yolo", false)] {
        let script = format!(
            "#!/bin/sh\necho '{{\"type\":\"thread.started\",\"thread_id\":\"{session}\"}}'\necho \"$*\"\n"
        );
        std::fs::write(&codex, script).unwrap();
        let asked = exec(&home, json!({"command": ["codex", "exec", "hi"], "env": {"PATH": path}}));
        let id = text(&asked, "id");
        assert_eq!(called(&home, id)[1], "exec hi");
        let known = if resumes { json!(session) } else { Value::Null };
        assert_eq!(job(&home, id)["agent_session"], known);
        let expected = if resumes { "exec resume th-42 go on" } else { "exec hi go on" };
        assert_eq!(resumed(&home, id, &["go on"])[1], expected);
    }
    let odd = json!({"command": ["codex"], "session": "--yolo"});
    assert_eq!(home.api("POST", "/api/v1/jobs", Some(odd)).0, 422);
}
