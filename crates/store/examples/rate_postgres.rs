//! How fast the store is on a PostgreSQL: `cargo run --release -p parhelia-store --example rate_postgres URL`, with an
//! empty database. Group sizes come by themselves, from how many wait.

#![allow(clippy::disallowed_methods)] // a measurement reads the clock

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::heartbeat::Sample;
use parhelia_core::ids::ContainerId;
use parhelia_core::sandbox::{Resources, SandboxSpec};
use parhelia_store::{NewContainer, Store};

const CALLERS: u64 = 64;
const SPAN: Duration = Duration::from_secs(3);

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn id(n: u64) -> ContainerId {
    ContainerId::mint(1_768_000_000_000 + n, n)
}

fn new_container(n: u64) -> NewContainer {
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
        resources: Resources::default(),
        idle_timeout_seconds: None,
        tmux_session: None,
        surroundings: Default::default(),
    };
    NewContainer::intent("process", spec, "2026-01-21T14:30:00Z".parse().unwrap_or_default())
}

/// What 64 callers get done, each waiting for its own.
async fn per_second<F>(work: impl Fn(u64, u64) -> F + Clone + Send + 'static) -> Fallible<f64>
where
    F: Future<Output = Fallible<u64>> + Send + 'static,
{
    let (started, done) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let (work, done) = (work.clone(), done.clone());
        tasks.spawn(async move {
            let mut n = 0;
            while started.elapsed() < SPAN {
                done.fetch_add(work(caller, n).await?, Ordering::Relaxed);
                n += 1;
            }
            Fallible::Ok(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
}

#[tokio::main]
async fn main() -> Fallible<()> {
    let url = std::env::args().nth(1).ok_or("give the address of an empty database")?;
    let store = Store::open_postgres(&url).await?;
    let now = "2026-01-21T14:30:00Z".parse()?;
    for n in 0..1000 {
        store.register(new_container(n), vec![], now).await?;
    }
    let event = || NewEvent::new(EventType::ServerStarted, Source::System, "measuring");
    let s = store.clone();
    let rate = per_second(move |_, _| {
        let s = s.clone();
        async move { Ok(s.append_events(vec![event()], now).await?.len() as u64) }
    });
    println!("{CALLERS} callers, one event each:       {:>9.0}/s", rate.await?);
    let s = store.clone();
    let rate = per_second(move |caller, n| {
        let s = s.clone();
        async move {
            s.register(new_container(1_000_000 * (caller + 1) + n), vec![event()], now).await?;
            Ok(1)
        }
    });
    println!("{CALLERS} callers, one container each:   {:>9.0}/s", rate.await?);
    for size in [1, 100] {
        let s = store.clone();
        let rate = per_second(move |caller, n| {
            let s = s.clone();
            async move {
                let batch: Vec<Sample> =
                    (0..size).map(|i| Sample::bare(id((caller * 7 + n + i) % 1000))).collect();
                Ok(s.heartbeats(&batch, now).await?.len() as u64)
            }
        });
        println!("{CALLERS} callers, {size:>3} heartbeats each:  {:>9.0}/s", rate.await?);
    }
    store.close().await?;
    Ok(())
}
