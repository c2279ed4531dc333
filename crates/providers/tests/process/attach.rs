//! Attached to a job: what it prints comes whole and in order, what is typed arrives, and whoever misbehaves costs
//! nobody else anything.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use parhelia_core::job::{JobAsk, Terminal};
use parhelia_core::sandbox::SandboxSpec;
use parhelia_core::state::TerminationReason;
use parhelia_providers::Provider;
use parhelia_providers::process::attach::{Frames, FromJob, ToJob, send_signal};
use parhelia_providers::process::jobdir::{JobResult, read_json};
use serde_json::{Value, json};

use crate::ground::*;

/// Somebody who is attached.
pub(crate) struct Attached {
    stream: BufReader<UnixStream>,
    frames: Frames,
    answer: Value,
    seen: Vec<u8>,
    offset: u64,
}

impl Attached {
    pub(crate) fn to(ground: &Ground, spec: &SandboxSpec, ask: Value) -> Self {
        let stream = UnixStream::connect(ground.dir(spec).control_socket()).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        assert!(line.contains("\"protocol\":1"), "{line}");
        let mut ask = ask;
        ask["op"] = "attach".into();
        stream.get_mut().write_all(format!("{ask}\n").as_bytes()).unwrap();
        line.clear();
        stream.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        let offset = answer["offset"].as_u64().unwrap_or(0);
        Self { stream, frames: Frames::default(), answer, seen: Vec::new(), offset }
    }

    fn say(&mut self, frame: ToJob) {
        self.stream.get_mut().write_all(&frame.encode()).unwrap();
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.say(ToJob::Input(text.as_bytes().to_vec()));
    }

    /// `None` when the connection has ended.
    fn next(&mut self) -> Option<FromJob> {
        loop {
            if let Some(frame) = self.frames.from_job().unwrap() {
                return Some(frame);
            }
            let mut chunk = [0; 8192];
            match self.stream.read(&mut chunk).unwrap() {
                0 => return None,
                got => self.frames.feed(&chunk[..got]),
            }
        }
    }

    /// Reads on until its output has `text`.
    pub(crate) fn sees(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.seen).contains(text) {
            match self.next() {
                Some(FromJob::Output { offset, bytes }) => self.take(offset, &bytes),
                other => panic!("no '{text}' before {other:?}: {}", String::from_utf8_lossy(&self.seen)),
            }
        }
    }

    fn take(&mut self, offset: u64, bytes: &[u8]) {
        assert_eq!(offset, self.offset, "neither a gap nor a repeat");
        self.seen.extend_from_slice(bytes);
        self.offset += bytes.len() as u64;
    }

    /// Reads to the end of the job.
    pub(crate) fn end(&mut self) -> JobResult {
        loop {
            match self.next() {
                Some(FromJob::Output { offset, bytes }) => self.take(offset, &bytes),
                Some(FromJob::End(result)) => return *result,
                None => panic!("it ended without an end"),
            }
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }
}

pub(crate) fn asking(script: &str, ask: JobAsk) -> SandboxSpec {
    SandboxSpec { job: Some(ask), ..shell(script) }
}

pub(crate) fn with_stdin() -> JobAsk {
    JobAsk { stdin: true, ..JobAsk::default() }
}

fn with_terminal() -> JobAsk {
    JobAsk { terminal: Some(Terminal { rows: 24, cols: 80 }), stdin: true, ..JobAsk::default() }
}

#[tokio::test]
async fn a_terminal_is_a_real_one() {
    let ground = Ground::new();
    let spec = asking(
        "test -t 0 && test -t 1 && test -t 2 && echo all three; stty size; echo term $TERM; : </dev/tty && echo controlling; \
         trap 'echo now $(stty size)' WINCH; trap 'echo interrupted' INT; echo ready; read line; echo got $line; \
         while :; do sleep 0.02; done",
        with_terminal(),
    );
    ground.provider.create(&spec).await.unwrap();
    let mut attached = Attached::to(&ground, &spec, json!({"offset": 0}));
    assert_eq!(attached.answer["terminal"], true);
    assert_eq!(attached.answer["input"], true);
    attached.sees("ready");
    for part in ["all three\r\n", "24 80\r\n", "term xterm-256color\r\n", "controlling\r\n"] {
        assert!(attached.text().contains(part), "{part:?} is not in {}", attached.text());
    }
    attached.types("hello\r");
    attached.sees("got hello\r\n");
    attached.say(ToJob::Resize(Terminal { rows: 30, cols: 100 }));
    attached.sees("now 30 100\r\n");
    attached.types("\x03");
    attached.sees("interrupted");
    // Somebody else with the same size: the program hears of it all the same, to draw its screen again.
    let mut other = Attached::to(&ground, &spec, json!({"tail": 10, "rows": 30, "cols": 100}));
    other.sees("now 30 100\r\n");
    other.say(ToJob::Detach);
    assert_eq!(std::iter::from_fn(|| other.next()).filter(|f| matches!(f, FromJob::End(_))).count(), 0);
    send_signal(&ground.dir(&spec), "QUIT").unwrap();
    let result = attached.end();
    assert_eq!((result.exit_code, result.signal.as_deref()), (None, Some("SIGQUIT")));
    assert_eq!(result.shell_code(), 131);
    assert_eq!(ground.output(&spec).await, attached.text(), "the log has what was seen");
}

#[tokio::test]
async fn input_arrives_whole_and_ends_when_it_is_said_to() {
    let ground = Ground::new();
    let spec = asking("sha256sum; echo after >&2", with_stdin());
    ground.provider.create(&spec).await.unwrap();
    let mut attached = Attached::to(&ground, &spec, json!({"offset": 0}));
    assert_eq!(attached.answer["terminal"], false);
    // Far more than a pipe and all the buffers between hold.
    let piece = vec![b'x'; 50_000];
    for _ in 0..100 {
        attached.say(ToJob::Input(piece.clone()));
    }
    attached.say(ToJob::EndOfInput);
    let result = attached.end();
    assert_eq!(result.exit_code, Some(0));
    let expected = std::process::Command::new("sh")
        .args(["-c", "head -c 5000000 /dev/zero | tr '\\0' x | sha256sum"])
        .output()
        .unwrap();
    assert_eq!(attached.text(), String::from_utf8_lossy(&expected.stdout).into_owned() + "after\n");

    let without = shell("cat; echo end");
    ground.provider.create(&without).await.unwrap();
    ground.ended(&without).await;
    assert_eq!(ground.output(&without).await, "end\n", "without stdin it is empty");
}

#[tokio::test]
async fn under_load_nobody_misses_or_repeats_a_byte_and_nobody_waits_for_the_slow_one() {
    let ground = Ground::rotating(1 << 20);
    let spec = asking("read go; seq 1 300000; echo done", with_stdin());
    ground.provider.create(&spec).await.unwrap();
    let ask = || json!({"offset": 0});
    // One that never reads, one that begins to read when all is over, and one that keeps up.
    let _dead = Attached::to(&ground, &spec, ask());
    let mut late = Attached::to(&ground, &spec, ask());
    let mut quick = Attached::to(&ground, &spec, ask());
    quick.types("go\n");
    let reader = std::thread::spawn(move || {
        quick.sees("done\n");
        quick
    });
    let quick = reader.join().unwrap();
    let expected: String = (1..=300_000).map(|n| format!("{n}\n")).collect::<String>() + "done\n";
    assert!(quick.text() == expected, "{} of {} bytes", quick.seen.len(), expected.len());
    assert_eq!(ground.ended(&spec).await.code, Some(0));
    // Its connection ends with the supervisor; what it has is right, and the rest is in the log.
    while let Some(frame) = late.next() {
        if let FromJob::Output { offset, bytes } = frame {
            late.take(offset, &bytes);
        }
    }
    assert!(expected.starts_with(&late.text()));
    let rest = ground.provider.logs(&reference(&spec), late.offset, 16 << 20).await.unwrap();
    assert_eq!(rest.offset, late.offset);
    assert!(late.text() + &String::from_utf8_lossy(&rest.bytes) == expected);
}

#[tokio::test]
async fn who_falls_behind_reads_the_log_and_catches_up_across_its_parts() {
    let ground = Ground::rotating(1 << 20);
    let spec = asking("seq 1 200000; echo first; read go; seq 1 100000; echo second; read go", with_stdin());
    ground.provider.create(&spec).await.unwrap();
    let mut slow = Attached::to(&ground, &spec, json!({"offset": 0}));
    ground.says(&spec, "first\n").await;
    slow.types("go\n");
    // It reads nothing of two megabytes until all are in the log.
    ground.says(&spec, "second\n").await;
    slow.sees("second\n");
    let count = |n: u32| (1..=n).map(|n| format!("{n}\n")).collect::<String>();
    assert!(slow.text() == count(200_000) + "first\n" + &count(100_000) + "second\n");

    // In the middle, and from the end: at the beginning of a line.
    let mut middle = Attached::to(&ground, &spec, json!({"offset": 1_500_000}));
    middle.sees("second\n");
    assert!(slow.text().ends_with(&middle.text()));
    let mut tail = Attached::to(&ground, &spec, json!({"tail": 30}));
    tail.sees("second\n");
    assert_eq!(tail.text(), "99998\n99999\n100000\nsecond\n");
    slow.types("go\n");
    for one in [&mut slow, &mut middle, &mut tail] {
        assert_eq!(one.end().exit_code, Some(0));
    }
}

#[tokio::test]
async fn nonsense_costs_its_own_connection_only() {
    let ground = Ground::new();
    let spec = asking("echo up; read line; echo got $line", with_stdin());
    ground.provider.create(&spec).await.unwrap();
    let mut good = Attached::to(&ground, &spec, json!({"offset": 0}));
    for nonsense in [&b"i\xff\xff\xff\xff"[..], b"?\0\0\0\0", b"GET / HTTP/1.1\r\n\r\n"] {
        let mut bad = Attached::to(&ground, &spec, json!({"offset": 0}));
        bad.stream.get_mut().write_all(nonsense).unwrap();
        while let Some(frame) = bad.next() {
            assert!(matches!(frame, FromJob::Output { .. }), "{frame:?}");
        }
    }
    let many: Vec<Attached> = (0..10).map(|_| Attached::to(&ground, &spec, json!({}))).collect();
    let refused = many.iter().filter(|one| one.answer["error"].is_string()).count();
    assert_eq!(refused, 3, "seven besides the first");
    drop(many);
    good.types("it\n");
    assert_eq!(good.end().exit_code, Some(0));
    assert_eq!(good.text(), "up\ngot it\n");
}

#[tokio::test]
async fn signals_reach_the_command_and_its_group() {
    let ground = Ground::new();
    let spec = asking(
        "trap 'echo outer; exit 9' INT; sh -c 'trap \"echo inner; exit 0\" INT; echo ready; while :; do sleep 0.02; done'; \
         while :; do sleep 0.02; done",
        with_stdin(),
    );
    ground.provider.create(&spec).await.unwrap();
    let mut attached = Attached::to(&ground, &spec, json!({"offset": 0}));
    attached.sees("ready");
    let refused = send_signal(&ground.dir(&spec), "KILL").unwrap_err().to_string();
    assert!(refused.contains("'stop'"), "{refused}");
    // Behind more input than anybody takes: a signal does not wait for that.
    attached.say(ToJob::Input(vec![b'x'; 60_000]));
    attached.say(ToJob::Input(vec![b'x'; 60_000]));
    send_signal(&ground.dir(&spec), "INT").unwrap();
    assert_eq!(attached.end().exit_code, Some(9));
    assert_eq!(attached.text(), "ready\ninner\nouter\n");
}

#[tokio::test]
async fn what_could_not_be_started_is_told_to_nobody_but_the_record() {
    let ground = Ground::new();
    let mut spec = asking("", with_terminal());
    spec.command = vec!["no-such-command".into()];
    ground.provider.create(&spec).await.unwrap();
    let exit = ground.ended(&spec).await;
    assert_eq!((exit.code, exit.reason), (Some(127), TerminationReason::StartFailed));
    let result: JobResult = read_json(&ground.dir(&spec).result()).unwrap().unwrap();
    assert_eq!(result.output_bytes, 0);
}
