//! The fake provider as a server reaches it: over a network, so a caller may die around every call.

use async_trait::async_trait;
use parhelia_core::sandbox::{Inspection, Listing, Sandbox, SandboxSpec};
use parhelia_providers::fake::FakeProvider;
use parhelia_providers::{Capabilities, CreateError, LogChunk, Provider, ProviderError, SandboxRef};

use crate::breakage::Breakage;
use crate::happenings::STRAY;
use crate::interrupt::breath;

#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) inner: FakeProvider,
    pub(crate) instance: &'static str,
    pub(crate) breakage: Option<Breakage>,
}

impl Remote {
    fn breaks(&self, breakage: Breakage) -> bool {
        self.breakage == Some(breakage)
    }
}

#[async_trait]
impl Provider for Remote {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        let mut truth = self.inner.capabilities();
        if self.breaks(Breakage::GivenUpAtOnce) {
            truth.create_settles_seconds = 1;
        }
        truth
    }

    async fn list(&self) -> Result<Listing, ProviderError> {
        breath().await;
        let mut answer = self.inner.list().await;
        match (&mut answer, self.breakage) {
            (Err(_), Some(Breakage::FailureIsAbsence)) => {
                let identity = self.inner.world().identity.clone();
                answer = Ok(Listing { identity, complete: true, sandboxes: Vec::new() });
            }
            (Ok(listing), Some(Breakage::EverythingIsOurs)) => {
                listing.sandboxes.iter_mut().for_each(|s| s.tags.instance = self.instance.to_owned());
            }
            (Ok(listing), Some(Breakage::HalfBlind)) => {
                listing.sandboxes.retain(|s| s.command != [STRAY]);
            }
            _ => {}
        }
        answer
    }

    async fn inspect(&self, sandbox: &SandboxRef) -> Result<Inspection, ProviderError> {
        breath().await;
        match self.inner.inspect(sandbox).await {
            Err(_) if self.breaks(Breakage::FailureIsAbsence) => Ok(Inspection::Absent),
            answer => answer,
        }
    }

    /// No breath before it: whoever sleeps on its way out arrives late, and that has a fault of its own. The claim
    /// has taken one.
    async fn create(&self, spec: &SandboxSpec) -> Result<Sandbox, CreateError> {
        let mut made = self.inner.create(spec).await;
        if matches!(made, Err(CreateError::Unknown(_))) && self.breaks(Breakage::BlindRetry) {
            made = self.inner.create(spec).await;
        }
        breath().await;
        made
    }

    async fn stop(&self, sandbox: &SandboxRef, grace_seconds: u32) -> Result<(), ProviderError> {
        breath().await;
        match self.breakage {
            Some(Breakage::StopIsForgotten) => return Ok(()),
            Some(Breakage::StopsTooMuch) => {
                for other in self.inner.list().await?.sandboxes {
                    let (container_id, sandbox_id) = (other.tags.container, Some(other.sandbox_id));
                    self.inner.stop(&SandboxRef { container_id, sandbox_id }, grace_seconds).await?;
                }
            }
            _ => {}
        }
        let told = self.inner.stop(sandbox, grace_seconds).await;
        breath().await;
        told
    }

    async fn logs(
        &self,
        sandbox: &SandboxRef,
        offset: u64,
        max_bytes: usize,
    ) -> Result<LogChunk, ProviderError> {
        self.inner.logs(sandbox, offset, max_bytes).await
    }

    async fn changed(&self) {
        self.inner.changed().await;
    }
}
