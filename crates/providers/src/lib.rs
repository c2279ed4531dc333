//! Where sandboxes run. One small trait, and an implementation per provider.
//!
//! A provider reports and obeys; it decides nothing. It never turns a failed question into an answer: what
//! it could not find out is an error or `Phase::Unknown`, and the reconciler then changes nothing.

pub mod clock;
pub mod docker;
pub mod fake;
pub mod process;
pub mod secret;
pub mod supervise;

use parhelia_core::heartbeat::Sample;
use parhelia_core::ids::ContainerId;
use parhelia_core::sandbox::{Inspection, Listing, Sandbox, SandboxSpec};
use thiserror::Error;

pub use clock::SystemClock;

/// What to call a sandbox: our id is its unique name; the provider's own id may not be known yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRef {
    pub container_id: ContainerId,
    pub sandbox_id: Option<String>,
}

/// What the planner must know of a provider to be safe with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// A second create of the same id can never make a second sandbox (a unique name, an exclusive lock).
    pub create_is_idempotent: bool,
    /// After this long an unanswered create can no longer arrive.
    pub create_settles_seconds: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProviderError {
    /// Nothing is known: the provider did not answer, or not in time. Changes nothing.
    #[error("{0}")]
    Unreachable(String),
    /// The provider answered, and refused.
    #[error("{0}")]
    Rejected(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CreateError {
    /// For certain nothing was created, and trying the same again will not help.
    #[error("{0}")]
    Rejected(String),
    /// It may or may not exist now. The next observations will tell.
    #[error("{0}")]
    Unknown(String),
}

/// A piece of a sandbox's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogChunk {
    /// Where `bytes` begins in the whole output; later than asked for when the beginning was rotated away.
    pub offset: u64,
    pub bytes: Vec<u8>,
    /// Where to go on.
    pub next_offset: u64,
    /// True when nothing more will ever come after `next_offset`.
    pub finished: bool,
}

/// A sign of life that the provider itself saw, for a sandbox in which nothing of ours beats.
#[derive(Debug, Clone, PartialEq)]
pub struct Vital {
    pub sandbox_id: String,
    pub sample: Sample,
}

/// The signs of life that a provider saw at one look.
#[derive(Debug, Clone, PartialEq)]
pub struct Vitals {
    /// Who looked: it says nothing about what another has.
    pub identity: String,
    pub seen: Vec<Vital>,
}

#[async_trait::async_trait]
pub trait Provider: Send + Sync + std::fmt::Debug {
    /// `process`, `docker`, …: the `provider` column.
    fn name(&self) -> &str;

    fn capabilities(&self) -> Capabilities;

    /// Every sandbox with a Parhelia tag, of whatever instance, alive or ended and not yet forgotten.
    async fn list(&self) -> Result<Listing, ProviderError>;

    /// One sandbox, by its own id, or by ours when that is not known.
    async fn inspect(&self, sandbox: &SandboxRef) -> Result<Inspection, ProviderError>;

    /// Makes the sandbox of `spec`, named by `spec.container_id`.
    async fn create(&self, spec: &SandboxSpec) -> Result<Sandbox, CreateError>;

    /// Whether its sandboxes speak for themselves through a door that asks who they are.
    fn wants_secret(&self) -> bool {
        false
    }

    /// Like [`Provider::create`], with the secret that the sandbox proves itself with. It is handed over as a
    /// file: never in a variable, a label or a log line.
    async fn create_with_secret(&self, spec: &SandboxSpec, secret: &str) -> Result<Sandbox, CreateError> {
        let _ = secret;
        self.create(spec).await
    }

    /// Asks for the end of the sandbox and everything in it: politely at first, by force after the grace,
    /// at once when the grace is 0. `Ok` says that the request was taken, never that it is gone.
    /// Safe to repeat.
    async fn stop(&self, sandbox: &SandboxRef, grace_seconds: u32) -> Result<(), ProviderError>;

    /// At most `max_bytes` of its output from `offset` on. Works for ended sandboxes too.
    async fn logs(
        &self,
        sandbox: &SandboxRef,
        offset: u64,
        max_bytes: usize,
    ) -> Result<LogChunk, ProviderError>;

    /// Where the files of its job are, if its sandboxes are supervised jobs of this machine: each then has a row
    /// among the jobs.
    fn job_directory(&self, container: &ContainerId) -> Option<std::path::PathBuf> {
        let _ = container;
        None
    }

    /// What else it can show of one sandbox, for people: who says it, and what. Never a secret.
    async fn evidence(&self, sandbox: &SandboxRef) -> Vec<(String, String)> {
        let _ = sandbox;
        Vec::new()
    }

    /// The files of its jobs; `None` where there is nothing but the container.
    fn job_files(&self) -> Option<process::jobs::JobFiles> {
        None
    }

    /// Asks it whether it works, and who it is: a sentence for people.
    async fn probe(&self) -> Result<String, ProviderError> {
        let listing = self.list().await?;
        Ok(format!("{} sandboxes at {}", listing.sandboxes.len(), listing.identity))
    }

    /// Resolves when something may have changed, as a hint to look. It may stay silent for ever.
    async fn changed(&self);

    /// Items that could not be read and were set aside since the last call, one sentence each.
    fn take_quarantined(&self) -> Vec<String> {
        Vec::new()
    }

    /// One sample of each running sandbox in which no supervisor of ours beats. Whoever is left out is silent; an
    /// error is nobody's silence. `None` where everybody beats for itself.
    async fn vitals(&self) -> Result<Option<Vitals>, ProviderError> {
        Ok(None)
    }

    /// How long it keeps an ended sandbox, with its output, after its end is recorded; `None` when it keeps
    /// them until somebody else takes them away.
    fn keeps_ended_seconds(&self) -> Option<u64> {
        None
    }

    /// Forgets an ended sandbox and its output. Refuses one that lives; safe to repeat.
    async fn remove(&self, sandbox: &SandboxRef) -> Result<(), ProviderError> {
        let _ = sandbox;
        Ok(())
    }
}
