//! Group commit: scripts that share a transaction do not share each other's failures.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod common;

use common::{World, about, at, cid, event, intent};
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_store::{EventFilter, Store, StoreError};
use rusqlite::Connection;
use tokio::task::JoinSet;

fn saying(message: &str) -> NewEvent {
    NewEvent::new(EventType::ServerStarted, Source::System, message)
}

/// All messages in the history, sorted.
async fn messages(store: &Store) -> Vec<String> {
    let filter = EventFilter { limit: Some(100_000), ..Default::default() };
    let mut all: Vec<String> =
        store.events(&filter).await.unwrap().into_iter().filter_map(|event| event.message).collect();
    all.sort();
    all
}

/// Many writers at once, of which every seventh is `poison`. Gives what was acknowledged, and the errors.
async fn crowd(store: &Store, poison: &'static str) -> (Vec<String>, Vec<StoreError>) {
    let mut tasks = JoinSet::new();
    for n in 0..700 {
        let store = store.clone();
        tasks.spawn(async move {
            let bad = n % 7 == 3;
            let mine = format!("writer {n:04}");
            let mut events = vec![saying(&mine)];
            if bad {
                events.push(saying(poison));
            }
            let result = store.append_events(events, at(0)).await;
            assert_eq!(result.is_err(), bad, "writer {n}: {result:?}");
            result.map(|_| mine)
        });
    }
    let (mut kept, mut errors) = (vec![], vec![]);
    while let Some(result) = tasks.join_next().await {
        match result.unwrap() {
            Ok(message) => kept.push(message),
            Err(error) => errors.push(error),
        }
    }
    kept.sort();
    (kept, errors)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_failing_script_leaves_nothing_and_its_neighbours_everything() {
    let w = World::sqlite().await;
    let mut tasks = JoinSet::new();
    for n in 0..600_u64 {
        let store = w.store.clone();
        tasks.spawn(async move {
            // Every container is registered twice: one of the two must fail, whole.
            let new = intent(n / 2);
            let told = vec![about(EventType::ContainerCreated, &new.id)];
            store.register(new, told, at(1)).await
        });
    }
    let results = tasks.join_all().await;
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 300);
    assert!(results.iter().filter_map(|r| r.as_ref().err()).all(StoreError::is_conflict));
    assert_eq!(w.store.live_count().await.unwrap(), 300);
    let told = w.store.events(&EventFilter { limit: Some(1000), ..Default::default() }).await.unwrap();
    assert_eq!(told.len(), 300);
    // Ids of a failed attempt are not left as holes that a reader of the tail would wait for.
    assert_eq!(w.store.last_event_id().await.unwrap(), 300);
    assert_eq!(*w.store.subscribe_commits().borrow(), 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_script_that_rolls_the_whole_transaction_back_hurts_only_itself() {
    let w = World::sqlite().await;
    let outside = Connection::open(w.path()).unwrap();
    // What a full disk or an IO error may do inside SQLite: the transaction is gone, not just the statement.
    outside
        .execute_batch(
            "CREATE TRIGGER poison BEFORE INSERT ON events WHEN NEW.message = 'poison'
             BEGIN SELECT RAISE(ROLLBACK, 'the whole transaction is gone'); END",
        )
        .unwrap();
    let (kept, errors) = crowd(&w.store, "poison").await;
    assert_eq!((kept.len(), errors.len()), (600, 100));
    assert_eq!(messages(&w.store).await, kept);
    assert!(errors.iter().all(StoreError::is_conflict), "{:?}", errors[0]);
    w.store.probe().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_script_that_makes_the_commit_fail_hurts_only_itself() {
    let w = World::sqlite().await;
    let outside = Connection::open(w.path()).unwrap();
    outside
        .execute_batch(
            "CREATE TABLE late (id TEXT REFERENCES containers(id) DEFERRABLE INITIALLY DEFERRED);
             CREATE TRIGGER poison AFTER INSERT ON events WHEN NEW.message = 'late poison'
             BEGIN INSERT INTO late VALUES ('nobody'); END",
        )
        .unwrap();
    let (kept, errors) = crowd(&w.store, "late poison").await;
    assert_eq!((kept.len(), errors.len()), (600, 100));
    assert_eq!(messages(&w.store).await, kept);
    assert!(errors.iter().all(StoreError::is_conflict), "{:?}", errors[0]);
    w.store.probe().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn more_callers_than_the_queue_holds_wait_and_are_all_served() {
    let w = World::sqlite().await;
    let mut tasks = JoinSet::new();
    for _ in 0..5000 {
        let store = w.store.clone();
        tasks.spawn(async move { store.append_events(vec![event(EventType::ServerStarted)], at(0)).await });
    }
    let mut ids: Vec<i64> = tasks.join_all().await.into_iter().flat_map(Result::unwrap).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=5000).collect::<Vec<i64>>());
    assert_eq!(w.store.queue_depth(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn closing_finishes_what_was_queued() {
    let w = World::sqlite().await;
    let mut tasks = JoinSet::new();
    for _ in 0..500 {
        let store = w.store.clone();
        tasks.spawn(async move { store.append_events(vec![event(EventType::ServerStarted)], at(0)).await });
    }
    w.store.close().await.unwrap();
    let results = tasks.join_all().await;
    let kept = results.iter().filter(|r| r.is_ok()).count() as i64;
    assert!(results.iter().filter_map(|r| r.as_ref().err()).all(StoreError::is_unavailable));
    let again = Store::open_sqlite(&w.path()).unwrap();
    assert_eq!(again.last_event_id().await.unwrap(), kept);
}

#[tokio::test]
async fn a_caller_that_stops_waiting_has_its_write_all_the_same() {
    let w = World::sqlite().await;
    {
        let write = w.store.register(intent(1), vec![], at(0));
        tokio::pin!(write);
        // Polled once, so it is queued; then dropped.
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(write.as_mut().poll(cx))).await;
        assert!(polled.is_pending() || polled.is_ready());
    }
    // A later write is behind it in the queue.
    w.store.append_events(vec![event(EventType::ServerStarted)], at(1)).await.unwrap();
    assert!(w.store.container(&cid(1)).await.unwrap().is_some());
}
