//! `parhelia run`: attached and detached, at a terminal and without one, and whatever becomes of the server.

use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::attach::Tmux;
use crate::harness::{Home, Said, alive_with, eventually, text};

fn put(home: &Home, name: &str, text: &str) -> String {
    let path = home.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

const APPROVAL: &str = "cascade_id: gate\nphases:\n  - {name: before, run: 'true'}\n  - {name: gate, await: {approval: go on}}\n  - {name: after, run: echo done, outputs: {said: '{{ stdout | trim }}'}}\noutputs: {said: '{{ outputs.after.said }}'}\n";

fn begin(home: &Home, args: &[&str]) -> Child {
    home.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn the_session(home: &Home, status: &str) -> Value {
    eventually(&format!("a session is {status}"), || {
        let sessions = home.json(&["sessions", "--all"]);
        let mine = sessions.as_array()?.iter().find(|session| session["status"] == status)?;
        Some(mine.clone())
    })
}

fn open_wait(home: &Home) -> String {
    eventually("something waits for a person", || {
        let inbox = home.json(&["inbox"]);
        let items = inbox.as_array().or_else(|| inbox["items"].as_array()).unwrap().clone();
        Some(text(items.first()?, "id").to_owned())
    })
}

#[test]
fn it_ends_as_its_session_does() {
    let home = Home::new();
    let _server = home.up(&[]);
    let good = put(
        &home,
        "good.yaml",
        "cascade_id: good\ninputs: {n: {type: number}}\nphases:\n  - {name: a, run: echo one}\n  - {name: b, set: {v: '{{ inputs.n + 1 }}'}}\noutputs: {v: '{{ outputs.b.v }}'}\n",
    );
    let said = home.run(&["run", &good, "-i", "n=41"]);
    assert_eq!((said.code, said.out.as_str()), (0, "v: 42\n"), "{said:?}");
    assert!(said.err.contains("phase a begins") && said.err.contains("phase a completed"), "{said:?}");

    let bad = put(&home, "bad.yaml", "cascade_id: bad\nphases:\n  - {name: a, run: exit 3}\n");
    let said = home.run(&["run", &bad]);
    assert_eq!(said.code, 5, "{said:?}");
    assert!(said.err.contains("phase a failed") && said.err.contains("sessions resume"), "{said:?}");

    // What is wrong with the file or the inputs starts nothing.
    let count = home.json(&["sessions", "--all"]).as_array().unwrap().len();
    let wrong = put(&home, "wrong.yaml", "cascade_id: c\nphases:\n  - {name: a}\n");
    let said = home.run(&["run", &wrong]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("wrong.yaml:3:5: a phase needs one of"), "{said:?}");
    let said = home.run(&["run", &wrong, "-o", "json"]);
    let error: Value = serde_json::from_str(&said.err).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    assert_eq!((said.code, &error["mistakes"][0]["line"]), (2, &Value::from(3)), "{said:?}");
    let said = home.run(&["run", "nowhere.yaml"]);
    assert_eq!((said.code, said.err.as_str()), (3, "error: there is no file nowhere.yaml\n"));
    let said = home.run(&["run", &good, "-i", "m=1"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("'m' is no input of good") && said.err.contains("'n' is missing"), "{said:?}");
    assert_eq!(home.run(&["run", &good, "-i", "n=x"]).code, 2);
    assert_eq!(home.json(&["sessions", "--all"]).as_array().unwrap().len(), count);

    // From standard input, and with a limit to the patience.
    let gate = "cascade_id: gate\nphases:\n  - {name: gate, await: {approval: go on}}\n";
    let gate = put(&home, "gate.yaml", gate);
    let said: Said = home
        .command(&["run", "-", "--timeout", "4s"])
        .stdin(std::fs::File::open(&gate).unwrap())
        .output()
        .unwrap()
        .into();
    assert_eq!(said.code, 6, "{said:?}");
    assert!(said.err.contains("parhelia inbox approve wait-"), "{said:?}");
}

#[test]
fn without_a_terminal_every_change_is_a_line() {
    let home = Home::new();
    let _server = home.up(&[]);
    let tried = home.path().join("tried");
    let file = put(
        &home,
        "told.yaml",
        &format!(
            "cascade_id: told\nphases:\n  - {{name: flaky, run: 'test -e {0} || {{ touch {0}; exit 1; }}', retry: {{max: 1, base_seconds: 0.01}}}}\n  - {{name: gate, await: {{approval: go on, on_timeout: continue}}, timeout: 1}}\n",
            tried.display()
        ),
    );
    let said = home.run(&["run", &file]);
    assert_eq!(said.code, 0, "{said:?}");
    let mut rest = said.err.as_str();
    for line in [
        "phase flaky begins",
        "phase flaky: attempt 1 failed",
        "phase flaky completed",
        "phase gate begins",
        "phase gate: waits for an approval: go on",
        "phase gate: nobody answered in time; it goes on without it",
        "phase gate completed",
    ] {
        let at = rest.find(line).unwrap_or_else(|| panic!("'{line}' in its place: {said:?}"));
        rest = &rest[at..];
    }
}

#[test]
fn detached_it_prints_the_id_alone_and_passes_on_what_it_was_told() {
    let home = Home::new();
    let _server = home.up(&[]);
    let gate = put(&home, "gate.yaml", APPROVAL);
    let out = home.ok(&["run", &gate, "--detach", "-o", "name", "--name", "mine", "--no-auto-resume"]);
    let id = out.trim();
    assert_eq!(out, format!("{id}\n"));
    let session = home.json(&["sessions", "show", "mine"]);
    assert_eq!((text(&session, "session_id"), &session["auto_resume"]), (id, &Value::Bool(false)));
    assert_eq!(home.run(&["run", &gate, "--provider", "nowhere"]).code, 2);
    // Its commands run where it was called, with the variables that it was given.
    let here = put(
        &home,
        "here.yaml",
        "cascade_id: here\nphases:\n  - {name: a, run: 'echo \"$PWD $MINE\"', outputs: {said: '{{ stdout | trim }}'}}\noutputs: {said: '{{ outputs.a.said }}'}\n",
    );
    let dir = home.path().canonicalize().unwrap();
    let out =
        home.command(&["run", &here, "-e", "MINE=yes", "-o", "json"]).current_dir(&dir).output().unwrap();
    let session: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(session["outputs"]["said"], format!("{} yes", dir.display()), "{session}");
}

#[test]
fn the_death_of_the_server_does_not_end_it() {
    let home = Home::new();
    let server = home.up(&[]);
    let gate = put(&home, "gate.yaml", APPROVAL);
    let running = begin(&home, &["run", &gate, "-o", "json"]);
    open_wait(&home);
    server.kill();
    let _second = home.up(&[]);
    let wait = open_wait(&home);
    home.ok(&["inbox", "approve", &wait]);
    let said: Said = running.wait_with_output().unwrap().into();
    assert_eq!(said.code, 0, "{said:?}");
    let session: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&session["status"], &session["outputs"]["said"]), (&"completed".into(), &"done".into()));
}

#[test]
fn one_that_nobody_may_go_on_with_is_left_with_a_word() {
    let home = Home::new();
    let server = home.up(&[]);
    let gate = put(&home, "gate.yaml", APPROVAL);
    let running = begin(&home, &["run", &gate, "--no-auto-resume"]);
    open_wait(&home);
    server.kill();
    let _second = home.up(&[]);
    let said: Said = running.wait_with_output().unwrap().into();
    assert_eq!(said.code, 5, "{said:?}");
    let session = the_session(&home, "orphaned");
    assert!(
        said.err.contains(&format!("'parhelia sessions resume {}'", text(&session, "session_id"))),
        "{said:?}"
    );
}

#[test]
fn without_a_terminal_ctrl_c_detaches_and_says_how_to_cancel() {
    let home = Home::new();
    let _server = home.up(&[]);
    let gate = put(&home, "gate.yaml", APPROVAL);
    let running = begin(&home, &["run", &gate]);
    open_wait(&home);
    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    let said: Said = running.wait_with_output().unwrap().into();
    assert_eq!(said.code, 130, "{said:?}");
    let session = the_session(&home, "blocked");
    assert!(
        said.err.contains(&format!("'parhelia sessions cancel {}' ends it", text(&session, "session_id"))),
        "{said:?}"
    );
}

#[test]
fn at_a_terminal_there_is_a_tree_and_ctrl_c_asks() {
    let home = Home::new();
    let _server = home.up(&[]);
    let mark = home.mark();
    let long = put(
        &home,
        "long.yaml",
        &format!(
            "cascade_id: long\nphases:\n  - name: level\n    tasks:\n      - {{id: quick, run: 'true'}}\n      - {{id: slow, run: sleep 1000, env: {{{mark}: '1'}}}}\n"
        ),
    );
    let tmux = Tmux::new(&home);
    tmux.runs(&format!("parhelia run {long}; echo code $?"));
    tmux.shows("└─ slow");
    tmux.until("the quick one is done and the slow one runs", |screen| {
        screen.lines().any(|line| line.contains("quick") && line.contains("completed"))
            && screen.lines().any(|line| line.contains("slow") && line.contains("running"))
    });
    // Enter goes on, d leaves it, and it runs.
    tmux.press(&["C-c"]);
    tmux.shows("[c]ancel it, [d]etach");
    tmux.press(&["Enter"]);
    tmux.until("it goes on, drawn anew", |screen| !screen.contains("[d]etach") && screen.contains("slow"));
    tmux.press(&["C-c"]);
    tmux.shows("[c]ancel it, [d]etach");
    tmux.types("d");
    tmux.shows("code 130");
    let session = the_session(&home, "running");
    let id = text(&session, "session_id");
    assert!(alive_with(&format!("{mark}=1")) > 0);
    home.ok(&["sessions", "cancel", id, "--force", "--wait"]);
    assert_eq!(alive_with(&format!("{mark}=1")), 0);

    // c ends it, and stays until everything is gone.
    tmux.runs(&format!("parhelia run {long}; echo code $?"));
    tmux.until("it runs again", |screen| {
        screen.lines().any(|line| line.contains("slow") && line.contains("running"))
    });
    tmux.press(&["C-c"]);
    tmux.shows("[c]ancel it, [d]etach");
    tmux.types("c");
    tmux.shows("code 130");
    assert_eq!(alive_with(&format!("{mark}=1")), 0);

    // What it waits for, and the whole command that answers it, also where the question is long and the terminal not.
    tmux.tell(&["resize-window", "-x", "80", "-y", "24"]);
    let why = "Everything was built and tested. Shall it go out to everybody, or to some first?";
    let gate = put(&home, "gate.yaml", &APPROVAL.replace("go on", &format!("go on, description: '{why}'")));
    tmux.runs(&format!("parhelia run {gate}; echo code $?"));
    let wait = open_wait(&home);
    tmux.until("the command stands alone", |screen| {
        screen.lines().any(|line| line.trim() == format!("parhelia inbox approve {wait}"))
            && screen.contains("or to some first?")
    });
    tmux.press(&["C-c"]);
    tmux.ends_with("[c]ancel it, [d]etach and let it run, or Enter to go on:");
    tmux.press(&["Enter"]);
    tmux.until("it goes on, drawn anew", |screen| !screen.contains("[d]etach") && screen.contains(&wait));
    // A line each in the list too: what does not fit is cut, and told to be.
    let list = |tmux: &Tmux, command: &str| {
        tmux.runs(command);
        tmux.until("a line with the name and the question", |screen| {
            let titled = screen.lines().any(|line| line.starts_with("SESSION") && line.contains("WAITS FOR"));
            titled && screen.lines().any(|line| line.starts_with("sess-") && line.ends_with('…'))
        });
    };
    let other = Tmux::new(&home);
    other.tell(&["resize-window", "-x", "80", "-y", "24"]);
    list(&other, "parhelia sessions");
    list(&other, "parhelia sessions watch");
    home.ok(&["inbox", "approve", &wait]);
    tmux.shows("said: done");
    tmux.shows("code 0");
}
