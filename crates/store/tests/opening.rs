//! Opening: what is created, what is migrated, and what is refused without touching a byte of it.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use common::{World, at, event, owner};
use parhelia_core::event::EventType;
use parhelia_core::heartbeat::Sample;
use parhelia_core::ids::ContainerId;
use parhelia_store::{EventFilter, Fence, Store, StoreError, postgres, sqlite};
use rusqlite::Connection;

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Dir(tempfile::tempdir().unwrap())
    }
    fn db(&self) -> PathBuf {
        self.0.path().join("parhelia.db")
    }
    async fn closed_store(&self) {
        let store = Store::open_sqlite(&self.db()).unwrap();
        store.append_events(vec![event(EventType::ServerStarted)], at(0)).await.unwrap();
        store.close().await.unwrap();
    }
}

/// The refusal, having checked that the file and what lies beside it are as they were.
fn refusal(path: &Path) -> StoreError {
    let names = || {
        let mut names: Vec<_> =
            std::fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let wal = PathBuf::from(format!("{}-wal", path.display()));
    let before = (std::fs::read(path).unwrap(), std::fs::read(&wal).ok(), names());
    let error = Store::open_sqlite(path).unwrap_err();
    let after = (std::fs::read(path).unwrap(), std::fs::read(&wal).ok(), names());
    assert!(before.0 == after.0, "the file was changed");
    assert!(before.1 == after.1, "the log was changed");
    if before.1.is_none() {
        assert_eq!(before.2, after.2, "files were left beside it");
    }
    assert!(error.to_string().contains("parhelia.db"), "{error}");
    error
}

#[tokio::test]
async fn a_new_file_is_private_and_everything_acknowledged_is_there_again() {
    let dir = Dir::new();
    dir.closed_store().await;
    let mode = std::fs::metadata(dir.db()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let wal = std::fs::metadata(format!("{}-wal", dir.db().display()));
    assert!(wal.is_err(), "closing moves the log into the file");
    let store = Store::open_sqlite(&dir.db()).unwrap();
    assert_eq!(store.last_event_id().await.unwrap(), 1);
    assert_eq!(*store.subscribe_commits().borrow(), 1);
    store.close().await.unwrap();
}

#[tokio::test]
async fn after_close_everything_is_refused_and_closing_again_is_harmless() {
    for w in World::each().await {
        w.store.probe().await.unwrap();
        w.store.close().await.unwrap();
        w.store.close().await.unwrap();
        let error = w.store.append_events(vec![event(EventType::ServerStarted)], at(0)).await.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        assert!(w.store.last_event_id().await.unwrap_err().is_unavailable());
        assert!(w.store.probe().await.unwrap_err().is_unavailable());
    }
}

#[tokio::test]
async fn an_older_database_is_migrated_with_what_it_holds() {
    const OLD_EVENT: &str = "INSERT INTO events (id, timestamp, event_type, message)
         VALUES (1, '2026-01-21T14:00:00.000Z', 'server_started', 'of old')";
    const OLD_CONTAINER: &str =
        "INSERT INTO containers (id, provider, instance_id, created_at, updated_at, last_heartbeat_at, memory_used_mb)
         VALUES ('c-01k9z3q8xw4f7m2a', 'process', 'i', '2026-01-21T14:00:00.000Z', '2026-01-21T14:00:00.000Z',
                 '2026-01-21T14:00:00.000Z', 512)";
    let dir = Dir::new();
    let old = Connection::open(dir.db()).unwrap();
    old.execute_batch(sqlite::MIGRATIONS[0].1).unwrap();
    old.pragma_update(None, "user_version", 1).unwrap();
    old.pragma_update(None, "application_id", sqlite::APPLICATION_ID).unwrap();
    old.execute_batch(OLD_EVENT).unwrap();
    old.execute_batch(OLD_CONTAINER).unwrap();
    drop(old);
    let server = common::postgres::Server::shared();
    let url = server.database();
    let name = url.rsplit('/').next().unwrap();
    let mark = "INSERT INTO parhelia_schema VALUES (1); SELECT nextval('event_ids')";
    server.sql(name, &format!("{}; {mark}; {OLD_EVENT}; {OLD_CONTAINER}", postgres::MIGRATIONS[0].1));
    for store in [Store::open_sqlite(&dir.db()).unwrap(), Store::open(&url).await.unwrap()] {
        let fence = Fence::of_owner("o-1");
        store.register_owner(&owner("o-1")).await.unwrap();
        store.announce(&fence, vec![event(EventType::ServerStarted)], at(0)).await.unwrap();
        let all = store.events(&EventFilter::default()).await.unwrap();
        let writers: Vec<_> = all.iter().map(|e| (e.id, e.owner_id.as_deref())).collect();
        assert_eq!(writers, [(1, None), (2, Some("o-1"))]);
        assert_eq!(all[0].message.as_deref(), Some("of old"));
        let kept =
            store.container(&ContainerId::parse("c-01k9z3q8xw4f7m2a").unwrap()).await.unwrap().unwrap();
        assert_eq!((kept.last_heartbeat_at, kept.memory_used_mb), (Some(at(0)), Some(512)));
        assert_eq!(store.heartbeats(&[Sample::bare(kept.id)], at(1)).await.unwrap(), [true]);
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_newer_database_is_refused() {
    let dir = Dir::new();
    dir.closed_store().await;
    let known = sqlite::MIGRATIONS.len() as i64;
    let newer = Connection::open(dir.db()).unwrap();
    newer.pragma_update(None, "user_version", known + 1).unwrap();
    newer.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(newer);
    let error = refusal(&dir.db());
    assert!(
        matches!(error, StoreError::Newer { found, known: k, .. } if found == known + 1 && k == known),
        "{error}"
    );
    assert!(error.to_string().contains("newer program"), "{error}");
}

#[tokio::test]
async fn a_newer_database_is_refused_even_if_only_its_log_says_so() {
    let dir = Dir::new();
    dir.closed_store().await;
    let newer = Connection::open(dir.db()).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    // Still open, as after a crash: the version is in the log and not in the file.
    assert!(matches!(refusal(&dir.db()), StoreError::Newer { found: 99, .. }));
    drop(newer);
    assert!(matches!(refusal(&dir.db()), StoreError::Newer { found: 99, .. }));
}

#[test]
fn what_is_not_a_database_is_refused() {
    for bytes in
        [&b"hello, I am a text file, and a rather long one at that\n".repeat(100)[..], b"x", &[0; 8192]]
    {
        let dir = Dir::new();
        std::fs::write(dir.db(), bytes).unwrap();
        let error = refusal(&dir.db());
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains("move the file aside"), "{error}");
    }
}

#[tokio::test]
async fn a_damaged_database_is_refused() {
    let dir = Dir::new();
    dir.closed_store().await;
    let whole = std::fs::read(dir.db()).unwrap();
    // Cut short, as by a failed copy; its schema overwritten; its header overwritten.
    let cut = whole[..whole.len() / 2].to_vec();
    let mut scribbled = whole.clone();
    scribbled[100..4096].fill(0xa5);
    let mut headless = whole.clone();
    headless[..64].fill(0);
    for bytes in [cut, scribbled, headless] {
        std::fs::write(dir.db(), bytes).unwrap();
        let error = refusal(&dir.db());
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    }
}

#[test]
fn a_database_of_another_program_is_refused() {
    let dir = Dir::new();
    let other = Connection::open(dir.db()).unwrap();
    other.execute_batch("CREATE TABLE recipes (name TEXT)").unwrap();
    drop(other);
    let error = refusal(&dir.db());
    assert!(error.to_string().contains("another program"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_read_only_is_refused() {
    let dir = Dir::new();
    dir.closed_store().await;
    std::fs::set_permissions(dir.db(), std::fs::Permissions::from_mode(0o400)).unwrap();
    let error = refusal(&dir.db());
    assert!(error.is_unavailable() && error.to_string().contains("write permission"), "{error}");
}

#[test]
fn a_directory_that_does_not_exist_is_told() {
    let dir = Dir::new();
    let error = Store::open_sqlite(&dir.0.path().join("nowhere/parhelia.db")).unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("its directory exists"), "{error}");
    let error = Store::open_sqlite(dir.0.path()).unwrap_err();
    assert!(error.to_string().contains("not a file"), "{error}");
}

#[tokio::test]
async fn a_file_that_another_process_holds_is_refused() {
    let dir = Dir::new();
    dir.closed_store().await;
    let other = Connection::open(dir.db()).unwrap();
    other.execute_batch("PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT").unwrap();
    let error = Store::open_sqlite(&dir.db()).unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("another process holds"), "{error}");
    drop(other);
    Store::open_sqlite(&dir.db()).unwrap().close().await.unwrap();
}

#[tokio::test]
async fn an_empty_file_and_a_strange_name_are_as_good_as_any() {
    let dir = Dir::new();
    let path = dir.0.path().join("a b%?#é.db");
    std::fs::write(&path, b"").unwrap();
    for _ in 0..2 {
        let store = Store::open_sqlite(&path).unwrap();
        store.append_events(vec![event(EventType::ServerStarted)], at(0)).await.unwrap();
        store.close().await.unwrap();
    }
    let store = Store::open_sqlite_inline(Path::new(":memory:")).unwrap();
    assert_eq!(store.last_event_id().await.unwrap(), 0);
}
