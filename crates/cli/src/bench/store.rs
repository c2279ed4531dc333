//! The store beside a bare rusqlite loop that runs the same statements with the same durability.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parhelia_core::Timestamp;
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::heartbeat::Sample;
use parhelia_core::ids::ContainerId;
use parhelia_core::sandbox::SandboxSpec;
use parhelia_store::sqlite::bare_connection;
use parhelia_store::{EventFilter, NewContainer, Store, sql};
use rusqlite::{Connection, Statement, params};

use super::{Ground, Row, median, millis, percentile, stopwatch};

const CALLERS: usize = 64;
const BATCH: usize = 100;
/// Heartbeats of one commit when every caller's batch is in it.
const ALL_AT_ONCE: u64 = (CALLERS * BATCH) as u64;
const FLEET: u64 = 1000;
/// Events whose way to a reader is timed: so many turns of so many.
const TURNS: usize = 20;
const TAILED: usize = 10;

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
    for path in ["limit.db", "store.db"] {
        let store = Store::open_sqlite(&ground.dir.join(path)).map_err(|e| text(&e))?;
        for n in 0..FLEET {
            store.register(intent(n, "process"), vec![], moment()).await.map_err(|e| text(&e))?;
        }
        store.close().await.map_err(|e| text(&e))?;
    }
    let store = Store::open_sqlite(&ground.dir.join("store.db")).map_err(|e| text(&e))?;
    let bare = || bare_connection(&ground.dir.join("limit.db")).map_err(|e| text(&e));
    let (limit, reader) = (bare()?, bare()?);
    // In turns, and the median of each: other work on the machine then hits both alike.
    let mut figures: [Vec<f64>; 7] = Default::default();
    for _ in 0..ground.rounds {
        let (beats, beats_together) = through_store(&store, ground, BATCH).await?;
        let (writes, together) = through_store(&store, ground, 0).await?;
        let raw = |together| raw_heartbeats(&limit, ground, together).map_err(|e| text(&e));
        let raw_writes = raw_events(&limit, ground).map_err(|e| text(&e))?;
        let round = [
            raw(beats_together)?,
            raw(ALL_AT_ONCE)?,
            beats,
            beats_together as f64,
            raw_writes,
            writes,
            together as f64,
        ];
        figures.iter_mut().zip(round).for_each(|(figures, figure)| figures.push(figure));
    }
    let [raw_grouped, raw_at_once, beats, beats_together, raw_writes, writes, together] = figures.map(median);
    let mut rows = vec![
        // The better of the two: a store that groups badly must not lower its own limit.
        Row::share(
            "heartbeats through the store, batches of 100",
            beats,
            "/s",
            raw_grouped.max(raw_at_once),
            "same statements, one loop",
            0.7,
        )
        .because(format!(
            "{beats_together:.0} of them shared a commit; the bare loop does {raw_grouped:.0} /s with as many, \
             and {raw_at_once:.0} /s with {ALL_AT_ONCE}"
        )),
        Row::share("single durable writes, 64 tasks", writes, "/s", raw_writes, "bare group commit", 0.7)
            .because(format!("{together:.0} of them shared a commit, and in the bare loop {CALLERS}")),
    ];
    let (mut bare, mut written, mut committed) = (vec![], vec![], vec![]);
    for _ in 0..TURNS {
        bare.extend(raw_tail(&limit, &reader).map_err(|e| text(&e))?);
        let (from_write, from_commit) = tail_latency(&store).await?;
        written.extend(from_write);
        committed.extend(from_commit);
    }
    for (word, share) in [("p50", 0.5), ("p99", 0.99)] {
        let name = format!("event written to seen in the tail, {word}");
        let limit = percentile(&mut bare, share);
        rows.push(Row::beside(&name, percentile(&mut written, share), "ms", limit, "bare commit and SELECT"));
        let name = format!("event committed to seen in the tail, {word}");
        rows.push(Row::plain(&name, percentile(&mut committed, share), "ms"));
    }
    store.close().await.map_err(|e| text(&e))?;
    Ok(rows)
}

/// The batches of the store's callers, one after the other, `together` heartbeats to a commit.
fn raw_heartbeats(db: &Connection, ground: &Ground, together: u64) -> rusqlite::Result<f64> {
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

fn raw_events(db: &Connection, ground: &Ground) -> rusqlite::Result<f64> {
    let mut insert = db.prepare(sql::EVENT.sqlite())?;
    let (began, mut done) = (stopwatch(), 0_u64);
    while began.elapsed() < ground.span {
        db.execute_batch("BEGIN IMMEDIATE")?;
        for _ in 0..CALLERS {
            raw_event(&mut insert)?;
        }
        db.execute_batch("COMMIT")?;
        done += CALLERS as u64;
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

fn raw_event(insert: &mut Statement<'_>) -> rusqlite::Result<i64> {
    let (at, none) = ("2026-01-21T00:00:00.000Z", None::<&str>);
    let row = params![
        at,
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
    insert.query_row(row, |row| row.get(0))
}

/// The least that it can take, in milliseconds: a commit of one event, and one question by another connection.
fn raw_tail(db: &Connection, reader: &Connection) -> rusqlite::Result<Vec<f64>> {
    let mut insert = db.prepare(sql::EVENT.sqlite())?;
    let mut look = reader.prepare(sql::LAST_EVENT.sqlite())?;
    let mut waits = Vec::new();
    for _ in 0..TAILED {
        let began = stopwatch();
        let told = raw_event(&mut insert)?;
        let seen: i64 = look.query_row([], |row| row.get(0))?;
        waits.push(millis(began));
        debug_assert_eq!(told, seen);
    }
    Ok(waits)
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

/// Until a reader of the tail has the event, in milliseconds: from before it is written, and from the moment that this is
/// acknowledged.
async fn tail_latency(store: &Store) -> Result<(Vec<f64>, Vec<f64>), String> {
    let text = |e: parhelia_store::StoreError| e.to_string();
    let (mut from_write, mut from_commit) = (Vec::new(), Vec::new());
    let mut commits = store.subscribe_commits();
    for _ in 0..TAILED {
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
        let began = stopwatch();
        store.append_events(vec![event], moment()).await.map_err(text)?;
        let committed = stopwatch();
        let (_, seen) = tail.await.map_err(|e| e.to_string())?.map_err(text)?;
        let after = |moment| seen.saturating_duration_since(moment).as_secs_f64() * 1000.0;
        from_write.push(after(began));
        from_commit.push(after(committed));
    }
    Ok((from_write, from_commit))
}
