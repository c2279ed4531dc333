//! One pass of the reconciler over a fleet that has not changed.

use std::sync::Arc;

use parhelia_core::config::Config;
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::state::ContainerState;
use parhelia_core::time::{Clock, plus_seconds};
use parhelia_providers::SystemClock;
use parhelia_providers::fake::{FakeProvider, World};
use parhelia_server::entropy::SystemEntropy;
use parhelia_server::loops::Context;
use parhelia_server::loops::health::Observer;
use parhelia_server::loops::reconciler::Reconciler;
use parhelia_store::{Fence, Owner, Store};

use super::server::{cpu_seconds, memory_mb, reset_peak};
use super::store::{intent, moment};
use super::{Ground, Row, median, millis, stopwatch};

/// Of which the median counts.
const PASSES: usize = 5;

pub(super) async fn measure(ground: &Ground, quick: bool) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let sizes: &[(u64, f64)] = if quick { &[(1_000, 100.0)] } else { &[(10_000, 100.0), (100_000, 1500.0)] };
    for &(size, most) in sizes {
        let seen = passes(ground, size).await?;
        let name = format!("reconcile pass over {size} unchanged containers");
        rows.push(Row::below(&name, seen.pass_ms, "ms", most).because(format!(
            "of the processors it takes {:.0} ms, the provider's listing in them",
            seen.cpu_ms
        )));
        rows.push(Row::plain(&format!("memory that the pass over {size} adds (peak)"), seen.added_mb, "MB"));
    }
    Ok(rows)
}

/// What a pass takes.
struct Seen {
    pass_ms: f64,
    cpu_ms: f64,
    added_mb: f64,
}

async fn passes(ground: &Ground, size: u64) -> Result<Seen, String> {
    let text = |e: parhelia_store::StoreError| e.to_string();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = Store::open_sqlite(&ground.dir.join(format!("reconcile-{size}.db"))).map_err(text)?;
    let instance = store.this_instance("bench", moment()).await.map_err(text)?;
    let lease_until = plus_seconds(clock.now(), 3600);
    let owner = Owner {
        id: "bench".into(),
        home_id: "bench".into(),
        host: "bench".into(),
        boot_id: "bench".into(),
        epoch: 0,
        started_at: moment(),
        lease_until,
        ended_at: None,
        version: parhelia_core::VERSION.into(),
    };
    store.register_owner(&owner).await.map_err(text)?;
    let epoch = store.take_leadership("bench", lease_until, clock.now(), true).await.map_err(text)?;
    let fence = Fence { owner_id: "bench".into(), epoch };

    let mut world = World::new("engine");
    let mut writes = tokio::task::JoinSet::new();
    for n in 0..size {
        let mut row = intent(n, "fake");
        let Some(spec) = row.spec.as_mut() else { continue };
        spec.instance_id.clone_from(&instance);
        let sandbox = world.start(spec, clock.now(), clock.now());
        row.instance_id.clone_from(&instance);
        row.state = ContainerState::Running;
        row.sandbox_id = Some(sandbox.sandbox_id);
        row.provider_identity = Some("engine".into());
        row.started_at = Some(clock.now());
        row.cost_rate_per_hour = Some(0.0);
        let event =
            NewEvent::new(EventType::ContainerStarted, Source::Reconciler, "bench").container(&row.id);
        let (store, now) = (store.clone(), clock.now());
        writes.spawn(async move { store.register(row, vec![event], now).await });
        if n % 512 == 511 {
            while let Some(done) = writes.join_next().await {
                done.map_err(|e| e.to_string())?.map_err(text)?;
            }
        }
    }
    while let Some(done) = writes.join_next().await {
        done.map_err(|e| e.to_string())?.map_err(text)?;
    }
    let context = Context {
        store: store.clone(),
        fence,
        config: Arc::new(Config::default()),
        clock: clock.clone(),
        entropy: Arc::new(SystemEntropy::default()),
        observer: Arc::new(Observer::new(clock.clone())),
        metrics: Arc::default(),
    };
    let reconciler = Reconciler::new(context, Arc::new(FakeProvider::in_memory("fake", world, clock)));
    reconciler.pass("warm").await.map_err(text)?;
    // What the first pass freed would otherwise be there already when the others take it.
    crate::give_back::heap();
    let before = memory_mb("self", "VmRSS");
    reset_peak();
    let cpu_before = cpu_seconds("/proc/self".into());
    let mut took = Vec::new();
    for _ in 0..PASSES {
        let began = stopwatch();
        let report = reconciler.pass("bench").await.map_err(text)?;
        if report.busy || report.failures > 0 {
            return Err("the fleet was not quiet".into());
        }
        took.push(millis(began));
    }
    let cpu_ms = (cpu_seconds("/proc/self".into()) - cpu_before) * 1000.0 / PASSES as f64;
    let added_mb = (memory_mb("self", "VmHWM") - before).max(0.0);
    store.close().await.map_err(text)?;
    Ok(Seen { pass_ms: median(took), cpu_ms, added_mb })
}
