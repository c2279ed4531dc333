//! A disk that is full, or read-only. Needs root: each test mounts a small file system of its own, and fails
//! (it does not skip) where that is impossible.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests are tests

mod common;

use std::io::Write;
use std::path::PathBuf;

use common::{about, at, cid, event, intent, owner};
use parhelia_core::event::EventType;
use parhelia_store::{EventFilter, Store, StoreError};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use tokio::task::JoinSet;

struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(options: &std::ffi::CStr) -> Self {
        let dir = tempfile::tempdir().unwrap();
        mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), options)
            .expect("this test mounts a tmpfs: run it as root");
        Self(dir)
    }

    fn db(&self) -> PathBuf {
        self.0.path().join("parhelia.db")
    }

    fn ballast(&self) -> PathBuf {
        self.0.path().join("ballast")
    }

    /// Takes every byte that is left.
    fn fill(&self) {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(self.ballast()).unwrap();
        for size in [1 << 20, 4096, 1] {
            let block = vec![0; size];
            while file.write_all(&block).is_ok() {}
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_fails_clearly_keeps_what_was_acknowledged_and_mends_itself() {
    let disk = SmallDisk::new(c"size=8m");
    let store = Store::open_sqlite(&disk.db()).unwrap();
    store.register_owner(&owner("o-1")).await.unwrap();
    disk.fill();

    // Until the log has used up the room that it had, writes go well; then every one must fail.
    let mut kept = vec![];
    let mut next = 0;
    let error = loop {
        let mut tasks = JoinSet::new();
        for n in next..next + 50 {
            let store = store.clone();
            tasks.spawn(async move {
                let new = intent(n);
                let told = vec![about(EventType::ContainerCreated, &new.id)];
                store.register(new, told, at(1)).await.map(|()| n)
            });
        }
        next += 50;
        let mut failed = None;
        for result in tasks.join_all().await {
            match result {
                Ok(n) => kept.push(n),
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            break error;
        }
        assert!(next < 100_000, "the disk never became full");
    };
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("space"), "{error}");
    assert!(store.probe().await.unwrap_err().to_string().contains("the last commit failed"));
    // Reading goes on, and shows exactly what was acknowledged: each row with its event.
    let check = async || {
        for n in 0..next {
            assert_eq!(store.container(&cid(n)).await.unwrap().is_some(), kept.contains(&n), "container {n}");
        }
        let filter = EventFilter { limit: Some(100_000), ..Default::default() };
        let mut told: Vec<String> =
            store.events(&filter).await.unwrap().into_iter().filter_map(|e| e.container_id).collect();
        let mut expected: Vec<String> = kept.iter().map(|n| cid(*n).to_string()).collect();
        told.sort();
        expected.sort();
        assert_eq!(told, expected);
    };
    check().await;

    std::fs::remove_file(disk.ballast()).unwrap();
    check().await;
    store.register(intent(1_000_000), vec![], at(2)).await.unwrap();
    store.probe().await.unwrap();
    store.close().await.unwrap();
    let again = Store::open_sqlite(&disk.db()).unwrap();
    assert_eq!(again.live_count().await.unwrap(), kept.len() as i64 + 1);
    again.close().await.unwrap();
}

#[tokio::test]
async fn a_disk_without_room_for_a_database_is_told_at_once() {
    let disk = SmallDisk::new(c"size=64k");
    let error = Store::open_sqlite(&disk.db()).unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("space"), "{error}");
}

#[tokio::test]
async fn a_read_only_disk_is_refused() {
    let disk = SmallDisk::new(c"size=8m");
    let store = Store::open_sqlite(&disk.db()).unwrap();
    store.append_events(vec![event(EventType::ServerStarted)], at(0)).await.unwrap();
    store.close().await.unwrap();
    mount_remount(disk.0.path(), MountFlags::RDONLY, "").unwrap();
    let before = std::fs::read(disk.db()).unwrap();
    for path in [disk.db(), disk.0.path().join("new.db")] {
        let error = Store::open_sqlite(&path).unwrap_err();
        assert!(error.is_unavailable() && error.to_string().contains("writ"), "{error}");
    }
    assert!(before == std::fs::read(disk.db()).unwrap());
}
