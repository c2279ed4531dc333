//! Ends a container, and forgets an ended one.

use std::sync::Arc;
use std::time::Duration;

use bollard::query_parameters::{
    KillContainerOptionsBuilder, RemoveContainerOptionsBuilder, StopContainerOptionsBuilder,
};
use parhelia_core::sandbox::Phase;

use super::engine::{status, told};
use super::{Inner, observe};
use crate::{ProviderError, SandboxRef};

/// A quick refusal is waited for; a grace is not.
const TAKEN_AFTER: Duration = Duration::from_secs(1);

/// Politely: the engine sends the container's stop signal and kills it after the grace, whether or not we are
/// still there. At once: a kill.
pub(crate) async fn stop(
    inner: &Arc<Inner>,
    sandbox: &SandboxRef,
    grace_seconds: u32,
) -> Result<(), ProviderError> {
    let Some((id, found)) = observe::find(inner, sandbox).await? else { return Ok(()) };
    match found.state.as_ref().map(observe::phase) {
        // Kept for its output; `remove` takes it away.
        Some(Phase::Exited(_)) => return Ok(()),
        // Never started, so there is nothing to stop and nothing to keep.
        Some(Phase::Starting) => return discard(inner, &id).await,
        _ => {}
    }
    let docker = inner.engine.client().await?;
    if grace_seconds == 0 {
        let options = KillContainerOptionsBuilder::default().signal("SIGKILL").build();
        return match docker.kill_container(&id, Some(options)).await {
            // 409: it is not running any more.
            Err(error) if !matches!(status(&error), Some(304 | 404 | 409)) => {
                Err(inner.engine.failed(&error).await)
            }
            _ => Ok(()),
        };
    }
    let patient = docker.with_timeout(Duration::from_secs(u64::from(grace_seconds) + 30));
    let grace = i32::try_from(grace_seconds).unwrap_or(i32::MAX);
    let mut asked = tokio::spawn(async move {
        let options = StopContainerOptionsBuilder::default().t(grace).build();
        patient.stop_container(&id, Some(options)).await
    });
    match tokio::time::timeout(TAKEN_AFTER, &mut asked).await {
        Ok(Ok(Err(error))) if !matches!(status(&error), Some(304 | 404)) => {
            Err(inner.engine.failed(&error).await)
        }
        // It has ended, or its grace runs.
        _ => Ok(()),
    }
}

/// An ended container, with the volumes that nobody named. A running one is refused by the engine.
pub(crate) async fn remove(inner: &Arc<Inner>, sandbox: &SandboxRef) -> Result<(), ProviderError> {
    match observe::find(inner, sandbox).await? {
        None => Ok(()),
        Some((id, found)) => match found.state.as_ref().map(observe::phase) {
            Some(Phase::Exited(_)) => discard(inner, &id).await,
            _ => Err(ProviderError::Rejected(format!("{id} has not ended; only what has ended is removed"))),
        },
    }
}

/// Without force: what has started meanwhile stays.
async fn discard(inner: &Inner, id: &str) -> Result<(), ProviderError> {
    let docker = inner.engine.client().await?;
    let options = RemoveContainerOptionsBuilder::default().v(true).force(false).build();
    match docker.remove_container(id, Some(options)).await {
        Ok(()) => Ok(()),
        Err(error) if status(&error) == Some(404) => Ok(()),
        // Somebody removes it already.
        Err(error) if status(&error) == Some(409) && told(&error).contains("in progress") => Ok(()),
        Err(error) => Err(inner.engine.failed(&error).await),
    }
}
