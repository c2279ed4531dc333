//! Retention: raw heartbeats become hourly aggregates, and what is older than its horizon goes.

use std::time::Duration;

use parhelia_core::Timestamp;
use parhelia_core::time::plus_seconds;
use parhelia_store::StoreError;
use tokio::sync::watch;
use tracing::{error, info};

use super::driver::Ended;
use super::{Context, stopped};

/// Rows per transaction, so that writers with somebody waiting are never held up for long.
const CHUNK: i64 = 5_000;

pub async fn pass(context: &Context) -> Result<(), StoreError> {
    let Context { store, fence, config, clock, .. } = context;
    let keep = &config.retention;
    let ago = |seconds: u64| plus_seconds(clock.now(), -i64::try_from(seconds).unwrap_or(i64::MAX / 2));
    let raw_before: Timestamp = ago(keep.raw_heartbeat_hours * 3600);
    let mut folded = 0;
    loop {
        let report = store.aggregate_heartbeats(fence, raw_before, CHUNK).await?;
        folded += report.folded;
        if !report.more {
            break;
        }
    }
    let mut events = 0;
    loop {
        let gone = store.delete_old_events(fence, ago(keep.event_days * 86_400), CHUNK).await?;
        events += gone;
        if gone < CHUNK {
            break;
        }
    }
    let mut deliveries = 0;
    loop {
        let gone = store.delete_old_deliveries(fence, ago(keep.event_days * 86_400), CHUNK).await?;
        deliveries += gone;
        if gone < CHUNK {
            break;
        }
    }
    let hours = store.delete_old_heartbeat_hours(fence, ago(keep.heartbeat_hour_days * 86_400)).await?;
    let cycles = store.delete_old_cycles(fence, ago(keep.cycle_hours * 3600)).await?;
    if folded + events + deliveries + hours + cycles > 0 {
        info!(folded, events, deliveries, hours, cycles, "retention");
    }
    Ok(())
}

pub async fn run(context: Context, mut shutdown: watch::Receiver<bool>) -> Ended {
    let meter = context.metrics.loops.meter("retention", "");
    let period = Duration::from_secs(context.config.retention.interval_seconds);
    loop {
        // Not at once: a machine that has just booted may not have its time yet, and what is deleted is gone.
        tokio::select! {
            () = stopped(&mut shutdown) => return Ended::Shutdown,
            () = tokio::time::sleep(period) => {}
        }
        let under_way = meter.begin(context.clock.as_ref());
        let passed = pass(&context).await;
        under_way.end(passed.is_ok());
        match passed {
            Ok(()) => {}
            Err(StoreError::Fenced { .. }) => return Ended::Fenced,
            Err(e) => error!(error = %e, "a retention pass failed; the next one starts afresh"),
        }
    }
}
