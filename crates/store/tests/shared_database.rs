//! What only a database that several servers share can show: late commits, elections, its own death.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod common;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::postgres::Server;
use common::{World, about, at, cid, event, intent, owner, until};
use parhelia_core::event::EventType;
use parhelia_core::heartbeat::Sample;
use parhelia_store::{EventFilter, Fence, Store, StoreError, postgres};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, NoTls};

const LEASE: Duration = Duration::from_secs(4);

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Everything that a reader of the tail gets after `after`.
async fn tail(store: &Store, after: i64) -> Vec<i64> {
    let filter = EventFilter { after_id: Some(after), limit: Some(1_000_000), ..Default::default() };
    store.events(&filter).await.unwrap().into_iter().map(|event| event.id).collect()
}

const INSERT: &str = "INSERT INTO events (id, timestamp, event_type)
    VALUES (current_setting('parhelia.events_from')::BIGINT, '2026-01-21T14:00:00.000Z', 'server_started')";

#[tokio::test]
async fn an_event_that_commits_late_is_not_passed_by() {
    let server = Server::start();
    let url = server.database();
    let store = Store::open(&url).await.unwrap();
    let first = store.append_events(vec![event(EventType::ServerStarted)], at(0)).await.unwrap()[0];
    until("the first is settled", async || (store.last_event_id().await.unwrap() == first).then_some(()))
        .await;

    let slow = connect(&url).await;
    slow.batch_execute("BEGIN; SELECT reserve_events(1)").await.unwrap();
    slow.batch_execute(INSERT).await.unwrap();
    let second = store.append_events(vec![event(EventType::ServerStarted)], at(1)).await.unwrap()[0];
    // Committed and acknowledged, in the history, and not yet in the tail: something may still come before it.
    let all = EventFilter { limit: Some(10), newest_first: true, ..Default::default() };
    assert_eq!(store.events(&all).await.unwrap().len(), 2);
    assert_eq!(tail(&store, first).await, Vec::<i64>::new());
    assert_eq!(store.last_event_id().await.unwrap(), first);

    let mut commits = store.subscribe_commits();
    commits.borrow_and_update();
    slow.batch_execute("COMMIT").await.unwrap();
    timeout(Duration::from_secs(5), commits.wait_for(|id| *id >= second)).await.unwrap().unwrap();
    assert_eq!(tail(&store, first).await, [second - 1, second]);
}

#[tokio::test]
async fn ids_rise_with_transactions_whoever_draws_first() {
    let server = Server::start();
    let url = server.database();
    let store = Store::open(&url).await.unwrap();
    let (a, b) = (connect(&url).await, connect(&url).await);
    // A draws first and writes last; B commits in between. The other way round would need B to have the
    // smaller transaction id and the larger event id, which reserve_events makes impossible.
    a.batch_execute("BEGIN; SELECT reserve_events(1)").await.unwrap();
    b.batch_execute("BEGIN; SELECT reserve_events(1)").await.unwrap();
    b.batch_execute(INSERT).await.unwrap();
    b.batch_execute("COMMIT").await.unwrap();
    assert_eq!(tail(&store, 0).await, Vec::<i64>::new());
    a.batch_execute(INSERT).await.unwrap();
    a.batch_execute("COMMIT").await.unwrap();
    assert_eq!(tail(&store, 0).await, [1, 2]);
    let row = b.query_one("SELECT BOOL_AND(x.txid < y.txid) FROM events x, events y WHERE x.id < y.id", &[]);
    assert!(row.await.unwrap().get::<_, bool>(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_of_the_tail_sees_every_event_of_many_writers_once() {
    let server = Server::start();
    let url = server.database();
    let stores = [Store::open(&url).await.unwrap(), Store::open(&url).await.unwrap()];
    let done = Arc::new(AtomicBool::new(false));
    let reading = {
        let (store, done) = (stores[1].clone(), done.clone());
        tokio::spawn(async move {
            let (mut seen, mut commits) = (vec![], store.subscribe_commits());
            loop {
                let finished = done.load(Ordering::Relaxed);
                commits.borrow_and_update();
                let more = tail(&store, seen.last().copied().unwrap_or(0)).await;
                if more.is_empty() && finished {
                    return seen;
                }
                seen.extend(more);
                let _ = timeout(Duration::from_millis(50), commits.changed()).await;
            }
        })
    };
    let mut writers = JoinSet::new();
    for writer in 0..24_u64 {
        let store = stores[writer as usize % 2].clone();
        writers.spawn(async move {
            for n in 0..40 {
                let new = intent(writer * 1000 + n);
                let told = vec![
                    about(EventType::ContainerCreated, &new.id),
                    about(EventType::ContainerStarted, &new.id),
                ];
                store.register(new, told, at(0)).await.unwrap();
                store.append_events(vec![event(EventType::ServerStarted)], at(0)).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    sleep(Duration::from_millis(100)).await;
    done.store(true, Ordering::Relaxed);
    let seen = reading.await.unwrap();
    assert_eq!(seen.len(), 24 * 40 * 3);
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]));
}

#[tokio::test]
async fn what_is_not_ours_or_newer_is_refused_untouched() {
    let server = Server::shared();
    let other = server.database();
    let name = other.rsplit('/').next().unwrap().to_owned();
    server.sql(&name, "CREATE TABLE recipes (name TEXT)");
    let error = Store::open(&other).await.unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
    assert_eq!(server.sql(&name, "SELECT COUNT(*) FROM pg_class WHERE relname = 'parhelia_schema'"), "0");

    let url = server.database();
    let name = url.rsplit('/').next().unwrap().to_owned();
    Store::open(&url).await.unwrap().close().await.unwrap();
    server.sql(&name, "UPDATE parhelia_schema SET version = 99");
    let error = Store::open(&url).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
    assert_eq!(server.sql(&name, "SELECT version FROM parhelia_schema"), "99");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_that_open_an_empty_database_at_once_all_get_it() {
    let url = Server::shared().database();
    let mut opening = JoinSet::new();
    for n in 0..8 {
        let url = url.clone();
        opening.spawn(async move {
            let store = Store::open(&url).await.unwrap();
            store.this_instance(&format!("inst-{n}"), at(0)).await.unwrap()
        });
    }
    let names: HashSet<String> = opening.join_all().await.into_iter().collect();
    assert_eq!(names.len(), 1, "one instance: {names:?}");
}

#[tokio::test]
async fn an_address_that_does_not_answer_is_told_without_the_password() {
    for url in ["postgres://ann:s3cret@127.0.0.1:1/fleet", "postgres://ann:s3cret@%2Fnowhere/fleet"] {
        let error = Store::open(url).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(error.is_unavailable() && !text.contains("s3cret"), "{text}");
    }
}

#[tokio::test]
async fn a_restored_dump_is_read_at_once() {
    let server = Server::shared();
    let url = server.database();
    let name = url.rsplit('/').next().unwrap().to_owned();
    let store = Store::open(&url).await.unwrap();
    store.append_events(vec![event(EventType::ServerStarted)], at(0)).await.unwrap();
    store.close().await.unwrap();
    server.sql(&name, "UPDATE events SET txid = '99999999999'");
    let store = Store::open(&url).await.unwrap();
    until("the tail shows it", async || (tail(&store, 0).await == [1]).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_bad_one_among_many_gathered_hurts_only_itself() {
    let w = World::postgres().await;
    let mut tasks = JoinSet::new();
    for n in 0..300 {
        let store = w.store.clone();
        tasks.spawn(async move {
            let told = if n % 10 == 0 {
                about(EventType::ContainerStarted, &cid(9999))
            } else {
                event(EventType::ServerStarted)
            };
            store.append_events(vec![told], at(0)).await
        });
    }
    let results = tasks.join_all().await;
    let (good, bad): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!((good.len(), bad.len()), (270, 30));
    assert!(bad.into_iter().all(|b| b.unwrap_err().is_conflict()));
    let ids: HashSet<i64> = good.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(ids.len(), 270);
    assert_eq!(w.told().await.len(), 270);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn heartbeats_of_many_are_gathered_and_each_learns_its_own() {
    let w = World::postgres().await;
    let known = w.running(1).await;
    let mut tasks = JoinSet::new();
    for n in 0..200_u64 {
        let (store, known) = (w.store.clone(), known.clone());
        tasks.spawn(async move {
            let batch = [Sample::bare(known.clone()), Sample::bare(cid(5000 + n)), Sample::bare(known)];
            store.heartbeats(&batch, at(60)).await.unwrap()
        });
    }
    assert!(tasks.join_all().await.into_iter().all(|kept| kept == [true, false, true]));
    assert_eq!(w.store.heartbeat_history(&known, None, 1000).await.unwrap().len(), 400);
}

#[tokio::test]
async fn text_that_postgresql_cannot_hold_is_stored_all_the_same() {
    let w = World::postgres().await;
    let mut new = intent(1);
    new.name = Some("a\0b".into());
    let id = new.id.clone();
    w.store.register(new, vec![], at(0)).await.unwrap();
    assert_eq!(w.row(&id).await.name.as_deref(), Some("a\u{fffd}b"));
}

/// Takes the seat and the lead, as a server does.
async fn lead(store: &Store, id: &str) -> (postgres::Seated, Fence) {
    let seated = store.seat().unwrap().take(LEASE).await.unwrap();
    let epoch = store.take_leadership(id, at(10), at(0), true).await.unwrap();
    (seated, Fence { owner_id: id.into(), epoch })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_leader_is_replaced_at_once_and_a_frozen_one_after_its_lease() {
    let url = Server::shared().database();
    let (one, two) = (Store::open(&url).await.unwrap(), Store::open(&url).await.unwrap());
    one.register_owner(&owner("o-1")).await.unwrap();
    two.register_owner(&owner("o-2")).await.unwrap();
    let (seated, first) = lead(&one, "o-1").await;
    assert!(two.seat().unwrap().try_take().await.unwrap().is_none());

    // A live leader that renews is left alone for longer than a lease.
    let waiting = {
        let two = two.clone();
        tokio::spawn(async move { lead(&two, "o-2").await })
    };
    for n in 0..12 {
        one.renew_leadership(&first, at(20 + n)).await.unwrap();
        sleep(Duration::from_millis(400)).await;
    }
    assert!(!waiting.is_finished());
    // It dies: its connection closes.
    drop(seated);
    let (mut seated, second) = timeout(LEASE * 3 / 4, waiting).await.unwrap().unwrap();
    assert_eq!(second.epoch, first.epoch + 1);
    assert!(matches!(one.renew_leadership(&first, at(99)).await, Err(StoreError::Fenced { .. })));

    // The second freezes: it keeps its lock and renews no more. When it wakes, its seat is gone and its writes
    // are refused.
    let (_third_seat, third) = timeout(LEASE * 4, lead(&one, "o-1")).await.unwrap();
    assert_eq!(third.epoch, second.epoch + 1);
    timeout(Duration::from_secs(2), seated.lost()).await.unwrap();
    let late = two.register_found(&second, intent(1), vec![], at(1)).await;
    assert!(matches!(late, Err(StoreError::Fenced { .. })), "{late:?}");
}

#[tokio::test]
async fn an_election_waits_for_the_guarded_writes_under_way_and_a_renewal_does_not() {
    let url = Server::shared().database();
    let store = Store::open(&url).await.unwrap();
    store.register_owner(&owner("o-1")).await.unwrap();
    store.register_owner(&owner("o-2")).await.unwrap();
    let epoch = store.take_leadership("o-1", at(10), at(0), true).await.unwrap();
    let fence = Fence { owner_id: "o-1".into(), epoch };
    let writer = connect(&url).await;
    writer
        .batch_execute("BEGIN; SELECT 1 FROM leadership WHERE owner_id = 'o-1' FOR KEY SHARE")
        .await
        .unwrap();
    store.renew_leadership(&fence, at(20)).await.unwrap();
    let taking = tokio::spawn({
        let store = store.clone();
        async move { store.take_leadership("o-2", at(30), at(20), true).await }
    });
    sleep(Duration::from_millis(300)).await;
    assert!(!taking.is_finished(), "the former leader still writes");
    writer.batch_execute("COMMIT").await.unwrap();
    assert_eq!(taking.await.unwrap().unwrap(), epoch + 1);
}

#[tokio::test]
async fn an_owner_is_fenced_by_the_next_of_its_home() {
    for w in World::each().await {
        let mut next = owner("o-2");
        next.home_id = owner("o-1").home_id;
        let fence = Fence::of_owner("o-1");
        w.store.register_found(&fence, intent(1), vec![], at(1)).await.unwrap();
        w.store.register_owner(&next).await.unwrap();
        w.store.supersede_owners(&next.home_id, "o-2", at(2)).await.unwrap();
        let late = w.store.register_found(&fence, intent(2), vec![], at(3)).await;
        assert!(matches!(late, Err(StoreError::Fenced { .. })), "{late:?}");
        w.store.register_found(&Fence::of_owner("o-2"), intent(2), vec![], at(3)).await.unwrap();
    }
}

#[tokio::test]
async fn ending_an_owner_waits_for_its_writes_under_way_and_its_renewal_does_not() {
    let url = Server::shared().database();
    let store = Store::open(&url).await.unwrap();
    store.register_owner(&owner("o-1")).await.unwrap();
    let writer = connect(&url).await;
    writer.batch_execute("BEGIN; SELECT 1 FROM owners WHERE id = 'o-1' FOR KEY SHARE").await.unwrap();
    store.renew_owner("o-1", at(20)).await.unwrap();
    let ending = tokio::spawn({
        let (store, home) = (store.clone(), owner("o-1").home_id);
        async move { store.supersede_owners(&home, "o-2", at(20)).await }
    });
    let blocked = "SELECT 1 FROM pg_locks WHERE NOT granted AND pid IN
                   (SELECT pid FROM pg_stat_activity WHERE datname = current_database())";
    let looker = connect(&url).await;
    until("it waits", async || looker.query_opt(blocked, &[]).await.unwrap()).await;
    assert!(!ending.is_finished(), "it still writes");
    writer.batch_execute("COMMIT").await.unwrap();
    ending.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_wake_reaches_every_server() {
    let url = Server::shared().database();
    let (one, two) = (Store::open(&url).await.unwrap(), Store::open(&url).await.unwrap());
    let (mut here, mut there) = (one.wakes().unwrap(), two.wakes().unwrap());
    until("both listen", async || {
        one.wake("docker");
        let heard = timeout(Duration::from_millis(100), async { (here.recv().await, there.recv().await) });
        matches!(heard.await, Ok((Ok(a), Ok(b))) if a == "docker" && b == "docker").then_some(())
    })
    .await;
}

#[tokio::test]
async fn tls_is_required_and_verified_when_asked_for() {
    let server = Server::start_with_tls();
    let port = server.tcp.unwrap();
    let open = async |host: &str, query: &str| {
        Store::open(&format!("postgres://postgres@{host}:{port}/postgres?{query}")).await
    };
    let encrypted = "SELECT COUNT(*) FILTER (WHERE ssl) || '/' || COUNT(*) FROM pg_stat_ssl
                     JOIN pg_stat_activity USING (pid) WHERE application_name = 'parhelia'";
    let store = open("127.0.0.1", "sslmode=require").await.unwrap();
    store.append_events(vec![event(EventType::ServerStarted)], at(0)).await.unwrap();
    let counted = server.sql("postgres", encrypted);
    let (with, all) = counted.split_once('/').unwrap();
    assert!(with == all && all != "0", "{counted}");
    store.close().await.unwrap();

    let root = server.root().display().to_string();
    open("localhost", &format!("sslmode=verify-full&sslrootcert={root}")).await.unwrap();
    // Not a root of this system, and not the certificate of that name.
    for (host, query) in [
        ("localhost", "sslmode=verify-full".to_owned()),
        ("127.0.0.1", format!("sslmode=verify-full&sslrootcert={root}")),
    ] {
        let error = open(host, &query).await.unwrap_err();
        assert!(matches!(error, StoreError::Denied { .. }), "{error}");
    }
}

/// PostgreSQL is ended again and again under load, both ways. Whatever was acknowledged is there, nothing is
/// there twice, a row and its event are there together, and it all comes back by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_acknowledged_is_lost_or_doubled_when_postgresql_is_killed() {
    let server = Arc::new(Server::start());
    let url = server.database();
    let store = Store::open(&url).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for writer in 0..16_u64 {
        let (store, stop) = (store.clone(), stop.clone());
        writers.spawn(async move {
            let (mut kept, mut failed, mut n) = (vec![], 0_u64, 0_u64);
            while !stop.load(Ordering::Relaxed) {
                let number = writer * 1_000_000 + n;
                let new = intent(number);
                let told = vec![about(EventType::ContainerCreated, &new.id)];
                match store.register(new, told, at(0)).await {
                    // A repetition of something that had been kept after all.
                    Ok(()) | Err(StoreError::Conflict { .. }) => {
                        kept.push(number);
                        n += 1;
                    }
                    // The same again: ids and guards make it safe.
                    Err(StoreError::Unavailable { .. }) => {
                        failed += 1;
                        sleep(Duration::from_millis(5)).await;
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
            (kept, failed)
        });
    }
    for round in 0..6 {
        sleep(Duration::from_millis(400)).await;
        server.tell(if round % 2 == 0 { "kill" } else { "stop" });
        until("the database is away, and says so at once", async || {
            let asked = timeout(Duration::from_secs(10), store.probe()).await;
            asked.expect("an answer").err().filter(StoreError::is_unavailable)
        })
        .await;
        let server = server.clone();
        tokio::task::spawn_blocking(move || {
            server.tell("start");
            server.until_up();
        })
        .await
        .unwrap();
        until("the store is back", async || store.probe().await.ok()).await;
    }
    sleep(Duration::from_millis(300)).await;
    stop.store(true, Ordering::Relaxed);
    let (mut kept, mut failed) = (vec![], 0);
    for (some, more) in writers.join_all().await {
        kept.extend(some);
        failed += more;
    }
    assert!(failed > 0 && kept.len() > 200, "{failed} failed, {} kept", kept.len());
    let rows: HashSet<_> =
        store.active_containers().await.unwrap().into_iter().map(|c| c.id.to_string()).collect();
    let mut told: BTreeMap<String, u32> = BTreeMap::new();
    let filter = EventFilter { limit: Some(i64::MAX), ..Default::default() };
    for event in store.events(&filter).await.unwrap() {
        *told.entry(event.container_id.unwrap()).or_default() += 1;
    }
    let lost: Vec<_> = kept.iter().filter(|n| !rows.contains(intent(**n).id.as_str())).collect();
    assert!(lost.is_empty(), "lost {lost:?}");
    assert!(told.values().all(|count| *count == 1), "told twice");
    assert_eq!(told.keys().cloned().collect::<HashSet<_>>(), rows);
    println!("{} kept, {failed} refused while it was away", kept.len());
}

/// It answers every question and takes nothing: whoever asks whether it is ready must know.
#[tokio::test]
async fn a_database_that_takes_no_write_is_not_ready() {
    let server = Server::start();
    let url = server.database();
    let store = Store::open(&url).await.unwrap();
    store.register_owner(&owner("o-1")).await.unwrap();
    store.probe().await.unwrap();
    let admin = connect(&url).await;
    let full = "CREATE FUNCTION full_disk() RETURNS TRIGGER LANGUAGE plpgsql
        AS 'BEGIN RAISE EXCEPTION ''no space left'' USING ERRCODE = ''53100''; END';
        CREATE TRIGGER full_disk BEFORE UPDATE ON owners FOR EACH ROW EXECUTE FUNCTION full_disk()";
    admin.batch_execute(full).await.unwrap();
    assert!(store.renew_owner("o-1", at(90)).await.unwrap_err().is_unavailable());
    let told = store.probe().await.unwrap_err().to_string();
    assert!(told.contains("no space left"), "{told}");
    assert_eq!(store.owners().await.unwrap().len(), 1, "what is there can be read");
    admin.batch_execute("DROP TRIGGER full_disk ON owners").await.unwrap();
    store.renew_owner("o-1", at(90)).await.unwrap();
    store.probe().await.unwrap();
}

/// A statement that waited inside the database for as long as somebody else leads would keep its dead rows.
#[tokio::test]
async fn whoever_waits_for_the_seat_keeps_nothing_from_being_cleaned_away() {
    let server = Server::start();
    let url = server.database();
    let store = Store::open(&url).await.unwrap();
    let seat = store.seat().unwrap();
    let held = seat.try_take().await.unwrap().unwrap();
    let waiting = tokio::spawn(async move { seat.take(Duration::from_secs(60)).await });
    let admin = connect(&url).await;
    let waits = "SELECT COALESCE(MAX(NOW() - backend_start) > INTERVAL '2 s', FALSE) FROM pg_stat_activity
        WHERE query LIKE '%leadership%' AND pid <> pg_backend_pid()";
    until("somebody has waited for two seconds", async || {
        admin.query_one(waits, &[]).await.unwrap().get::<_, bool>(0).then_some(())
    })
    .await;
    let holding = "SELECT COUNT(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL
        AND NOW() - query_start > INTERVAL '1 s' AND pid <> pg_backend_pid() AND datname = current_database()";
    let holding: i64 = admin.query_one(holding, &[]).await.unwrap().get(0);
    assert_eq!(holding, 0, "a snapshot is held by whoever waits");
    assert!(!waiting.is_finished());
    drop(held);
    timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap().unwrap();
}
