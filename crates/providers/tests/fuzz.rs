//! The files of a job are written by supervisors of any age, by crashes, and by whoever has the disk. Whatever is
//! in one: nothing panics, the error names the file, and what was read is the same after it is written and read
//! again.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test the panic is the message")]

use std::fmt::Debug;

use parhelia_fuzz::{Verdict, fuzz, same, says_something};
use parhelia_providers::process::jobdir::{
    AliveFile, Durability, JobResult, JobSpec, Sentinel, StopRequest, read_json, write_json,
};
use parhelia_providers::process::jobs::parse;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

fn file<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, seeds: &[&str], look: impl Fn(&T)) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(name);
    fuzz(seeds, &["starting", "running", "completed", "oom"], |input| {
        std::fs::write(&path, input).expect("a file");
        match read_json::<T>(&path) {
            Ok(value) => {
                let value = value.expect("it is there");
                look(&value);
                write_json(&path, &value, Durability::Atomic).expect("what was read can be written");
                same(&value, read_json(&path).map(|again| again.expect("it is there")));
                Verdict::Accepted
            }
            Err(error) => {
                assert!(error.to_string().contains(name), "{error}");
                says_something(&error)
            }
        }
    });
}

#[test]
fn the_sentinel() {
    file::<Sentinel>(
        ".sentinel.json",
        &[
            r#"{"jobId": "a3bb189e-8bf9-3888-9912-ace4e6543002", "status": "running",
                "lastHeartbeat": "2025-10-15T10:30:45.123Z", "workspacePath": "/w", "sessionId": "abc",
                "agentEngine": "claude-code", "startedAt": "2025-10-15T10:30:00.000Z", "progressPercent": 12.5,
                "lastProgress": "2025-10-15T10:30:45.000Z"}"#,
            r#"{"jobId": "a3bb189e-8bf9-3888-9912-ace4e6543002", "status": "starting",
                "lastHeartbeat": "2025-10-15T10:30:45.123Z", "workspacePath": "/w", "sessionId": null,
                "agentEngine": "sh", "startedAt": "2025-10-15T10:30:00.000Z"}"#,
        ],
        |_| {},
    );
}

/// The loop reads less of a sentinel than the whole, and never anything else.
#[test]
fn what_is_judged_of_a_sentinel() {
    let job: Uuid = "a3bb189e-8bf9-3888-9912-ace4e6543002".parse().expect("an id");
    let seeds = [
        r#"{"jobId": "a3bb189e-8bf9-3888-9912-ace4e6543002", "status": "waiting",
            "lastHeartbeat": "2025-10-15T10:30:45.123Z", "workspacePath": "/w", "sessionId": "a\u00e9c",
            "agentEngine": "sh", "startedAt": "2025-10-15T10:30:00.000Z", "waitingReason": "which \"one\"?"}"#,
        "",
    ];
    fuzz(&seeds, &["running", "waiting", "processing"], |input| {
        let whole = serde_json::from_slice::<Sentinel>(input).ok().filter(|whole| whole.job_id == job);
        match (parse(input, job), whole) {
            (Ok(beat), whole) => {
                if let Some(whole) = whole {
                    assert_eq!((beat.heartbeat_at, beat.session), (whole.last_heartbeat, whole.session_id));
                    assert_eq!(beat.waiting_reason, whole.waiting_reason);
                }
                Verdict::Accepted
            }
            (Err(why), None) => says_something(&why),
            (Err(why), Some(whole)) => panic!("{why}: {whole:?}"),
        }
    });
}

#[test]
fn the_record_of_the_end() {
    file::<JobResult>(
        "result.json",
        &[
            r#"{"protocol": 1, "jobId": "a3bb189e-8bf9-3888-9912-ace4e6543002", "containerId": "c-01k9z3q8xw4f7m2a",
                "exitCode": 0, "signal": null, "reason": "completed", "message": null,
                "startedAt": "2025-10-15T10:30:00.000Z", "endedAt": "2025-10-15T10:31:00.000Z", "outputBytes": 100,
                "lostBytes": 0}"#,
            r#"{"protocol": 1, "jobId": "a3bb189e-8bf9-3888-9912-ace4e6543002", "containerId": "c-01k9z3q8xw4f7m2a",
                "exitCode": null, "signal": "SIGKILL", "reason": "oom", "message": "m",
                "startedAt": "2025-10-15T10:30:00.000Z", "endedAt": "2025-10-15T10:31:00.000Z", "outputBytes": 100,
                "lostBytes": 7}"#,
        ],
        |result| drop(result.reason().to_string()),
    );
}

#[test]
fn the_wish_to_stop() {
    file::<StopRequest>(
        ".stop",
        &[r#"{"graceSeconds": 10, "reason": "manual", "requestedAt": "2025-10-15T10:30:45.123Z"}"#],
        |_| {},
    );
}

#[test]
fn the_note_beside_the_lock() {
    file::<AliveFile>(
        ".alive",
        &[
            r#"{"protocol": 1, "bootId": "b", "machineId": "m", "device": 2049, "inode": 131}"#,
            r#"{"protocol": 1, "bootId": "b", "machineId": null}"#,
        ],
        |_| {},
    );
}

#[test]
fn the_specification_of_a_job() {
    file::<JobSpec>(
        "spec.json",
        &[r#"{"protocol": 1, "jobId": "a3bb189e-8bf9-3888-9912-ace4e6543002", "home": "/h",
            "createdAt": "2025-10-15T10:30:45.123Z", "heartbeatIntervalSeconds": 30, "outputRotateBytes": 67108864,
            "sandbox": {"container_id": "c-01k9z3q8xw4f7m2a", "instance_id": "i", "command": ["sleep", "60"],
                "env": {"A": "1"}, "labels": {"team": "core"}, "resources": {"cpu_cores": 0.5, "memory_mb": 512},
                "idle_timeout_seconds": 60, "volumes": [{"name": "v", "path": "/v"}], "secrets": ["s"]}}"#],
        |_| {},
    );
}
