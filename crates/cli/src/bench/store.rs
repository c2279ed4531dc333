//! The store beside a bare rusqlite loop that runs the same statements with the same durability.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parhelia_core::Timestamp;
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::heartbeat::Sample;
use parhelia_core::ids::ContainerId;
use parhelia_core::sandbox::SandboxSpec;
use parhelia_store::{EventFilter, NewContainer, Store, sql};
use rusqlite::{Connection, params};

use super::{Ground, Row, median, percentile, stopwatch};

const CALLERS: usize = 64;
const BATCH: usize = 100;
const FLEET: u64 = 1000;

pub(super) fn id(n: u64) -> ContainerId {
    ContainerId::mint(1_768_000_000_000 + n, n)
}

pub(super) fn moment() -> Timestamp {
    Timestamp::from_second(1_768_953_600).unwrap_or_default()
}

pub(super) fn intent(n: u64, provider: &str) -> NewContainer {
    let spec = SandboxSpec {
        container_id: id(n),
        instance_id: "bench".into(),
        task_id: None,
        session_id: None,
        name: Some(format!("bench-{n}")),
        image: None,
        command: vec!["sleep".into(), "1000".into()],
        env: Default::default(),
        workdir: None,
        labels: Default::default(),
        resources: Default::default(),
        idle_timeout_seconds: None,
        tmux_session: None,
        job: None,
        surroundings: Default::default(),
    };
    NewContainer::intent(provider, spec, moment())
}

pub(super) fn sample(n: u64) -> Sample {
    Sample { cpu_percent: Some(12.5), memory_mb: Some(512), uptime_seconds: Some(60), ..Sample::bare(id(n)) }
}

pub(super) async fn measure(ground: &Ground) -> Result<Vec<Row>, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let limit_path = ground.dir.join("limit.db");
    for path in ["limit.db", "store.db"] {
        let store = Store::open_sqlite(&ground.dir.join(path)).map_err(|e| text(&e))?;
        for n in 0..FLEET {
            store.register(intent(n, "process"), vec![], moment()).await.map_err(|e| text(&e))?;
        }
        store.close().await.map_err(|e| text(&e))?;
    }
    let store = Store::open_sqlite(&ground.dir.join("store.db")).map_err(|e| text(&e))?;
    // In turns, and the median of each: other work on the machine then hits both alike.
    let mut figures: [Vec<f64>; 5] = Default::default();
    for _ in 0..ground.rounds {
        let (beats, beats_together) = through_store(&store, ground, BATCH).await?;
        figures[0].push(raw_heartbeats(&limit_path, ground, beats_together).map_err(|e| text(&e))?);
        figures[1].push(beats);
        figures[2].push(raw_events(&limit_path, ground).map_err(|e| text(&e))?);
        let (writes, together) = through_store(&store, ground, 0).await?;
        figures[3].push(writes);
        figures[4].push(together as f64);
    }
    let [raw_beats, beats, raw_writes, writes, together] = figures.map(median);
    let tail = tail_latency(&store).await?;
    store.close().await.map_err(|e| text(&e))?;
    Ok(vec![
        Row::share(
            "heartbeats through the store, batches of 100",
            beats,
            "/s",
            raw_beats,
            "same statements and commits, one loop",
            0.7,
        ),
        Row::share("single durable writes, 64 tasks", writes, "/s", raw_writes, "bare group commit", 0.7)
            .because(format!("{together:.0} of them shared a commit, and in the bare loop {CALLERS}")),
        tail,
    ])
}

/// Set up as the store's own connection is.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open(path)?;
    db.execute_batch(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=4000; \
         PRAGMA journal_size_limit=67108864; PRAGMA cache_size=-32768; PRAGMA temp_store=memory; \
         PRAGMA foreign_keys=ON",
    )?;
    Ok(db)
}

/// The batches of the store's callers, one after the other, `together` heartbeats to a commit: as many as the
/// store did just before.
fn raw_heartbeats(path: &Path, ground: &Ground, together: u64) -> rusqlite::Result<f64> {
    let db = open(path)?;
    let mut touch = db.prepare(sql::HEARTBEAT_TOUCH.sqlite())?;
    let mut insert = db.prepare(sql::HEARTBEAT_INSERT.sqlite())?;
    let mut workers = db.prepare(sql::HEARTBEAT_WORKERS.sqlite())?;
    let now = "2026-01-21T00:00:00.000Z";
    let none = None::<f64>;
    let ids: Vec<String> = (0..FLEET).map(|n| id(n).to_string()).collect();
    let batches = (together / BATCH as u64).max(1);
    let (began, mut done) = (stopwatch(), 0_u64);
    while began.elapsed() < ground.span {
        db.execute_batch("BEGIN IMMEDIATE")?;
        for caller in 0..batches {
            let batch = || batch_of(caller % CALLERS as u64).map(|n| &ids[n as usize]);
            for id in batch() {
                touch.execute(params![id, now, 12.5, none, 512, none, 60])?;
            }
            for id in batch() {
                insert.execute(params![id, now, 12.5, none, 512, none, 60, none, none, "{}"])?;
            }
            for id in batch() {
                workers.execute(params![id, now])?;
            }
        }
        db.execute_batch("COMMIT")?;
        done += batches * BATCH as u64;
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

/// Which containers a caller's heartbeats are of.
fn batch_of(caller: u64) -> impl Iterator<Item = u64> {
    (0..BATCH as u64).map(move |i| (caller * 7 + i) % FLEET)
}

fn raw_events(path: &Path, ground: &Ground) -> rusqlite::Result<f64> {
    let db = open(path)?;
    let mut insert = db.prepare(sql::EVENT.sqlite())?;
    let none = None::<&str>;
    let (began, mut done) = (stopwatch(), 0_u64);
    while began.elapsed() < ground.span {
        db.execute_batch("BEGIN IMMEDIATE")?;
        for _ in 0..CALLERS {
            let row = params![
                "2026-01-21T00:00:00.000Z",
                "server_started",
                none,
                none,
                none,
                none,
                none,
                none,
                "measuring",
                "{}",
                "system",
                none,
                none
            ];
            let _: i64 = insert.query_row(row, |row| row.get(0))?;
        }
        db.execute_batch("COMMIT")?;
        done += CALLERS as u64;
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

/// `batch` heartbeats a call, or one event a call when it is 0: how many a second, and how many the store
/// committed together.
async fn through_store(store: &Store, ground: &Ground, batch: usize) -> Result<(f64, u64), String> {
    let committed_before = store.transactions().unwrap_or(0);
    let counted = Arc::new(AtomicU64::new(0));
    let began = stopwatch();
    let span = ground.span;
    let tasks: Vec<_> = (0..CALLERS as u64)
        .map(|n| {
            let (store, counted) = (store.clone(), counted.clone());
            tokio::spawn(async move {
                let samples: Vec<Sample> = batch_of(n).take(batch).map(sample).collect();
                while began.elapsed() < span {
                    let done = if samples.is_empty() {
                        let event = NewEvent::new(EventType::ServerStarted, Source::System, "measuring");
                        store.append_events(vec![event], moment()).await.map(|ids| ids.len())
                    } else {
                        store.heartbeats(&samples, moment()).await.map(|known| known.len())
                    };
                    counted.fetch_add(done.map_err(|e| e.to_string())? as u64, Ordering::Relaxed);
                }
                Ok::<(), String>(())
            })
        })
        .collect();
    for task in tasks {
        task.await.map_err(|e| e.to_string())??;
    }
    let (done, seconds) = (counted.load(Ordering::Relaxed), began.elapsed().as_secs_f64());
    let commits = store.transactions().unwrap_or(0).saturating_sub(committed_before).max(1);
    Ok((done as f64 / seconds, (done / commits).max(1)))
}

/// From the moment a write is acknowledged until a reader of the tail has the event.
async fn tail_latency(store: &Store) -> Result<Row, String> {
    let text = |e: parhelia_store::StoreError| e.to_string();
    let mut waits = Vec::new();
    let mut commits = store.subscribe_commits();
    for _ in 0..200 {
        let after = store.last_event_id().await.map_err(text)?;
        commits.borrow_and_update();
        let reader = store.clone();
        let mut signal = commits.clone();
        let tail = tokio::spawn(async move {
            let _ = signal.changed().await;
            let filter = EventFilter { after_id: Some(after), limit: Some(1), ..EventFilter::default() };
            reader.events(&filter).await.map(|events| (events.len(), stopwatch()))
        });
        let event = NewEvent::new(EventType::ServerStarted, Source::System, "measuring");
        store.append_events(vec![event], moment()).await.map_err(text)?;
        let committed = stopwatch();
        let (_, seen) = tail.await.map_err(|e| e.to_string())?.map_err(text)?;
        waits.push(seen.saturating_duration_since(committed).as_secs_f64() * 1000.0);
    }
    Ok(Row::plain("event committed to seen in the tail, p99", percentile(&mut waits, 0.99), "ms"))
}
