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
use parhelia_core::sandbox::{SandboxSpec, VolumeMount};
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
