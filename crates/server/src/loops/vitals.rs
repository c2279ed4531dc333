//! Brings the signs of life that providers see themselves to the same intake as everybody's heartbeats. It owns
//! nothing and decides nothing: who is alive is the health loop's to say. Where a provider could not be asked it says
//! so: then nobody there was silent, we were deaf.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parhelia_core::heartbeat::Sample;
use parhelia_core::ids::ContainerId;
use parhelia_core::reconcile::Tracked;
use parhelia_providers::Vitals;
use tokio::sync::watch;
use tracing::{debug, warn};

use super::driver::Ended;
use super::stopped;
use crate::service::{Caller, ProviderHandle, Service};

pub async fn run(service: Arc<Service>, mut shutdown: watch::Receiver<bool>) -> Ended {
    let period = Duration::from_secs(service.config.health.heartbeat_interval_seconds);
    let meter = service.metrics.loops.meter("vitals", "");
    loop {
        let asked = async {
            let pass = meter.begin(service.clock.as_ref());
            let all = service.providers.values().map(|handle| look(&service, handle));
            pass.end(futures::future::join_all(all).await.into_iter().all(|well| well));
        };
        tokio::select! {
            () = stopped(&mut shutdown) => return Ended::Shutdown,
            () = asked => {}
        }
        tokio::select! {
            () = stopped(&mut shutdown) => return Ended::Shutdown,
            () = tokio::time::sleep(period) => {}
        }
    }
}

/// Whether everything went well.
async fn look(service: &Service, handle: &ProviderHandle) -> bool {
    let provider = handle.provider.name();
    let patience = Duration::from_secs(service.config.reconciler.provider_timeout_seconds);
    let vitals = match tokio::time::timeout(patience, handle.provider.vitals()).await {
        Ok(Ok(None)) => return true,
        Ok(Ok(Some(vitals))) => Some(vitals),
        // The reconciler says that it is away.
        Ok(Err(error)) => {
            debug!(provider, %error, "no signs of life could be had");
            None
        }
        Err(_) => {
            debug!(provider, "no signs of life in time");
            None
        }
    };
    let rows = match service.store.tracked(provider).await {
        Ok(rows) => rows,
        Err(error) => {
            warn!(provider, %error, "signs of life could not be attributed");
            return false;
        }
    };
    service.observer.was_deaf_to(rows.iter().filter(|row| !speaks_of(&vitals, row)).map(|row| &row.id));
    let Some(vitals) = vitals else { return false };
    // By the provider's id: a sandbox may carry the tag of another's row, and those of other instances have none.
    let ours: HashMap<String, ContainerId> =
        rows.into_iter().filter_map(|row| Some((row.sandbox_id?, row.id))).collect();
    let samples: Vec<Sample> = vitals
        .seen
        .into_iter()
        .filter_map(|vital| {
            let container_id = ours.get(&vital.sandbox_id)?.clone();
            Some(Sample { container_id, ..vital.sample })
        })
        .collect();
    let mut well = true;
    for batch in samples.chunks(service.config.server.max_batch.max(1) as usize) {
        if let Err(error) = service.heartbeats(batch.to_vec(), &Caller::admin("provider")).await {
            warn!(provider, %error, "signs of life could not be kept");
            well = false;
        }
    }
    well
}

/// Whether whoever answered, if anybody did, would know of this one.
fn speaks_of(vitals: &Option<Vitals>, row: &Tracked) -> bool {
    let known = |vitals: &Vitals| row.provider_identity.as_ref().is_none_or(|it| *it == vitals.identity);
    vitals.as_ref().is_some_and(known)
}
