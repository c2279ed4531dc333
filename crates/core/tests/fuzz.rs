//! Everything of the core that reads bytes from outside: bodies and answers of the API, the configuration, and
//! the small texts in them. Nothing panics, an error says something, and what was read is the same after it is
//! written and read again.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test the panic is the message")]

use std::fmt::Debug;

use parhelia_core::api::{
    CleanupRequest, ContainerList, EventList, HeartbeatBatch, Problem, RunRequest, ServerInfo, StopRequest,
};
use parhelia_core::cascade::{Cascade, parse, template};
use parhelia_core::config::Config;
use parhelia_core::heartbeat::Sample;
use parhelia_core::ids::{ContainerId, WorkerId};
use parhelia_core::job::api::ExecRequest;
use parhelia_core::sandbox::{SandboxSpec, VolumeMount};
use parhelia_core::session::api::{
    AnswerReport, AnswerWaits, CancelSession, ClaimTask, Claimed, FireSignal, Inbox, ResumeSession,
    SignalList, StartSession, TaskResult,
};
use parhelia_core::session::{PhaseRow, Session, TaskRow, WaitRow};
use parhelia_core::state::{ContainerState, Health, TerminationReason};
use parhelia_core::time;
use parhelia_fuzz::{Verdict, fuzz, same, says_something};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads it, and what it read once more.
fn json<T: Serialize + DeserializeOwned + PartialEq + Debug>(seeds: &[&str]) {
    fuzz(seeds, &[], |input| match serde_json::from_slice::<T>(input) {
        Ok(value) => {
            let text = serde_json::to_vec(&value).expect("what was read can be written");
            same(&value, serde_json::from_slice(&text));
            Verdict::Accepted
        }
        Err(error) => says_something(&error),
    });
}

#[test]
fn a_request_to_run() {
    json::<RunRequest>(&[
        r#"{"command": ["sleep", "60"]}"#,
        r#"{"provider": "docker", "image": "busybox", "name": "one", "command": ["sh", "-c", "true"], "env": {"A": "1"},
            "workdir": "/", "labels": {"team": "core"}, "resources": {"cpu_cores": 0.5, "memory_mb": 512, "gpu_type": "a100"},
            "task_id": "A-L1-004", "task_title": "Do it", "idle_timeout_seconds": 60, "keep": true, "tmux_session": "s",
            "user": "1000:1000", "network": "host", "volumes": [{"name": "data", "path": "/data", "read_only": true}],
            "secrets": ["token"]}"#,
    ]);
}

#[test]
fn a_request_to_stop() {
    json::<StopRequest>(&["{}", r#"{"grace_seconds": 30, "reason": "no longer needed"}"#]);
}

#[test]
fn a_request_to_clean_up() {
    json::<CleanupRequest>(&[
        r#"{"kind": "orphans"}"#,
        r#"{"kind": "dead", "older_than_seconds": 3600, "ids": ["c-01k9z3q8xw4f7m2a", "c-01k9z3q8xw4f7m2b"]}"#,
    ]);
}

#[test]
fn a_request_for_a_job() {
    json::<ExecRequest>(&[
        r#"{"command": ["sleep", "60"]}"#,
        r#"{"provider": "docker", "image": "busybox", "name": "one", "command": ["sh"], "env": {"A": "1"}, "workdir": "/",
            "labels": {"team": "core"}, "resources": {"memory_mb": 512}, "secrets": ["s"], "engine": "claude", "session": "x",
            "terminal": {"rows": 24, "cols": 80}, "stdin": true, "timeout_seconds": 60, "keep": true}"#,
    ]);
}

#[test]
fn what_is_asked_of_sessions() {
    json::<StartSession>(&[
        "{}",
        r#"{"cascade": {"cascade_id": "c", "phases": []}, "inputs": {"n": 1.5}, "input_texts": {"m": "2"}, "name": "n"}"#,
        r#"{"text": "cascade_id: c", "workdir": "/w", "env": {"A": "1"}, "provider": "docker", "resumable": true,
            "auto_resume": false}"#,
    ]);
    json::<CancelSession>(&["{}", r#"{"reason": "r", "force": true, "grace_seconds": 5}"#]);
    json::<ResumeSession>(&["{}", r#"{"from": "a"}"#]);
    json::<FireSignal>(&[
        r#"{"name": "go"}"#,
        r#"{"name": "go", "session": "s-1", "payload": {"x": [1, null]}}"#,
    ]);
}

const SESSION: &str = r#"{"session_id": "sess-01k9z3q8xw4f7m2a", "cascade_id": "c", "status": "blocked", "current_phase": "ask",
    "depth": 0, "blocked_type": "hitl", "blocked_on": "choice", "blocked_since": "2026-01-21T14:30:00Z",
    "heartbeat_at": "2026-01-21T14:30:00Z", "heartbeat_lease_seconds": 60, "cancel_requested": false, "cancel_force": false,
    "resumable": true, "auto_resume": true, "started_at": "2026-01-21T14:30:00Z", "updated_at": "2026-01-21T14:30:00Z",
    "created_by": "ann", "metadata": {"a": 1}, "owner_id": "o", "owner_epoch": 1}"#;

const TASK: &str = r#"{"id": "ta-01k9z3q8xw4f7m2a", "session_id": "sess-01k9z3q8xw4f7m2a", "phase": "work", "position": 0, "key": "a",
    "title": "A", "state": "pending", "attempt": 1, "retry_count": 1, "crash_count": 0, "failure_reason": "task_failed",
    "retry_at": "2026-01-21T14:30:00Z", "exit_code": 3, "outputs": {"n": 1}}"#;

const WAIT: &str = r#"{"id": "wait-01k9z3q8xw4f7m2a", "session_id": "sess-01k9z3q8xw4f7m2a", "phase": "ask", "task_id": null,
    "wait_type": "hitl", "wait_on": "choice", "description": "Which?", "question": {"kind": "choice", "options": ["a", "b"]},
    "on_timeout": "fail", "default_value": null, "since": "2026-01-21T14:30:00Z", "deadline": "2026-01-21T15:30:00Z",
    "status": "open", "answer": null, "answered_by": null, "answer_reason": null, "answered_at": null, "signal_id": null}"#;

#[test]
fn the_inbox() {
    json::<AnswerWaits>(&[
        r#"{"ids": ["wt-1", "s-2"], "verdict": "answer", "answer": {"a": 1}}"#,
        r#"{"ids": ["wt-1"], "verdict": "answer", "text": "yes", "reason": "r"}"#,
        r#"{"ids": [], "verdict": "deny", "choices": ["a", "b"]}"#,
    ]);
    json::<AnswerReport>(&[&format!(
        r#"{{"answered": [{WAIT}], "refused": [{{"id": "x", "reason": "somebody else was first"}}], "notes": ["n"]}}"#
    )]);
    json::<Inbox>(&[
        r#"{"items": [{"id": "wait-01k9z3q8xw4f7m2a", "type": "hitl", "session_id": "sess-01k9z3q8xw4f7m2a", "cascade_id": "c",
        "phase": "ask", "task": null, "description": "Which?", "session_name": null, "question": {"kind": "text"},
        "fits": "a text", "command": "parhelia inbox", "since": "2026-01-21T14:30:00Z", "deadline": null, "on_timeout": "fail",
        "waiting": 3}], "jobs": [], "more": false, "blocked_elsewhere": 1}"#,
    ]);
}

#[test]
fn what_workers_say_and_are_told() {
    json::<ClaimTask>(&[r#"{"worker_id": "w-01k9z3q8xw4f7m2a"}"#]);
    json::<Claimed>(&[
        r#"{"task": null, "finished": true}"#,
        r#"{"task": {"task_id": "t-1", "attempt": 2, "key": "a", "command": ["true"], "env": {"A": "1"}, "workdir": "/w",
            "verify": ["test", "-e", "x"], "timeout_seconds": 60}, "finished": false}"#,
    ]);
    json::<TaskResult>(&[
        r#"{"worker_id": "w-1", "exit_code": 0}"#,
        r#"{"worker_id": "w-1", "exit_code": null, "verify_exit_code": 1, "timed_out": true, "output": "{}", "truncated": true}"#,
    ]);
}

#[test]
fn rows_of_sessions() {
    json::<Session>(&[SESSION]);
    json::<WaitRow>(&[WAIT]);
    json::<PhaseRow>(&[
        r#"{"position": 1, "name": "a", "status": "completed", "started_at": "2026-01-21T14:30:00Z",
        "completed_at": "2026-01-21T14:31:00Z", "outputs": {"n": 1}, "error": null, "child_session_id": null}"#,
    ]);
    json::<SignalList>(&[
        r#"{"signals": [{"id": "sig-01k9z3q8xw4f7m2a", "name": "go", "session_id": null, "payload": {"x": 1},
        "fired_at": "2026-01-21T14:30:00Z", "fired_by": "ann", "deliveries": 0, "delivered_at": null}], "next": null}"#,
    ]);
    json::<TaskRow>(&[TASK]);
}

const SAMPLE: &str = r#"{"container_id": "c-01k9z3q8xw4f7m2a", "timestamp": "2026-01-21T14:30:00Z", "delayed_seconds": 1.5,
    "cpu_percent": 12.5, "memory_percent": 40.25, "memory_mb": 512, "disk_percent": 3, "uptime_seconds": 60,
    "tmux_active": true, "claude_responsive": false, "metadata": {"host": "a", "n": [1, {"x": null}]}}"#;

#[test]
fn heartbeats() {
    json::<Sample>(&[SAMPLE, r#"{"container_id": "c-01k9z3q8xw4f7m2a"}"#]);
    json::<HeartbeatBatch>(&[
        r#"{"heartbeats": []}"#,
        &format!(r#"{{"heartbeats": [{SAMPLE}, {{"container_id": "c-01k9z3q8xw4f7m2b"}}]}}"#),
    ]);
}

#[test]
fn a_stored_specification() {
    json::<SandboxSpec>(&[
        r#"{"container_id": "c-01k9z3q8xw4f7m2a", "instance_id": "i", "command": ["true"],
        "resources": {}, "env": {"A": "1"}, "volumes": [{"name": "v", "path": "/v"}], "secrets": ["s"], "user": "u"}"#,
    ]);
}

/// What a client reads: of an older or newer server, or of whoever answers in its place.
#[test]
fn answers() {
    json::<Problem>(&[
        r#"{"type": "urn:x", "title": "Not Found", "status": 404, "detail": "d", "code": "c", "fix": "f"}"#,
    ]);
    json::<ServerInfo>(&[
        r#"{"version": "0.1.0", "instance_id": "i", "home": "/h", "home_id": "h", "owner_id": "o",
        "epoch": 3, "leads": true, "started_at": "2026-01-21T14:30:00Z", "listen": null, "on_demand": true,
        "providers": ["process"]}"#,
    ]);
    json::<EventList>(&[
        r#"{"events": [{"id": 1, "timestamp": "2026-01-21T14:30:00Z", "event_type": "container_created",
        "container_id": "c-01k9z3q8xw4f7m2a", "worker_id": null, "task_id": null, "session_id": null, "old_value": "none",
        "new_value": "created", "message": "m", "details": {"by": "x"}, "source": "user", "severity": "info"}], "last_id": 1}"#,
    ]);
    json::<ContainerList>(&[
        r#"{"containers": [], "totals": {"total": 0, "running": 0, "orphaned": 0, "suspected": 0,
        "cost_accrued_usd": 0.5, "cost_per_hour_usd": 1e-3, "foreign": 0, "foreign_cost_per_hour_usd": 0}}"#,
        r#"{"containers": [], "next": "c-01k9z3q8xw4f7m2a"}"#,
    ]);
}

#[test]
fn a_configuration_and_no_error_shows_a_password() {
    const SECRET: &str = "s3cret";
    let seeds = [
        "",
        "[server]\nlisten = '127.0.0.1:7717'\nidle_exit_seconds = 600\nmax_body_bytes = 2097152\n",
        "[server]\ndatabase_url = 'postgres://ann:s3cret@db.example/parhelia?sslmode=verify-full'\n",
        "fake_world = '/tmp/w'\n[reconciler]\npoll_interval_seconds = 60\nmax_silent_hours = 4.5\n\
         auto_terminate_orphans = true\n[health]\ndead_after_seconds = 600\n",
        "[docker]\nenabled = 'auto'\nhost = 'unix:///var/run/docker.sock'\nsupervisor = 'mount'\npull = true\n",
        "[[prices]]\nprovider = 'modal'\neffective_from = '2026-01-01T00:00:00Z'\nsandbox_hour = 0.5\n\
         gpu_second = { a100 = 0.001 }\n[retention]\nevent_days = 90\n",
    ];
    let words =
        ["[server]\n", "[[prices]]\n", "=", "''", "inf", "nan", "1e99", "{}", "[]", "true", "#", "\"\"\""];
    fuzz(&seeds, &words, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return Verdict::Refused };
        match Config::parse(text) {
            Ok(config) => {
                let _ = (config.ladder(), config.price_table());
                let mut shown = config.clone();
                // It is handed to the store and never written anywhere.
                shown.server.database_url = None;
                let json = serde_json::to_string(&shown).expect("what was read can be written");
                same(&shown, serde_json::from_str(&json));
                assert!(!format!("{config:?}").contains(SECRET) || !text.contains("ann:s3cret@"));
                Verdict::Accepted
            }
            Err(error) => {
                let whole = text.contains("://ann:s3cret@db.example/");
                assert!(!whole || !error.to_string().contains(SECRET), "a password in an error: {error}");
                says_something(&error)
            }
        }
    });
}

/// A text that is parsed and shown again.
fn text<T: PartialEq + Debug, E: ToString + Debug>(
    seeds: &[&str],
    words: &[&str],
    parse: impl Fn(&str) -> Result<T, E>,
    show: impl Fn(&T) -> String,
) {
    fuzz(seeds, words, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return Verdict::Refused };
        match parse(text) {
            Ok(value) => {
                same(&value, parse(&show(&value)));
                Verdict::Accepted
            }
            Err(error) => says_something(&error),
        }
    });
}

#[test]
fn ids() {
    text(&["c-01k9z3q8xw4f7m2a", "c-abcd"], &["c-", "w-"], ContainerId::parse, ToString::to_string);
    text(&["w-01k9z3q8xw4f7m2a"], &["c-", "w-"], WorkerId::parse, ToString::to_string);
}

#[test]
fn words_of_the_domain() {
    let words = ["running", "dead", "oom", "manual", "terminated"];
    text(&["running", "terminated"], &words, str::parse::<ContainerState>, ToString::to_string);
    text(&["healthy", "dead"], &words, str::parse::<Health>, ToString::to_string);
    text(&["completed", "oom"], &words, str::parse::<TerminationReason>, ToString::to_string);
}

#[test]
fn a_volume() {
    text(&["data:/data", "data:/data:ro"], &[":ro", ":rw", ":", "/"], str::parse::<VolumeMount>, |volume| {
        format!("{}:{}{}", volume.name, volume.path, if volume.read_only { ":ro" } else { ":rw" })
    });
}

#[test]
fn a_moment() {
    let seeds = ["2026-01-21T14:30:00.123Z", "2026-01-21T14:30:00+02:00", "2026-01-21 14:30:00Z"];
    text(
        &seeds,
        &["Z", "+", "00", "T", ".5", "9999"],
        |text| time::from_text(text).map(time::to_millis),
        |at| time::to_text(*at),
    );
}

/// Whatever is in a cascade file: nothing panics, a mistake says something and where, and a definition stays the same.
#[test]
fn a_cascade() {
    let seeds = [
        "cascade_id: c\ninputs: {n: {type: number, default: 1}}\nphases:\n  - name: a\n    run: echo $X\n    env: {X: '{{ inputs.n }}'}\n    timeout: 5m\n  - name: b\n    needs: [a]\n    set: {v: '{{ outputs.a.x }}'}\n",
        "{\"cascade_id\": \"c\", \"phases\": [{\"name\": \"a\", \"tasks\": [{\"id\": \"t\", \"run\": [\"true\"], \"retry\": {\"max\": 2}}]}]}",
        "cascade_id: c\nphases:\n- {name: a, await: {hitl: {kind: text, question: q, pattern: '[a-z]+'}}, timeout: 2h}\n- {name: b, when: inputs.x, cascade: {definition: {cascade_id: d, phases: [{name: x, set: {}}]}}}\ninputs: {x: {default: y}}\n",
        "cascade_id: &a c\nphases: [{name: *a, agent: {engine: e, prompt: >\n  folded\n  text\n}}]\n",
    ];
    let words = [
        "{{",
        "}}",
        "{%",
        "%}",
        "- ",
        ": ",
        "&a ",
        "*a",
        "|\n",
        ">\n",
        "---\n",
        "<<: ",
        "!!str ",
        "needs: [a]",
        "[]",
        "{}",
        "null",
        "1e999",
        "\t",
        "'",
        "\"",
    ];
    fuzz(&seeds, &words, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return Verdict::Refused };
        match parse::read(text) {
            Ok(cascade) => {
                let json = serde_json::to_value(&cascade).expect("what was read can be written");
                same(&cascade, serde_json::from_value::<Cascade>(json.clone()));
                same(&cascade, parse::from_value(&json));
                assert_eq!(parse::check(&cascade), []);
                Verdict::Accepted
            }
            Err(mistakes) => {
                for mistake in &mistakes {
                    assert!(!mistake.message.is_empty(), "{mistake:?}");
                }
                says_something(mistakes.first().expect("an error has a mistake"))
            }
        }
    });
}

#[test]
fn a_template() {
    let scope = template::Scope::default()
        .with("inputs", serde_json::json!({ "n": 3, "s": "x", "l": [1, 2], "m": { "k": null } }));
    let seeds = [
        "{{ inputs.n }}",
        "a {{ inputs.s }} b",
        "{% for x in inputs.l %}{{ x }}{% endfor %}",
        "{{ inputs.m | tojson }}",
        "{{ inputs.n + 2 if inputs.s == 'x' else inputs.l | length }}",
    ];
    let words = [
        "{{", "}}", "{%", "%}", "inputs", ".", "|", "~", "*", "[0]", "range(3)", "'", "not ", "{#", "#}",
        "loop",
    ];
    fuzz(&seeds, &words, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return Verdict::Refused };
        let (_, _) = (template::names(text), template::holds(text, &scope));
        match template::value(&serde_json::Value::String(text.to_owned()), &scope) {
            Ok(_) => Verdict::Accepted,
            Err(error) => says_something(&error),
        }
    });
}
