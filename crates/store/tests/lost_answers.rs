//! Answers that never come. Between the store and PostgreSQL stands somebody who can swallow the one to a COMMIT (the
//! database has kept the transaction, the caller cannot know, and is told exactly that), or let everything hang.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod common;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::postgres::Server;
use common::{about, at, cid, event, intent};
use parhelia_core::event::EventType;
use parhelia_core::heartbeat::Sample;
use parhelia_store::postgres::POOL;
use parhelia_store::{EventFilter, Fence, Store, StoreError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// Passes everything on, until it is told to swallow the next answer to a COMMIT, or every answer.
struct Between {
    dir: tempfile::TempDir,
    trouble: Trouble,
}

#[derive(Clone, Default)]
struct Trouble {
    swallow: Arc<AtomicBool>,
    /// Connections that meet it stay silent for ever.
    hang: Arc<AtomicBool>,
}

impl Between {
    fn start(real: PathBuf) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).unwrap();
        let trouble = Trouble::default();
        let theirs = trouble.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, real.clone(), theirs.clone()));
            }
        });
        Self { dir, trouble }
    }

    fn swallow_next(&self) {
        self.trouble.swallow.store(true, Ordering::SeqCst);
    }

    fn hang(&self, hang: bool) {
        self.trouble.hang.store(hang, Ordering::SeqCst);
    }

    fn url(&self, database: &str) -> String {
        let dir = self.dir.path().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{dir}/{database}")
    }
}

async fn pass(client: UnixStream, real: PathBuf, trouble: Trouble) {
    let server = UnixStream::connect(real).await.unwrap();
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let cut = Arc::new(AtomicBool::new(false));
    let (cutting, swallow) = (cut.clone(), trouble.swallow);
    let there = tokio::spawn(async move {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(n @ 1..) = from_client.read(&mut bytes).await {
            if bytes[..n].windows(6).any(|w| w == b"COMMIT") && swallow.swap(false, Ordering::SeqCst) {
                cutting.store(true, Ordering::SeqCst);
            }
            if to_server.write_all(&bytes[..n]).await.is_err() {
                break;
            }
        }
    });
    let mut bytes = vec![0; 1 << 16];
    while let Ok(n @ 1..) = from_server.read(&mut bytes).await {
        if trouble.hang.load(Ordering::SeqCst) {
            return std::future::pending().await;
        }
        // "COMMIT" in an answer is the tag of a transaction that was kept: now it is in the database for certain.
        if cut.load(Ordering::SeqCst) {
            if bytes[..n].windows(6).any(|w| w == b"COMMIT") {
                break;
            }
            continue;
        }
        if to_client.write_all(&bytes[..n]).await.is_err() {
            break;
        }
    }
    there.abort();
}

fn told_that_nobody_knows(error: &StoreError) {
    assert!(error.is_unavailable() && error.to_string().contains("outcome unknown"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_without_an_answer_is_told_as_unknown_and_repeating_it_changes_nothing() {
    let server = Server::start();
    let real = server.database();
    let name = real.rsplit('/').next().unwrap();
    let between = Between::start(server.socket());
    let store = Store::open(&between.url(name)).await.unwrap();

    // With a guard: the COMMIT goes out last and alone.
    let created = || vec![about(EventType::ContainerCreated, &cid(1))];
    between.swallow_next();
    let lost = store.register(intent(1), created(), at(0)).await.unwrap_err();
    told_that_nobody_knows(&lost);
    // It was kept; repeating it is refused and leaves no second event.
    let again = store.register(intent(1), created(), at(0)).await.unwrap_err();
    assert!(again.is_conflict(), "{again}");
    let filter = EventFilter { limit: Some(100), ..Default::default() };
    assert_eq!(store.events(&filter).await.unwrap().len(), 1);

    // Without one: the COMMIT goes out with the rest, and the store itself repeats nothing.
    between.swallow_next();
    let sample = Sample { cpu_percent: Some(1.0), ..Sample::bare(cid(1)) };
    told_that_nobody_knows(&store.heartbeats(&[sample], at(1)).await.unwrap_err());
    assert_eq!(store.heartbeat_history(&cid(1), None, 10).await.unwrap().len(), 1);
    between.swallow_next();
    told_that_nobody_knows(
        &store.append_events(vec![event(EventType::ServerStarted)], at(2)).await.unwrap_err(),
    );
    assert_eq!(store.events(&filter).await.unwrap().len(), 2);
    // And the connection that was cut is replaced by itself.
    store.append_events(vec![event(EventType::ServerStarted)], at(3)).await.unwrap();
    store.close().await.unwrap();
}

/// A database that takes everything and says nothing: one caller finds that out, all others are told at once, and whoever
/// left meanwhile has left no connection behind that would never answer the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_hangs_is_away_until_it_answers_and_no_silent_connection_is_used_again() {
    let server = Server::start();
    let real = server.database();
    let between = Between::start(server.socket());
    let store = Store::open(&between.url(real.rsplit('/').next().unwrap())).await.unwrap();
    // So that every connection is there, and idle.
    let look = || async { store.container(&cid(1)).await };
    futures::future::try_join_all((0..POOL).map(|_| look())).await.unwrap();

    between.hang(true);
    let register = store.register(intent(1), vec![about(EventType::ContainerCreated, &cid(1))], at(0));
    let leaving = futures::future::join_all((1..POOL).map(|_| async {
        let left = tokio::time::timeout(Duration::from_millis(100), look()).await;
        left.map(drop).unwrap_err()
    }));
    // Who stands for election does not wait for ever on one silent connection either.
    let seat = store.seat().unwrap();
    let (written, _, seated) = tokio::join!(register, leaving, seat.take(Duration::from_secs(60)));
    told_that_nobody_knows(&written.unwrap_err());
    assert!(seated.unwrap_err().is_unavailable());
    // Who did not wait for an answer of its own is told so by the words of those who are not let in.
    let away = look().await.unwrap_err();
    assert!(away.is_unavailable() && away.to_string().contains("tried again by itself"), "{away}");
    store.probe().await.unwrap_err();

    between.hang(false);
    common::until("it is back", async || store.probe().await.ok()).await;
    // The connections from before are as silent as they were; none of them is asked.
    futures::future::try_join_all((0..2 * POOL).map(|_| look())).await.unwrap();
    let filter = EventFilter { limit: Some(100), ..Default::default() };
    let told = store.events(&filter).await.unwrap().len();
    assert!(told <= 1, "the intent was written once or not at all");
    store.close().await.unwrap();
}

/// Questions that take long, or writes that wait for somebody's lock, may use up every connection: leases are renewed all the
/// same, and nobody takes that for a database that is away.
#[tokio::test]
async fn a_lease_is_renewed_while_every_other_connection_is_in_use() {
    let server = Server::start();
    let url = server.database();
    let store = Store::open(&url).await.unwrap();
    store.register_owner(&common::owner("o-1")).await.unwrap();
    let epoch = store.take_leadership("o-1", at(10), at(0), false).await.unwrap();
    let (blocker, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    blocker.batch_execute("BEGIN; LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..3 * POOL as u64 {
        let store = store.clone();
        waiting.spawn(async move { store.register(with_task(intent(n)), vec![], at(0)).await });
    }
    let busy = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let name = url.rsplit('/').next().unwrap();
    common::until("every connection waits", async || {
        (server.sql(name, busy).trim() == POOL.to_string()).then_some(())
    })
    .await;
    let fence = Fence { owner_id: "o-1".into(), epoch };
    store.renew_leadership(&fence, at(20)).await.unwrap();
    store.renew_owner("o-1", at(60)).await.unwrap();
    // So it was for as long as they were renewed.
    assert_eq!(server.sql(name, busy).trim(), POOL.to_string());
    blocker.batch_execute("ROLLBACK").await.unwrap();
    while let Some(registered) = waiting.join_next().await {
        registered.unwrap().unwrap();
    }
}

#[tokio::test]
async fn sessions_for_scripts_have_their_limits() {
    let server = Server::start();
    let url = server.database();
    let store = Store::open(&url).await.unwrap();
    store.append_events(vec![event(EventType::ServerStarted)], at(0)).await.unwrap();
    // Another session holds the row: the statement is ended by the database and not by our patience.
    let (blocker, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    blocker.batch_execute("BEGIN; LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let error = store.register(with_task(intent(1)), vec![], at(0)).await.unwrap_err();
    assert!(
        error.is_unavailable() && error.to_string().contains("did not finish register in time"),
        "{error}"
    );
    blocker.batch_execute("ROLLBACK").await.unwrap();
    store.register(with_task(intent(1)), vec![], at(0)).await.unwrap();
}

fn with_task(mut new: parhelia_store::NewContainer) -> parhelia_store::NewContainer {
    new.task_id = Some("t-1".into());
    new
}

#[tokio::test]
async fn who_is_not_let_in_is_told_at_once_and_who_comes_too_early_may_wait() {
    let server = Server::start();
    let url = server.database();
    server.sql("postgres", "CREATE ROLE ann LOGIN PASSWORD 'right'");
    server.demand_passwords();
    let denied = |error: StoreError, word: &str| {
        let text = error.to_string();
        assert!(matches!(error, StoreError::Denied { .. }) && text.contains(word), "{error:?}");
        assert!(!text.contains("wrong-one"), "{text}");
    };
    let as_ann = |password: &str, database: &str| {
        let base = server.url(database);
        base.replace("postgres://postgres@", &format!("postgres://ann{password}@"))
    };
    denied(Store::open(&as_ann(":wrong-one", "postgres")).await.unwrap_err(), "password");
    denied(Store::open(&as_ann("", "postgres")).await.unwrap_err(), "password");
    denied(Store::open(&as_ann(":right", "nowhere")).await.unwrap_err(), "nowhere");
    denied(Store::open(&url.replace("postgres@", "nobody@")).await.unwrap_err(), "nobody");
    // A unix socket has no TLS, and needs none.
    Store::open(&format!("{url}?sslmode=require")).await.unwrap().close().await.unwrap();
    server.tell("stop");
    let away = common::until("it is away", async || Store::open(&url).await.err()).await;
    assert!(away.is_unavailable(), "{away:?}");
}
