//! Cleanup: shows what qualifies; ends exactly what was shown, after asking its provider once more.

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use parhelia_core::api::{
    CleanupKind, CleanupOutcome, CleanupReport, CleanupRequest, CleanupVerdict, ContainerView,
};
use parhelia_core::ids::ContainerId;
use parhelia_core::sandbox::{Inspection, Phase};
use parhelia_core::state::{ContainerState, Desired, Health, TerminationReason};
use parhelia_providers::SandboxRef;
use parhelia_store::ContainerFilter;

use super::{Caller, Service, ServiceError};

const GRACE_SECONDS: i64 = 10;
/// Sandboxes that are asked about at once.
const AT_ONCE: usize = 16;

impl Service {
    pub async fn cleanup(
        &self,
        request: CleanupRequest,
        caller: &Caller,
    ) -> Result<CleanupReport, ServiceError> {
        let Some(ids) = &request.ids else {
            let candidates = self.candidates(&request).await?;
            return Ok(CleanupReport { candidates, outcomes: Vec::new() });
        };
        let most = self.config.server.max_batch as usize;
        if ids.len() > most {
            return Err(ServiceError::invalid(
                format!("{} ids are too many", ids.len()),
                format!("send at most {most}"),
            ));
        }
        // Side by side: one provider call that hangs must not keep the rest waiting.
        let cleaning: Vec<BoxFuture<'_, _>> =
            ids.iter().map(|id| self.clean(id, &request, caller).boxed()).collect();
        let verdicts: Vec<_> = futures::stream::iter(cleaning).buffered(AT_ONCE).collect().await;
        let mut outcomes = Vec::with_capacity(ids.len());
        for (id, verdict) in ids.iter().zip(verdicts) {
            let (verdict, message) = verdict?;
            outcomes.push(CleanupOutcome { id: id.clone(), verdict, message });
        }
        Ok(CleanupReport { candidates: Vec::new(), outcomes })
    }

    async fn candidates(&self, request: &CleanupRequest) -> Result<Vec<ContainerView>, ServiceError> {
        let filter = match request.kind {
            CleanupKind::Orphans => {
                ContainerFilter { states: vec![ContainerState::Orphaned], ..Default::default() }
            }
            CleanupKind::Dead => {
                ContainerFilter { health: vec![Health::Dead], active_only: true, ..Default::default() }
            }
        };
        let now = self.clock.now();
        let rows = self.store.containers(&filter).await?;
        let views = rows.into_iter().map(|c| self.view(c, None, now));
        Ok(views.filter(|v| qualifies(v, request).is_ok()).collect())
    }

    async fn clean(
        &self,
        id: &ContainerId,
        request: &CleanupRequest,
        caller: &Caller,
    ) -> Result<(CleanupVerdict, String), ServiceError> {
        let Some(record) = self.store.container(id).await? else {
            return Ok((CleanupVerdict::Skipped, "there is no such container".into()));
        };
        let view = self.view(record, None, self.clock.now());
        if let Err(why) = qualifies(&view, request) {
            return Ok((CleanupVerdict::Skipped, why));
        }
        let handle = match self.provider(&view.record.provider) {
            Ok(handle) => handle,
            Err(e) => return Ok((CleanupVerdict::Unverified, e.to_string())),
        };
        let answering = self.store.provider_memory(&view.record.provider).await?.identity;
        if let (Some(at), Some(answering)) = (&view.record.provider_identity, &answering)
            && at != answering
        {
            let why = format!("it is at {at}, and another one answers now ({answering})");
            return Ok((CleanupVerdict::Unverified, why));
        }
        let sandbox = SandboxRef { container_id: id.clone(), sandbox_id: view.record.sandbox_id.clone() };
        let timeout = std::time::Duration::from_secs(self.config.reconciler.provider_timeout_seconds);
        let inspection = match tokio::time::timeout(timeout, handle.provider.inspect(&sandbox)).await {
            Ok(Ok(inspection)) => inspection,
            Ok(Err(e)) => {
                return Ok((CleanupVerdict::Unverified, format!("its provider could not be asked: {e}")));
            }
            Err(_) => return Ok((CleanupVerdict::Unverified, "its provider did not answer in time".into())),
        };
        let reason = match request.kind {
            CleanupKind::Orphans => TerminationReason::OrphanCleanup,
            CleanupKind::Dead => TerminationReason::DeadCleanup,
        };
        match inspection {
            Inspection::Present(found) if found.phase.is_alive() => {
                // Asking may have taken a while: a heartbeat, or somebody's adoption, counts.
                let record = self.store.container(id).await?;
                if let Some(Err(why)) =
                    record.map(|r| qualifies(&self.view(r, None, self.clock.now()), request))
                {
                    return Ok((CleanupVerdict::Skipped, why));
                }
                self.desire_end(id, reason, GRACE_SECONDS, None, caller).await?;
                Ok((CleanupVerdict::Requested, "termination requested".into()))
            }
            Inspection::Present(found) => match found.phase {
                Phase::Unknown { why } => Ok((CleanupVerdict::Unverified, why)),
                _ => {
                    self.poke(handle.provider.name());
                    Ok((CleanupVerdict::AlreadyGone, "it has already ended".into()))
                }
            },
            Inspection::Absent => {
                self.poke(handle.provider.name());
                Ok((CleanupVerdict::AlreadyGone, "its provider no longer has it".into()))
            }
        }
    }
}

fn qualifies(view: &ContainerView, request: &CleanupRequest) -> Result<(), String> {
    let record = &view.record;
    let fits = match request.kind {
        CleanupKind::Orphans => record.state == ContainerState::Orphaned,
        CleanupKind::Dead => record.state.is_active() && record.health_status == Health::Dead,
    };
    if !fits {
        return Err(format!("it is {} and {} now", record.state, record.health_status));
    }
    if record.desired == Desired::Terminated
        && record.stop_error.is_none()
        && record.stop_confirmed_at.is_some()
    {
        return Err("it is already being ended".into());
    }
    if request.older_than_seconds.is_some_and(|least| view.age < least) {
        return Err(format!("it is only {}s old", view.age));
    }
    Ok(())
}
