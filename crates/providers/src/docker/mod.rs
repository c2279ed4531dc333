//! Sandboxes as containers of a Docker engine, through its own interface. Our id is the container's name, so
//! the engine itself refuses a second one; the tags are labels, set when it is made.
//!
//! It refuses to guess: an engine that does not answer, answers in part or is another one than before gives an
//! error, another identity or `Phase::Unknown`, never an absence. It removes nothing unless it is told to.

mod create;
pub mod engine;
mod files;
mod inside;
mod logs;
mod observe;
mod secrets;
mod stats;
mod stop;
mod watch;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parhelia_core::config::DockerSupervisor;
use parhelia_core::sandbox::{
    Inspection, Listing, Sandbox, SandboxSpec, TAG_CONTAINER, TAG_INSTANCE, TAG_TASK,
};
use parhelia_core::time::Clock;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use self::engine::{Address, Engine};
use crate::{Capabilities, CreateError, LogChunk, Provider, ProviderError, SandboxRef, Vitals};

/// What people call it; the container's own name is our id.
pub(crate) const LABEL_NAME: &str = "parhelia.name";
/// Somebody inside beats for it.
pub(crate) const LABEL_SUPERVISOR: &str = "parhelia.supervisor";
pub(crate) const OUR_LABELS: [&str; 5] =
    [TAG_INSTANCE, TAG_CONTAINER, TAG_TASK, LABEL_NAME, LABEL_SUPERVISOR];

/// An unanswered create may be carried out by the engine this much later.
const CREATE_SETTLES_SECONDS: u32 = 30;

#[derive(Debug, Clone)]
pub struct DockerConfig {
    pub address: Address,
    /// How long one answer of the engine may take.
    pub timeout: Duration,
    pub pull: bool,
    /// How long an ended container is kept for its output.
    pub remove_after_seconds: u64,
    /// Secrets are files in here; what is not there is looked for in the environment.
    pub secrets: PathBuf,
    pub supervisor: Supervisor,
    pub clock: Arc<dyn Clock>,
}

/// How a supervisor of ours comes into a container, and what it needs there.
#[derive(Debug, Clone)]
pub struct Supervisor {
    pub mode: DockerSupervisor,
    /// Our own binary, to be mounted.
    pub binary: PathBuf,
    /// A directory that holds nothing but the socket for heartbeats.
    pub door: PathBuf,
    pub heartbeat_interval_seconds: u64,
}

#[derive(Debug)]
pub struct DockerProvider {
    inner: Arc<Inner>,
    watching: JoinHandle<()>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: DockerConfig,
    pub(crate) engine: Engine,
    hint: Notify,
    memory: Mutex<Memory>,
    positions: Mutex<logs::Positions>,
    meters: Mutex<HashMap<String, stats::Meter>>,
    quarantined: Mutex<Quarantined>,
}

/// Details that a listing need not ask for again. Only used while the engine tells us of every change.
#[derive(Debug, Default)]
struct Memory {
    listening: bool,
    /// Grows with every event heard.
    epoch: u64,
    known: HashMap<String, Known>,
}

#[derive(Debug)]
struct Known {
    state: String,
    sandbox: Sandbox,
}

#[derive(Debug, Default)]
struct Quarantined {
    sentences: Vec<String>,
    said: HashSet<String>,
}

impl DockerProvider {
    /// Begins to listen for changes; needs a runtime. The engine may be away.
    pub fn new(config: DockerConfig) -> Self {
        let inner = Arc::new(Inner {
            engine: Engine::new(config.address.clone(), config.timeout),
            config,
            hint: Notify::new(),
            memory: Mutex::default(),
            positions: Mutex::default(),
            meters: Mutex::default(),
            quarantined: Mutex::default(),
        });
        let watching = tokio::spawn(watch::keep(inner.clone()));
        Self { inner, watching }
    }
}

impl Drop for DockerProvider {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Inner {
    /// How long one container among many may keep us waiting: far less than everybody together.
    fn patience(&self) -> Duration {
        self.config.timeout / 4
    }

    /// Told to people once, however often it is met.
    fn set_aside(&self, sentence: String) {
        let mut quarantined = locked(&self.quarantined);
        if quarantined.said.insert(sentence.clone()) {
            tracing::warn!("{sentence}");
            quarantined.sentences.push(sentence);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait::async_trait]
impl Provider for DockerProvider {
    fn name(&self) -> &str {
        "docker"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { create_is_idempotent: true, create_settles_seconds: CREATE_SETTLES_SECONDS }
    }

    async fn list(&self) -> Result<Listing, ProviderError> {
        observe::list(&self.inner).await
    }

    async fn inspect(&self, sandbox: &SandboxRef) -> Result<Inspection, ProviderError> {
        observe::inspect(&self.inner, sandbox).await
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Sandbox, CreateError> {
        create::create(&self.inner, spec, None).await
    }

    fn wants_secret(&self) -> bool {
        self.inner.config.supervisor.mode != DockerSupervisor::Off
    }

    async fn create_with_secret(&self, spec: &SandboxSpec, secret: &str) -> Result<Sandbox, CreateError> {
        create::create(&self.inner, spec, Some(secret)).await
    }

    async fn stop(&self, sandbox: &SandboxRef, grace_seconds: u32) -> Result<(), ProviderError> {
        stop::stop(&self.inner, sandbox, grace_seconds).await
    }

    async fn logs(
        &self,
        sandbox: &SandboxRef,
        offset: u64,
        max_bytes: usize,
    ) -> Result<LogChunk, ProviderError> {
        logs::read(&self.inner, sandbox, offset, max_bytes).await
    }

    async fn probe(&self) -> Result<String, ProviderError> {
        let engine = &self.inner.engine;
        let version = match engine.client().await?.version().await {
            Ok(version) => version,
            Err(error) => return Err(engine.failed(&error).await),
        };
        let listing = self.list().await?;
        Ok(format!(
            "engine {} (API {}) at {}, {} sandboxes",
            version.version.as_deref().unwrap_or("of an unknown version"),
            version.api_version.as_deref().unwrap_or("?"),
            engine.address,
            listing.sandboxes.len()
        ))
    }

    async fn changed(&self) {
        self.inner.hint.notified().await;
    }

    fn take_quarantined(&self) -> Vec<String> {
        std::mem::take(&mut locked(&self.inner.quarantined).sentences)
    }

    async fn vitals(&self) -> Result<Option<Vitals>, ProviderError> {
        stats::vitals(&self.inner).await.map(Some)
    }

    fn keeps_ended_seconds(&self) -> Option<u64> {
        Some(self.inner.config.remove_after_seconds)
    }

    async fn remove(&self, sandbox: &SandboxRef) -> Result<(), ProviderError> {
        stop::remove(&self.inner, sandbox).await
    }
}
