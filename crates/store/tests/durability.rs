//! A write that was acknowledged survives SIGKILL at any moment.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod common;

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use common::{about, at, intent};
use parhelia_core::event::EventType;
use parhelia_store::{EventFilter, Store};

const PATH: &str = "PARHELIA_TEST_WRITER_PATH";
const ROUND: &str = "PARHELIA_TEST_WRITER_ROUND";

/// Not a test of its own: the process that the next one starts and kills. It says `ack N` for each container
/// whose row and event have been acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_writing_child() {
    let (Ok(path), Ok(round)) = (std::env::var(PATH), std::env::var(ROUND)) else { return };
    let round: u64 = round.parse().unwrap();
    let store = Store::open_sqlite(path.as_ref()).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..16_u64 {
        let store = store.clone();
        tasks.spawn(async move {
            for n in 0..1_000_000 {
                let number = round * 1_000_000_000 + writer * 1_000_000 + n;
                let new = intent(number);
                let told = vec![about(EventType::ContainerCreated, &new.id)];
                store.register(new, told, at(0)).await.unwrap();
                let mut out = std::io::stdout().lock();
                writeln!(out, "ack {number}").unwrap();
                out.flush().unwrap();
            }
        });
    }
    tasks.join_all().await;
}

#[tokio::test]
async fn no_acknowledged_write_is_lost_when_the_process_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("parhelia.db");
    let mut acknowledged: Vec<u64> = vec![];
    for round in 0..5_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_writing_child", "--nocapture", "--test-threads=1"])
            .env(PATH, &path)
            .env(ROUND, round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut seen = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            // The harness writes to the same line that the first acknowledgement ends up on.
            let line = line.unwrap();
            let Some(number) = line.rsplit("ack ").next().and_then(|n| n.parse().ok()) else { continue };
            acknowledged.push(number);
            seen += 1;
            if seen == 200 + 150 * round {
                child.kill().unwrap(); // what it had said before is still read to the end
            }
        }
        assert!(!child.wait().unwrap().success());
        assert!(seen >= 200, "the child wrote only {seen}");

        let store = Store::open_sqlite(&path).unwrap();
        let rows: HashSet<_> =
            store.active_containers().await.unwrap().into_iter().map(|c| c.id.to_string()).collect();
        let filter = EventFilter { limit: Some(i64::MAX), ..Default::default() };
        let told: HashSet<_> =
            store.events(&filter).await.unwrap().into_iter().filter_map(|e| e.container_id).collect();
        assert_eq!(rows, told, "a row without its event, or an event without its row");
        let lost: Vec<_> = acknowledged.iter().filter(|n| !rows.contains(intent(**n).id.as_str())).collect();
        assert!(lost.is_empty(), "round {round}: lost {lost:?}");
        store.close().await.unwrap();
    }
}
