//! How fast the store is beside the physical limit on the same machine in the same run:
//! `cargo run --release -p parhelia-store --example rate [DIRECTORY]`.
//!
//! The limit is a bare rusqlite loop that commits groups of as many inserts as the store has callers.

#![allow(clippy::disallowed_methods)] // a measurement reads the clock

use std::path::Path;
use std::time::{Duration, Instant};

use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::heartbeat::Sample;
use parhelia_core::ids::ContainerId;
use parhelia_core::sandbox::{Resources, SandboxSpec};
use parhelia_store::{NewContainer, Store, sql};

const CALLERS: usize = 64;
const SPAN: Duration = Duration::from_secs(1);
const ROUNDS: usize = 7;

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn id(n: u64) -> ContainerId {
    ContainerId::mint(1_768_000_000_000 + n, n)
}

fn new_container(n: u64) -> NewContainer {
    let now = "2026-01-21T14:30:00Z".parse().unwrap_or_default();
    let spec = SandboxSpec {
        container_id: id(n),
        instance_id: "bench".into(),
        task_id: None,
        session_id: None,
        name: Some(format!("bench-{n}")),
        image: Some("debian:stable".into()),
        command: vec!["sleep".into(), "1000".into()],
        env: Default::default(),
        workdir: None,
        labels: Default::default(),
        resources: Resources::default(),
        idle_timeout_seconds: None,
        tmux_session: None,
        surroundings: Default::default(),
    };
    NewContainer::intent("process", spec, now)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn event() -> NewEvent {
    NewEvent::new(EventType::ServerStarted, Source::System, "measuring")
}

fn bare(path: &Path) -> Fallible<f64> {
    let connection = rusqlite::Connection::open(path)?;
    connection
        .execute_batch("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=4000")?;
    let mut insert = connection.prepare(sql::EVENT.sqlite())?;
    let (started, mut done) = (Instant::now(), 0_u64);
    while started.elapsed() < SPAN {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for _ in 0..CALLERS {
            let null = None::<&str>;
            let _: i64 = insert.query_row(
                rusqlite::params![
                    "2026-01-21T14:30:00.000Z",
                    "server_started",
                    null,
                    null,
                    null,
                    null,
                    null,
                    null,
                    "measuring",
                    "{}",
                    "system"
                ],
                |row| row.get(0),
            )?;
        }
        connection.execute_batch("COMMIT")?;
        done += CALLERS as u64;
    }
    Ok(done as f64 / started.elapsed().as_secs_f64())
}

async fn many<F>(call: impl Fn(u64) -> F) -> Fallible<f64>
where
    F: Future<Output = Fallible<()>> + Send + 'static,
{
    let started = Instant::now();
    let tasks: Vec<_> = (0..CALLERS as u64).map(|n| tokio::spawn(call(n))).collect();
    let mut done = 0_u64;
    for task in tasks {
        task.await??;
        done += 1;
    }
    Ok(done as f64 / started.elapsed().as_secs_f64())
}

async fn per_second(store: &Store, samples_per_call: usize) -> Fallible<f64> {
    let counter = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (store, count) = (store.clone(), counter.clone());
    let started = Instant::now();
    many(move |n| {
        let (store, count) = (store.clone(), count.clone());
        async move {
            let now = "2026-01-21T14:30:00Z".parse()?;
            let batch: Vec<Sample> =
                (0..samples_per_call as u64).map(|i| Sample::bare(id((n * 7 + i) % 1000))).collect();
            while started.elapsed() < SPAN {
                let units = if batch.is_empty() {
                    store.append_events(vec![event()], now).await?.len()
                } else {
                    store.heartbeats(&batch, now).await?.len()
                };
                count.fetch_add(units as u64, std::sync::atomic::Ordering::Relaxed);
            }
            Ok(())
        }
    })
    .await?;
    Ok(counter.load(std::sync::atomic::Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
}

#[tokio::main]
async fn main() -> Fallible<()> {
    let parent = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let dir = tempfile::tempdir_in(parent)?;
    let limit_path = dir.path().join("limit.db");
    Store::open_sqlite(&limit_path)?.close().await?;
    let store = Store::open_sqlite(&dir.path().join("store.db"))?;
    let now = "2026-01-21T14:30:00Z".parse()?;
    for n in 0..1000 {
        store.register(new_container(n), vec![], now).await?;
    }
    // In turns, and the median of each: other work on the machine then hits both alike.
    let (mut limits, mut rates) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        limits.push(bare(&limit_path)?);
        rates.push(per_second(&store, 0).await?);
    }
    let (limit, rate) = (median(limits), median(rates));
    println!("bare loop, groups of {CALLERS}:        {limit:>9.0} events/s");
    println!("{CALLERS} callers, one event each:     {rate:>9.0} events/s ({:.0} %)", rate / limit * 100.0);
    let rate = per_second(&store, 1).await?;
    println!("{CALLERS} callers, one heartbeat each: {rate:>9.0} heartbeats/s");
    let rate = per_second(&store, 100).await?;
    println!("{CALLERS} callers, 100 heartbeats each:{rate:>9.0} heartbeats/s");

    let mut tasks = tokio::task::JoinSet::new();
    for n in 1000..100_000 {
        let store = store.clone();
        tasks.spawn(async move { store.register(new_container(n), vec![], now).await });
        if n % 500 == 0 {
            while let Some(done) = tasks.join_next().await {
                done??;
            }
        }
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    for _ in 0..3 {
        let started = Instant::now();
        let rows = store.tracked("process").await?.len();
        println!("tracked, {rows} rows: {:>6.1} ms", started.elapsed().as_secs_f64() * 1000.0);
    }
    store.close().await?;
    Ok(())
}
