//! Points at which a server can die: before and after every call to the store and to the provider. A pass
//! is polled a number of times and then dropped, exactly as a SIGKILL would leave it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use parhelia_core::sandbox::{Inspection, Listing, Sandbox, SandboxSpec};
use parhelia_providers::{Capabilities, CreateError, LogChunk, Provider, ProviderError, SandboxRef};
use parhelia_store::{Database, Query, Script, StepOutcome, StoreError, Take};
use tokio::sync::watch;

/// Lets go of the thread once: a place to die.
async fn breath() {
    let mut rested = false;
    poll_fn(|cx| {
        if rested {
            return Poll::Ready(());
        }
        rested = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs `work` until it is done or has breathed `breaths` times; `None` is a death in the middle.
pub(crate) async fn die_after<T>(breaths: Option<u64>, work: impl Future<Output = T>) -> Option<T> {
    let Some(mut left) = breaths else { return Some(work.await) };
    let mut work = pin!(work);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

#[derive(Debug)]
pub(crate) struct MortalDatabase<D>(pub(crate) D);

#[async_trait]
impl<D: Database> Database for MortalDatabase<D> {
    async fn write(&self, script: Script) -> Result<Vec<StepOutcome>, StoreError> {
        breath().await;
        let done = self.0.write(script).await;
        breath().await;
        done
    }

    async fn read(&self, query: Query, take: Take) -> Result<(), StoreError> {
        self.0.read(query, take).await
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.0.probe().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.0.close().await
    }

    fn queue_depth(&self) -> usize {
        self.0.queue_depth()
    }

    fn commits(&self) -> watch::Receiver<i64> {
        self.0.commits()
    }
}

/// The provider behind a network: mortal callers, and (to show that the simulation finds it) the classic
/// mistake of taking a failed question for an empty answer.
#[derive(Debug)]
pub(crate) struct MortalProvider {
    pub(crate) inner: Arc<dyn Provider>,
    pub(crate) failure_is_absence: bool,
}

#[async_trait]
impl Provider for MortalProvider {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn list(&self) -> Result<Listing, ProviderError> {
        breath().await;
        match self.inner.list().await {
            Err(_) if self.failure_is_absence => {
                Ok(Listing { identity: "engine-1".into(), complete: true, sandboxes: Vec::new() })
            }
            answer => answer,
        }
    }

    async fn inspect(&self, sandbox: &SandboxRef) -> Result<Inspection, ProviderError> {
        breath().await;
        match self.inner.inspect(sandbox).await {
            Err(_) if self.failure_is_absence => Ok(Inspection::Absent),
            answer => answer,
        }
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Sandbox, CreateError> {
        breath().await;
        let made = self.inner.create(spec).await;
        breath().await;
        made
    }

    async fn stop(&self, sandbox: &SandboxRef, grace_seconds: u32) -> Result<(), ProviderError> {
        breath().await;
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
