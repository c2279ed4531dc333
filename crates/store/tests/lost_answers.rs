//! A COMMIT whose answer never came. Between the store and PostgreSQL stands somebody who can swallow it: the
//! database has kept the transaction, the caller cannot know, and is told exactly that.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod common;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::postgres::Server;
use common::{about, at, cid, event, intent};
use parhelia_core::event::EventType;
use parhelia_core::heartbeat::Sample;
use parhelia_store::{EventFilter, Store, StoreError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// Passes everything on, until it is told to swallow the next answer to a COMMIT.
struct Between {
    dir: tempfile::TempDir,
    swallow: Arc<AtomicBool>,
}

impl Between {
    fn start(real: PathBuf) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).unwrap();
        let swallow = Arc::new(AtomicBool::new(false));
        let asked = swallow.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, real.clone(), asked.clone()));
            }
        });
        Self { dir, swallow }
    }

    fn url(&self, database: &str) -> String {
        let dir = self.dir.path().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{dir}/{database}")
    }
}

async fn pass(client: UnixStream, real: PathBuf, swallow: Arc<AtomicBool>) {
    let server = UnixStream::connect(real).await.unwrap();
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let cut = Arc::new(AtomicBool::new(false));
    let cutting = cut.clone();
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
    between.swallow.store(true, Ordering::SeqCst);
    let lost = store.register(intent(1), created(), at(0)).await.unwrap_err();
    told_that_nobody_knows(&lost);
    // It was kept; repeating it is refused and leaves no second event.
    let again = store.register(intent(1), created(), at(0)).await.unwrap_err();
    assert!(again.is_conflict(), "{again}");
    let filter = EventFilter { limit: Some(100), ..Default::default() };
    assert_eq!(store.events(&filter).await.unwrap().len(), 1);

    // Without one: the COMMIT goes out with the rest, and the store itself repeats nothing.
    between.swallow.store(true, Ordering::SeqCst);
    let sample = Sample { cpu_percent: Some(1.0), ..Sample::bare(cid(1)) };
    told_that_nobody_knows(&store.heartbeats(&[sample], at(1)).await.unwrap_err());
    assert_eq!(store.heartbeat_history(&cid(1), None, 10).await.unwrap().len(), 1);
    between.swallow.store(true, Ordering::SeqCst);
    told_that_nobody_knows(
        &store.append_events(vec![event(EventType::ServerStarted)], at(2)).await.unwrap_err(),
    );
    assert_eq!(store.events(&filter).await.unwrap().len(), 2);
    // And the connection that was cut is replaced by itself.
    store.append_events(vec![event(EventType::ServerStarted)], at(3)).await.unwrap();
    store.close().await.unwrap();
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
