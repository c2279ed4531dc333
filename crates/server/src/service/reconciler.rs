//! What the reconciler did last, from the store, so that it is true from any process and after a restart.

use std::time::Duration;

use futures::future::join_all;
use parhelia_core::api::{CycleView, ProviderStatus, ReconcilerStatus};
use parhelia_store::Cycle;

use super::{ProviderHandle, Service, ServiceError};
use crate::loops::stopped;

impl Service {
    pub async fn reconciler_status(&self) -> Result<ReconcilerStatus, ServiceError> {
        let mut providers = Vec::with_capacity(self.providers.len());
        for name in self.providers.keys() {
            providers.push(self.provider_status(name).await?);
        }
        let cycles = || providers.iter().filter_map(|p| p.last_cycle.as_ref());
        let settings = &self.config.reconciler;
        Ok(ReconcilerStatus {
            running: !*self.shutdown.borrow(),
            last_run_at: cycles().map(|c| c.finished_at).max(),
            next_run_at: cycles().filter_map(|c| c.next_at).min(),
            poll_interval_seconds: settings.poll_interval_seconds,
            auto_terminate_orphans: settings.auto_terminate_orphans,
            auto_terminate_stale: settings.auto_terminate_stale,
            providers,
        })
    }

    pub(super) async fn provider_status(&self, name: &str) -> Result<ProviderStatus, ServiceError> {
        let memory = self.store.provider_memory(name).await?;
        Ok(ProviderStatus {
            name: name.to_owned(),
            identity: memory.identity,
            unreachable_since: memory.unreachable_since,
            breaker_since: memory.breaker_since,
            breaker_agreed: memory.breaker_agreed,
            last_cycle: self.store.last_cycle(name).await?.map(cycle_view),
        })
    }

    /// A pass over every provider, begun after this call and ended before it returns.
    pub async fn reconcile_now(&self) -> Result<ReconcilerStatus, ServiceError> {
        let passes = self.providers.iter().map(|(name, handle)| self.pass_over(name, handle));
        for made in join_all(passes).await {
            if !made? {
                return Err(ServiceError::Unavailable {
                    message: "the reconciler is not running".into(),
                    fix: "the server is stopping, or no server leads; repeat the request in a moment".into(),
                });
            }
        }
        self.reconciler_status().await
    }

    /// What another server reconciles is asked of it, and seen in the record of its pass.
    async fn pass_over(&self, name: &str, handle: &ProviderHandle) -> Result<bool, ServiceError> {
        let patience = Duration::from_secs(self.config.reconciler.provider_timeout_seconds + 30);
        if self.reconciles(handle) {
            return match tokio::time::timeout(patience, handle.requests.pass()).await {
                Ok(Some(Ok(()))) => Ok(true),
                Ok(Some(Err(why))) => Err(ServiceError::Unavailable {
                    message: format!("the pass over {name} failed: {why}"),
                    fix: "nothing was concluded from it and it is tried again by itself; the server's log tells more".into(),
                }),
                Ok(None) | Err(_) => Ok(false),
            };
        }
        let before = self.store.last_cycle(name).await?.map_or(0, |cycle| cycle.id);
        let deadline = self.clock.monotonic() + patience;
        let mut shutdown = self.shutdown.clone();
        while self.clock.monotonic() < deadline {
            self.store.wake(name);
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(500)) => {}
                () = stopped(&mut shutdown) => return Ok(false),
            }
            if self.store.last_cycle(name).await?.is_some_and(|cycle| cycle.id > before) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

pub(super) fn cycle_view(cycle: Cycle) -> CycleView {
    let counts = cycle.counts;
    CycleView {
        id: cycle.id,
        provider: cycle.provider,
        trigger: cycle.trigger,
        started_at: cycle.started_at,
        finished_at: cycle.finished_at,
        duration_ms: cycle.duration_ms as f64,
        outcome: cycle.outcome.to_string(),
        error: cycle.error,
        provider_containers: counts.sandboxes,
        db_containers: counts.rows,
        suspected: counts.suspected,
        orphans_detected: counts.orphans,
        adopted: counts.adopted,
        started: counts.started,
        terminated: counts.terminated,
        state_corrections: counts.corrections,
        foreign: counts.foreign,
        actions: cycle.actions,
        failures: cycle.failures,
        waiting: cycle.waiting,
        next_at: cycle.next_at,
    }
}
