//! `parhelia exec`: the command behaves as if it had been called itself, and outlives everything but its end.

use std::io::{Read, Write};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Home, Said, alive_with, eventually, signal_supervisor};

/// `exec` with what is typed into it.
fn with_input(home: &Home, command: &[&str], input: &[u8]) -> Said {
    let mut child = home
        .command(&[&["exec", "--"], command].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let said = child.wait_with_output().unwrap().into();
    // A command that has ended takes no more.
    let _ = writer.join().unwrap();
    said
}

/// An `exec` that goes on while the test does other things.
struct Running {
    child: Child,
    said: String,
}

impl Running {
    fn start(home: &Home, args: &[&str]) -> Self {
        let mut command = home.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { child: command.spawn().unwrap(), said: String::new() }
    }

    /// Reads on until it has said this.
    fn says(&mut self, text: &str) {
        let out = self.child.stdout.as_mut().unwrap();
        let mut chunk = [0; 4096];
        while !self.said.contains(text) {
            let got = out.read(&mut chunk).unwrap();
            assert!(got > 0, "it ended before '{text}': {}", self.said);
            self.said.push_str(&String::from_utf8_lossy(&chunk[..got]));
        }
    }

    fn types(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        let handle = Pid::from_child(&self.child);
        kill_process(handle, signal).unwrap();
    }

    fn end(mut self) -> Said {
        drop(self.child.stdin.take());
        let before = std::mem::take(&mut self.said);
        let mut said = Said::from(self.child.wait_with_output().unwrap());
        said.out.insert_str(0, &before);
        said
    }
}

/// The one job that is there.
fn the_job(home: &Home) -> serde_json::Value {
    let jobs = home.api("GET", "/api/v1/jobs?all=true", None).1["jobs"].as_array().unwrap().clone();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    jobs[0].clone()
}

#[test]
fn input_output_and_exit_code_are_the_commands() {
    let home = Home::new();
    let _server = home.up(&[]);
    assert_eq!(home.run(&["exec", "--", "true"]).code, 0);
    assert_eq!(home.run(&["exec", "--", "false"]).code, 1);
    assert_eq!(home.run(&["exec", "--", "sh", "-c", "exit 42"]).code, 42);
    let killed = home.run(&["exec", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!((killed.code, killed.err.trim()), (137, "ended by SIGKILL"));

    let echoed = with_input(&home, &["cat"], b"hi\n");
    assert_eq!((echoed.code, echoed.out.as_str(), echoed.err.as_str()), (0, "hi\n", ""));
    // More than every buffer on the way holds, both ways at once.
    let text: String = (0..400_000).map(|n| format!("{n}\n")).collect();
    let echoed = with_input(&home, &["cat"], text.as_bytes());
    assert!(echoed.code == 0 && echoed.out == text, "{} of {} bytes", echoed.out.len(), text.len());
    // It need not be read.
    assert_eq!(with_input(&home, &["sh", "-c", "exit 3"], b"nobody reads this\n").code, 3);

    let nowhere = home.run(&["exec", "--", "no-such-command"]);
    assert_eq!(nowhere.code, 127);
    assert!(nowhere.err.contains("not found in PATH"), "{nowhere:?}");
    let no_directory = home.run(&["exec", "--workdir", "/not/there", "--", "true"]);
    assert_eq!(no_directory.code, 1);
    assert!(no_directory.err.contains("/not/there"), "{no_directory:?}");

    let timed_out = home.run(&["exec", "--timeout", "1s", "--", "sleep", "1000"]);
    assert_eq!(timed_out.code, 143);
    assert!(timed_out.err.contains("timeout of 1 s"), "{timed_out:?}");
}

#[test]
fn it_runs_here_with_what_it_was_given() {
    let home = Home::new();
    let _server = home.up(&[]);
    let work = tempfile::tempdir().unwrap();
    let script = "pwd; echo $MINE $PASSED; test -t 0 || echo no terminal; env | grep -c ^PARHELIA_JOB_ID";
    let args = ["exec", "--name", "mine", "--env", "MINE=1", "--env", "PASSED", "--label", "team=core", "--"];
    let mut command = home.command(&[&args[..], &["sh", "-c", script]].concat());
    let said: Said = command.current_dir(work.path()).env("PASSED", "2").output().unwrap().into();
    let here = work.path().canonicalize().unwrap();
    assert_eq!(said.out, format!("{}\n1 2\nno terminal\n1\n", here.display()), "{said:?}");
    let job = the_job(&home);
    assert_eq!((job["name"].as_str(), job["engine"].as_str()), (Some("mine"), Some("command")), "{job}");
}

#[test]
fn a_signal_to_it_is_a_signal_to_the_command() {
    let home = Home::new();
    let _server = home.up(&[]);
    let script = "for s in INT TERM HUP QUIT; do trap \"echo got $s\" $s; done; echo ready; \
                  while [ ! -e end ]; do sleep 0.02; done; exit 9";
    let work = tempfile::tempdir().unwrap();
    let args = ["exec", "--workdir", work.path().to_str().unwrap(), "--", "sh", "-c", script];
    let mut running = Running::start(&home, &args);
    running.says("ready\n");
    for (signal, name) in
        [(Signal::INT, "INT"), (Signal::TERM, "TERM"), (Signal::HUP, "HUP"), (Signal::QUIT, "QUIT")]
    {
        running.signal(signal);
        running.says(&format!("got {name}\n"));
    }
    std::fs::write(work.path().join("end"), "").unwrap();
    assert_eq!(running.end().code, 9);

    let mut running = Running::start(&home, &["exec", "--", "sh", "-c", "echo ready; exec sleep 1000"]);
    running.says("ready\n");
    running.signal(Signal::TERM);
    assert_eq!(running.end().code, 143);

    // A reader that goes away is told to the command as the kernel would have told it.
    let mut running = Running::start(&home, &["exec", "--", "yes"]);
    running.says("y\n");
    drop(running.child.stdout.take());
    let said = running.end();
    assert_eq!((said.code, said.err.trim()), (141, "ended by SIGPIPE"));
}

#[test]
fn a_server_that_is_killed_changes_nothing_for_whoever_is_attached() {
    let home = Home::new();
    let server = home.up(&[]);
    let script = "echo ready; while read line; do echo \"heard $line\"; done; echo end; exit 7";
    let mut running = Running::start(&home, &["exec", "--", "sh", "-c", script]);
    running.says("ready\n");
    server.kill();
    running.types("one\n");
    running.says("heard one\n");
    let server = home.up(&[]);
    running.types("two\n");
    running.says("heard two\n");
    let job = the_job(&home);
    server.kill();
    running.types("three\n");
    let said = running.end();
    assert_eq!((said.code, said.out.as_str()), (7, "ready\nheard one\nheard two\nheard three\nend\n"));

    let _server = home.up(&[]);
    let container = job["container_id"].as_str().unwrap();
    let seen = home.until_seen(container, "state", "terminated");
    assert_eq!(seen["exit_code"], 7, "it ended while nobody looked, and its end is known: {seen}");
}

#[test]
fn detached_it_prints_the_id_alone_and_goes_on() {
    let home = Home::new();
    let _server = home.up(&[]);
    let id =
        home.ok(&["exec", "--detach", "-o", "name", "--name", "d", "--", "sh", "-c", "echo a; cat; exit 5"]);
    assert_eq!(id.trim().len(), 36, "{id}");
    // Nobody will type into it: its input is empty, so it has ended by itself.
    let again = home.run(&["jobs", "attach", id.trim()]);
    assert_eq!((again.code, again.out.as_str()), (5, "a\n"), "{again:?}");
    let by_name = home.run(&["jobs", "attach", "--from-start", "--no-stdin", "d"]);
    assert_eq!((by_name.code, by_name.out.as_str()), (5, "a\n"), "{by_name:?}");
    assert_eq!(home.run(&["jobs", "attach", "nobody"]).code, 3);
}

#[test]
fn who_only_came_to_look_leaves_the_job_alone_when_told_to_end() {
    let home = Home::new();
    let _server = home.up(&[]);
    let work = tempfile::tempdir().unwrap();
    let script = "echo ready; while [ ! -e end ]; do sleep 0.02; done; exit 9";
    let dir = work.path().to_str().unwrap();
    home.ok(&["exec", "--detach", "--name", "d", "--workdir", dir, "--", "sh", "-c", script]);
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let mut looking = Running::start(&home, &["jobs", "attach", "d"]);
        looking.says("ready\n");
        looking.signal(signal);
        let said = looking.end();
        assert_eq!(said.code, code, "{said:?}");
        assert!(said.err.contains("the job goes on"), "{said:?}");
    }
    std::fs::write(work.path().join("end"), "").unwrap();
    assert_eq!(home.run(&["jobs", "attach", "d"]).code, 9);
}

#[test]
fn a_killed_supervisor_is_told_of_and_not_waited_for() {
    let home = Home::new();
    let _server = home.up(&[]);
    let mut running = Running::start(&home, &["exec", "--", "sh", "-c", "echo ready; sleep 1000"]);
    running.says("ready\n");
    let id = the_job(&home)["id"].as_str().unwrap().to_owned();
    signal_supervisor(&id, Signal::KILL);
    let said = running.end();
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("supervisor of job") && said.err.contains("jobs resume"), "{said:?}");
    eventually("nothing of it is left", || (alive_with(&format!("PARHELIA_JOB_ID={id}")) == 0).then_some(()));
}

#[test]
fn who_needs_a_person_waits_for_what_is_typed() {
    let home = Home::new();
    let _server = home.up(&[]);
    let script = r#"echo '{"type":"needs_human","reason":"yes or no?"}'; read answer; echo "heard $answer"; read more"#;
    let mut running = Running::start(&home, &["exec", "--", "sh", "-c", script]);
    running.says("needs_human");
    let shown = |activity: &str| {
        eventually(&format!("the job is {activity}"), || {
            Some(the_job(&home)).filter(|j| j["activity"] == activity)
        })
    };
    assert_eq!(shown("waiting")["waiting_reason"], "yes or no?");
    let container = the_job(&home)["container_id"].as_str().unwrap().to_owned();
    eventually("a heartbeat says so at once", || {
        let beats = home.json(&["containers", "heartbeats", &container]);
        let told = beats["heartbeats"].as_array().unwrap().clone();
        told.into_iter().find(|beat| beat["metadata"]["waiting_reason"] == "yes or no?")
    });
    running.types("yes\n");
    running.says("heard yes\n");
    assert_eq!(shown("running")["waiting_reason"], serde_json::Value::Null);
    assert_eq!(running.end().code, 1, "its input has ended");
}
