//! Sandboxes as plain processes of this machine: one supervisor and one directory each, under
//! `{home}/jobs`. What is said of a sandbox comes from its files and from the lock that its supervisor
//! holds; nothing is remembered that the disk would not tell a new server too.
//!
//! It refuses to guess: a lock that this kernel did not keep, a directory that cannot be read, or a file
//! system shared with others gives `Phase::Unknown` or an error, never an end.

pub mod attach;
pub(crate) mod control;
mod create;
mod evidence;
pub mod host;
pub mod jobdir;
pub mod jobs;
pub mod lock;
pub(crate) mod logs;
pub(crate) mod observe;
pub(crate) mod procs;
mod remove;
mod stop;
pub mod sweep;
mod watch;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parhelia_core::ids::ContainerId;
use parhelia_core::sandbox::{Inspection, Listing, Phase, Sandbox, SandboxSpec};
use parhelia_core::time::Clock;
use uuid::Uuid;

use self::host::Host;
use self::jobdir::{JobDir, job_id, jobs_dir};
use self::jobs::JobFiles;
use self::observe::Known;
use self::stop::Stopped;
use self::watch::Watches;
use crate::{Capabilities, CreateError, LogChunk, Provider, ProviderError, SandboxRef};

/// How a process provider is set up. `home_id` is its identity: another home is another provider.
#[derive(Debug, Clone)]
pub struct ProcessConfig {
    pub home: PathBuf,
    pub home_id: String,
    /// The `parhelia` binary; it is run as `parhelia supervise --dir DIR`.
    pub supervisor: PathBuf,
    pub heartbeat_interval_seconds: u64,
    pub output_rotate_bytes: u64,
    /// How long the directory of an ended job is kept.
    pub keep_ended_seconds: u64,
    pub clock: Arc<dyn Clock>,
}

#[derive(Debug)]
pub struct ProcessProvider {
    inner: Arc<Inner>,
    name: String,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: ProcessConfig,
    pub(crate) host: Host,
    /// What cannot change any more, so that a listing need not read it again.
    pub(crate) known: Mutex<HashMap<Uuid, Known>>,
    quarantined: Mutex<Quarantined>,
    /// Creates under way in this process; a second one of the same id waits for an observation instead.
    pub(crate) creating: Mutex<HashSet<Uuid>>,
    /// When a stop without grace was first asked for, on the monotonic clock.
    pub(crate) forced_at: Mutex<HashMap<Uuid, Duration>>,
    pub(crate) watches: Watches,
}

#[derive(Debug, Default)]
struct Quarantined {
    /// Not yet taken by `take_quarantined`.
    sentences: Vec<String>,
    /// Said before: each item is told of once.
    said: HashSet<String>,
}

impl ProcessProvider {
    /// Makes `{home}/jobs` if need be.
    pub fn new(config: ProcessConfig) -> std::io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let jobs = jobs_dir(&config.home);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&jobs).map_err(|error| {
            let text =
                format!("{} could not be made: {error}; check the home's owner and space", jobs.display());
            std::io::Error::new(error.kind(), text)
        })?;
        remove::finish_what_was_begun(&jobs);
        let inner = Inner {
            host: Host::this()?,
            config,
            known: Mutex::default(),
            quarantined: Mutex::default(),
            creating: Mutex::default(),
            forced_at: Mutex::default(),
            watches: Watches::new(),
        };
        Ok(Self { inner: Arc::new(inner), name: "process".to_owned() })
    }

    /// Under a name of its own: where several homes share a store, each has its own rows.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }
}

impl Inner {
    pub(crate) fn dir(&self, job: Uuid) -> JobDir {
        JobDir::of(&self.config.home, job)
    }

    /// Told to people once, however often it is met.
    pub(crate) fn set_aside(&self, sentence: String) {
        if self.is_news(sentence.clone()) {
            tracing::warn!("{sentence}");
            locked(&self.quarantined).sentences.push(sentence);
        }
    }

    /// True the first time.
    pub(crate) fn is_news(&self, what: String) -> bool {
        locked(&self.quarantined).said.insert(what)
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The protocol of every job under a home; unreadable ones are the reconciler's affair.
pub fn protocols(home: &std::path::Path) -> std::io::Result<Vec<u32>> {
    let jobs = jobs_dir(home);
    let entries = match std::fs::read_dir(&jobs) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let spec = JobDir::at(entry?.path()).spec();
        found.extend(jobdir::read_json::<jobdir::JobSpec>(&spec).ok().flatten().map(|spec| spec.protocol));
    }
    Ok(found)
}

/// The provider's own id is the job's; nothing else may become part of a path.
fn job_of(sandbox: &SandboxRef) -> Result<Uuid, ProviderError> {
    match &sandbox.sandbox_id {
        None => Ok(job_id(&sandbox.container_id)),
        Some(id) => Uuid::parse_str(id).map_err(|_| {
            let shown: String = id.chars().take(60).collect();
            ProviderError::Rejected(format!("'{shown}' is not a job of the process provider (a uuid)"))
        }),
    }
}

/// File work happens on threads that may wait.
async fn blocking<T, E>(
    inner: &Arc<Inner>,
    lost: impl FnOnce(String) -> E,
    work: impl FnOnce(&Inner) -> Result<T, E> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: Send + 'static,
{
    let inner = inner.clone();
    match tokio::task::spawn_blocking(move || work(&inner)).await {
        Ok(answer) => answer,
        Err(error) => Err(lost(format!("the process provider broke off: {error}"))),
    }
}

#[async_trait::async_trait]
impl Provider for ProcessProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { create_is_idempotent: true, create_settles_seconds: 5 }
    }

    async fn list(&self) -> Result<Listing, ProviderError> {
        let listing = blocking(&self.inner, ProviderError::Unreachable, observe::list).await?;
        for sandbox in &listing.sandboxes {
            if matches!(sandbox.phase, Phase::Starting | Phase::Running)
                && let Ok(job) = Uuid::parse_str(&sandbox.sandbox_id)
            {
                self.inner.watches.watch(job, self.inner.dir(job));
            }
        }
        Ok(listing)
    }

    async fn inspect(&self, sandbox: &SandboxRef) -> Result<Inspection, ProviderError> {
        let job = job_of(sandbox)?;
        blocking(&self.inner, ProviderError::Unreachable, move |inner| observe::inspect(inner, job)).await
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Sandbox, CreateError> {
        create::create(&self.inner, spec).await
    }

    async fn stop(&self, sandbox: &SandboxRef, grace_seconds: u32) -> Result<(), ProviderError> {
        let job = job_of(sandbox)?;
        let work = move |inner: &Inner| stop::stop(inner, job, grace_seconds);
        if blocking(&self.inner, ProviderError::Unreachable, work).await? == Stopped::Swept {
            // Nobody else will say that it is gone.
            self.inner.watches.hint();
        }
        Ok(())
    }

    async fn logs(
        &self,
        sandbox: &SandboxRef,
        offset: u64,
        max_bytes: usize,
    ) -> Result<LogChunk, ProviderError> {
        let job = job_of(sandbox)?;
        blocking(&self.inner, ProviderError::Unreachable, move |inner| {
            logs::read(&inner.dir(job), offset, max_bytes)
        })
        .await
    }

    fn job_directory(&self, container: &ContainerId) -> Option<PathBuf> {
        Some(self.inner.dir(job_id(container)).path().to_owned())
    }

    async fn changed(&self) {
        self.inner.watches.changed().await;
    }

    async fn evidence(&self, sandbox: &SandboxRef) -> Vec<(String, String)> {
        let Ok(job) = job_of(sandbox) else { return Vec::new() };
        blocking(&self.inner, |_| (), move |inner| Ok(evidence::of(inner, job))).await.unwrap_or_default()
    }

    fn job_files(&self) -> Option<JobFiles> {
        Some(JobFiles::new(self.inner.clone()))
    }

    fn keeps_ended_seconds(&self) -> Option<u64> {
        Some(self.inner.config.keep_ended_seconds)
    }

    async fn remove(&self, sandbox: &SandboxRef) -> Result<(), ProviderError> {
        let job = job_of(sandbox)?;
        blocking(&self.inner, ProviderError::Unreachable, move |inner| remove::remove(inner, job)).await
    }

    fn take_quarantined(&self) -> Vec<String> {
        std::mem::take(&mut locked(&self.inner.quarantined).sentences)
    }
}
