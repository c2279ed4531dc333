//! A job whose disk fills up, and one whose directory can no longer be written: the command never waits for the disk,
//! what was lost is marked in its place, and the end is known all the same.

use std::path::Path;

use serde_json::{Value, json};

use crate::disk::{Disk, ReadOnly};
use crate::harness::{Home, eventually, text};

/// A job that prints numbered lines, each kept outside too, until `gate` is there; then `exit 5`.
fn talker(home: &Home, outside: &Path) -> (String, String) {
    let (count, gate) = (outside.join("count"), outside.join("gate"));
    // A kilobyte a line: a few megabytes in a moment.
    let script = format!(
        "pad=$(printf '%01000d' 0); i=0; while [ ! -e {} ]; do i=$((i+1)); echo $i $pad; echo $i > {}.new; \
         mv {}.new {}; done; exit 5",
        gate.display(),
        count.display(),
        count.display(),
        count.display(),
    );
    let (status, job) = home.api("POST", "/api/v1/jobs", Some(json!({ "command": ["sh", "-c", script] })));
    assert!((200..300).contains(&status), "{job}");
    (text(&job, "id").to_owned(), text(&job, "container_id").to_owned())
}

fn counted(outside: &Path) -> u64 {
    let read = || std::fs::read_to_string(outside.join("count")).ok()?.trim().parse().ok();
    eventually("the command counts", read)
}

fn job(home: &Home, id: &str) -> Value {
    home.api("GET", &format!("/api/v1/jobs/{id}"), None).1
}

/// Waits until the command has printed so many lines more: it does not wait for anybody.
fn goes_on(outside: &Path, lines: u64) -> u64 {
    let from = counted(outside);
    eventually("the command goes on", || Some(counted(outside)).filter(|now| *now > from + lines))
}

#[test]
fn on_a_full_disk_the_command_goes_on_and_what_was_lost_is_marked() {
    let disk = Disk::new(32, "[process]\noutput_rotate_bytes = 67108864\n");
    let outside = tempfile::tempdir().unwrap();
    let _server = disk.up(&[]);
    let (id, container) = talker(&disk, outside.path());
    goes_on(outside.path(), 100);
    disk.fill();
    // More than is kept in memory while the disk refuses.
    goes_on(outside.path(), 2000);
    let lock = job(&disk, &id);
    assert!(["fresh", "reattached"].contains(&text(&lock, "status")), "{lock}");
    disk.free();
    eventually("the loss is marked", || {
        disk.ok(&["containers", "logs", &container]).contains(" bytes lost]").then_some(())
    });
    goes_on(outside.path(), 100);
    std::fs::write(outside.path().join("gate"), "").unwrap();
    let ended = eventually("it has ended", || Some(job(&disk, &id)).filter(|j| j["ended_at"].is_string()));
    assert_eq!((ended["exit_code"].as_i64(), text(&ended, "status")), (Some(5), "failed"), "{ended}");

    let said = disk.ok(&["containers", "logs", &container]);
    let marks: Vec<&str> = said.lines().filter(|line| line.contains(" bytes lost]")).collect();
    assert!(!marks.is_empty(), "the loss is marked: {} bytes", said.len());
    let dir = disk.path().join("jobs").join(&id);
    let result: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.join("result.json")).unwrap()).unwrap();
    let lost: u64 =
        marks.iter().filter_map(|line| line.split_once('[')?.1.split_once(' ')?.0.parse::<u64>().ok()).sum();
    assert_eq!(result["lostBytes"], lost, "what is marked is what is counted");
    // Whole lines before the loss and after it, in their order, each once.
    let numbers: Vec<u64> = said
        .lines()
        .filter(|line| line.len() > 1000 && !line.contains('['))
        .filter_map(|line| line.split_once(' ')?.0.parse().ok())
        .collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "no line is there twice");
    assert_eq!(numbers.first(), Some(&1));
    assert_eq!(numbers.last().copied(), Some(counted(outside.path())), "the last line is there");
}

#[test]
fn a_job_directory_that_cannot_be_written_ends_nobody() {
    let disk = Disk::new(64, "[health]\nheartbeat_interval_seconds = 1\n[jobs]\ncheck_seconds = 1\n");
    let outside = tempfile::tempdir().unwrap();
    let _server = disk.up(&[]);
    let (id, container) = talker(&disk, outside.path());
    eventually("it runs", || Some(job(&disk, &id)).filter(|j| j["status"] == "fresh"));
    eventually("that is recorded", || Some(disk.seen(&container)).filter(|c| c["state"] == "running"));
    {
        let _view = ReadOnly::over(&disk.path().join("jobs").join(&id));
        goes_on(outside.path(), 500);
        // Its heartbeats go on over the socket, and say that the sentinel could not be written.
        eventually("the failed writes are counted", || {
            let path = format!("/api/v1/containers/{container}/heartbeats?limit=1000");
            let (_, history) = disk.api("GET", &path, None);
            let beats = history["heartbeats"].as_array().unwrap().clone();
            beats.iter().any(|b| b["metadata"]["sentinel_failures"].as_u64() > Some(0)).then_some(())
        });
        assert_eq!(text(&job(&disk, &id), "status"), "fresh");
        assert_eq!(disk.seen(&container)["state"], "running");
    }
    goes_on(outside.path(), 100);
    std::fs::write(outside.path().join("gate"), "").unwrap();
    let ended = eventually("it has ended", || Some(job(&disk, &id)).filter(|j| j["ended_at"].is_string()));
    assert_eq!((ended["exit_code"].as_i64(), text(&ended, "status")), (Some(5), "failed"), "{ended}");
}
