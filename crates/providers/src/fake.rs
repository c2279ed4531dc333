//! A provider that runs nothing and can fail in every way a real one does. For the tests and the
//! simulation: its world is plain data, held in memory or in a file that a test edits while the real
//! program runs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use parhelia_core::sandbox::{Exit, Inspection, Listing, Phase, Resources, Sandbox, SandboxSpec, Tags};
use parhelia_core::state::TerminationReason;
use parhelia_core::time::{Clock, plus_seconds};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::{Capabilities, CreateError, LogChunk, Provider, ProviderError, SandboxRef};

/// Everything that exists at the fake provider, and how it misbehaves at the moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct World {
    pub identity: String,
    pub create_is_idempotent: bool,
    pub create_settles_seconds: u32,
    pub faults: Faults,
    pub sandboxes: Vec<FakeSandbox>,
    /// How often each container was started: more than once is what must never happen.
    pub starts: BTreeMap<String, u32>,
    pub stops: BTreeMap<String, u32>,
    next: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Faults {
    pub list: ListFault,
    pub inspect: InspectFault,
    pub create: CreateFault,
    pub stop: StopFault,
    /// Every answer takes this long.
    pub slow_millis: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListFault {
    #[default]
    None,
    Error,
    /// Never answers.
    Hang,
    /// Claims, completely and wrongly, to have nothing.
    Empty,
    /// Claims, completely and wrongly, to have only every second one.
    Half,
    /// The second page fails: half of them, and says so.
    Partial,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InspectFault {
    #[default]
    None,
    Error,
    Hang,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CreateFault {
    #[default]
    None,
    Reject,
    /// The request never arrived; the caller cannot know.
    LostBefore,
    /// It was done; the answer got lost.
    LostAfter,
    /// The answer got lost, and it is done only this many seconds later.
    Late(i64),
    Hang,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopFault {
    #[default]
    None,
    Error,
    /// Says yes and does nothing.
    Ignore,
    /// Done, but the answer got lost.
    LostAfter,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FakeSandbox {
    pub sandbox_id: String,
    /// The identity under which it runs; another one does not have it. Empty: any.
    #[serde(default)]
    pub engine: String,
    pub tags: Tags,
    #[serde(default)]
    pub command: Vec<String>,
    #[serde(default)]
    pub resources: Resources,
    pub created_at: Timestamp,
    /// Not yet there before this moment (a late create).
    pub visible_at: Timestamp,
    #[serde(default)]
    pub exit_code: Option<i64>,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    /// Removed: neither listed nor found by inspection.
    #[serde(default)]
    pub removed: bool,
}

impl World {
    pub fn new(identity: &str) -> Self {
        Self { identity: identity.to_owned(), create_settles_seconds: 30, ..Self::default() }
    }

    /// Starts one as the provider would for `spec`.
    pub fn start(&mut self, spec: &SandboxSpec, now: Timestamp, visible_at: Timestamp) -> FakeSandbox {
        let tags = Tags {
            instance: spec.instance_id.clone(),
            container: spec.container_id.clone(),
            task: spec.task_id.clone(),
        };
        *self.starts.entry(spec.container_id.to_string()).or_default() += 1;
        self.next += 1;
        let sandbox = FakeSandbox {
            sandbox_id: format!("sb-{}-{:06}", self.identity, self.next),
            engine: self.identity.clone(),
            tags,
            command: spec.command.clone(),
            resources: spec.resources.clone(),
            created_at: now,
            visible_at,
            exit_code: None,
            ended_at: None,
            removed: false,
        };
        self.sandboxes.push(sandbox.clone());
        sandbox
    }

    /// Reads the world in a file, changes it and writes it back, as one step for everybody who comes this
    /// way: neither a test nor the provider loses what the other did meanwhile.
    pub fn change_file<T>(path: &Path, change: impl FnOnce(&mut World) -> T) -> io::Result<T> {
        let _ours = locked_beside(path)?;
        let mut world = Self::read(path)?;
        let answer = change(&mut world);
        world.write(path)?;
        Ok(answer)
    }

    fn read(path: &Path) -> io::Result<World> {
        serde_json::from_str(&std::fs::read_to_string(path)?).map_err(io::Error::other)
    }

    /// Never seen half written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let temp = path.with_extension("tmp");
        std::fs::write(&temp, serde_json::to_string_pretty(self).map_err(io::Error::other)?)?;
        std::fs::rename(&temp, path)
    }

    /// What the engine that answers now has.
    fn here(&self, now: Timestamp) -> impl Iterator<Item = (usize, &FakeSandbox)> {
        let of_engine = |s: &FakeSandbox| s.engine.is_empty() || s.engine == self.identity;
        let there = self.sandboxes.iter().enumerate();
        there.filter(move |(_, s)| !s.removed && s.visible_at <= now && of_engine(s))
    }

    pub fn alive(&self, now: Timestamp) -> impl Iterator<Item = &FakeSandbox> {
        self.here(now).map(|(_, s)| s).filter(|s| s.ended_at.is_none())
    }

    fn find(&self, sandbox: &SandboxRef, now: Timestamp) -> Option<usize> {
        let found = self.here(now).find(|(_, s)| match &sandbox.sandbox_id {
            Some(id) => s.sandbox_id == *id,
            None => s.tags.container == sandbox.container_id,
        });
        found.map(|(at, _)| at)
    }
}

/// Held until it is dropped.
fn locked_beside(path: &Path) -> io::Result<File> {
    let lock = File::create(path.with_extension("lock"))?;
    lock.lock()?;
    Ok(lock)
}

impl FakeSandbox {
    fn seen(&self) -> Sandbox {
        let phase = match self.ended_at {
            None => Phase::Running,
            Some(at) => Phase::Exited(Exit {
                code: self.exit_code,
                reason: match self.exit_code {
                    Some(0) => TerminationReason::Completed,
                    Some(_) => TerminationReason::Failed,
                    None => TerminationReason::Crash,
                },
                at: Some(at),
                message: None,
            }),
        };
        Sandbox {
            sandbox_id: self.sandbox_id.clone(),
            tags: self.tags.clone(),
            phase,
            created_at: Some(self.created_at),
            started_at: Some(self.visible_at),
            name: None,
            image: None,
            command: self.command.clone(),
            labels: BTreeMap::new(),
            region: None,
            resources: self.resources.clone(),
            reported_cost_usd: None,
        }
    }
}

#[derive(Debug, Clone)]
enum Place {
    Memory,
    /// Read at every call and changed under a lock, so that another process can change it in between.
    File(PathBuf),
}

#[derive(Debug, Clone)]
pub struct FakeProvider {
    name: String,
    place: Place,
    world: Arc<Mutex<World>>,
    clock: Arc<dyn Clock>,
    hint: Arc<Notify>,
}

impl FakeProvider {
    pub fn in_memory(name: &str, world: World, clock: Arc<dyn Clock>) -> Self {
        let world = Arc::new(Mutex::new(world));
        Self { name: name.to_owned(), place: Place::Memory, world, clock, hint: Arc::default() }
    }

    pub fn in_file(path: PathBuf, clock: Arc<dyn Clock>) -> Self {
        let world = Arc::new(Mutex::new(World::new("fake")));
        Self { name: "fake".to_owned(), place: Place::File(path), world, clock, hint: Arc::default() }
    }

    /// The world, for a test to look at and to change.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn hint(&self) {
        self.hint.notify_one();
    }

    /// The world of this moment.
    fn load(&self) -> Result<(), ProviderError> {
        if let Place::File(path) = &self.place {
            let mut world = self.world();
            *world = World::read(path).map_err(|e| unusable(path, &e))?;
        }
        Ok(())
    }

    fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> Result<T, ProviderError> {
        let mut held = self.world();
        match &self.place {
            Place::Memory => Ok(change(&mut held)),
            Place::File(path) => {
                let done = World::change_file(path, |world| {
                    let answer = change(world);
                    *held = world.clone();
                    answer
                });
                done.map_err(|e| unusable(path, &e))
            }
        }
    }

    async fn enter(&self) -> Result<Faults, ProviderError> {
        self.load()?;
        let faults = self.world().faults;
        if faults.slow_millis > 0 {
            tokio::time::sleep(Duration::from_millis(faults.slow_millis)).await;
        }
        Ok(faults)
    }
}

fn unusable(path: &Path, error: &io::Error) -> ProviderError {
    ProviderError::Unreachable(format!("the fake world {} cannot be used: {error}", path.display()))
}

fn broken() -> ProviderError {
    ProviderError::Unreachable("the fake provider was told to fail".to_owned())
}

#[async_trait::async_trait]
impl Provider for FakeProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        let world = self.world();
        Capabilities {
            create_is_idempotent: world.create_is_idempotent,
            // Nothing arrives in no time at all, whatever a world forgot to say.
            create_settles_seconds: world.create_settles_seconds.max(1),
        }
    }

    async fn list(&self) -> Result<Listing, ProviderError> {
        let faults = self.enter().await?;
        match faults.list {
            ListFault::Error => return Err(broken()),
            ListFault::Hang => std::future::pending::<()>().await,
            _ => {}
        }
        let now = self.clock.now();
        let world = self.world();
        let there = world.here(now).map(|(_, s)| s);
        let step = match faults.list {
            ListFault::Half | ListFault::Partial => 2,
            _ => 1,
        };
        let mut sandboxes: Vec<Sandbox> = there.step_by(step).map(FakeSandbox::seen).collect();
        if faults.list == ListFault::Empty {
            sandboxes.clear();
        }
        Ok(Listing {
            identity: world.identity.clone(),
            complete: faults.list != ListFault::Partial,
            sandboxes,
        })
    }

    async fn inspect(&self, sandbox: &SandboxRef) -> Result<Inspection, ProviderError> {
        let faults = self.enter().await?;
        match faults.inspect {
            InspectFault::Error => return Err(broken()),
            InspectFault::Hang => std::future::pending::<()>().await,
            InspectFault::None => {}
        }
        let world = self.world();
        Ok(match world.find(sandbox, self.clock.now()) {
            Some(at) => Inspection::Present(Box::new(world.sandboxes[at].seen())),
            None => Inspection::Absent,
        })
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Sandbox, CreateError> {
        let faults = self.enter().await.map_err(|e| CreateError::Unknown(e.to_string()))?;
        let lost = || Err(CreateError::Unknown("the fake provider lost the answer".to_owned()));
        let now = self.clock.now();
        match faults.create {
            CreateFault::Reject => return Err(CreateError::Rejected("the fake provider refuses".to_owned())),
            CreateFault::LostBefore => return lost(),
            CreateFault::Hang => std::future::pending::<()>().await,
            _ => {}
        }
        let visible_at = match faults.create {
            CreateFault::Late(seconds) => plus_seconds(now, seconds),
            _ => now,
        };
        let made = self.change(|world| {
            let World { identity, create_is_idempotent, sandboxes, .. } = world;
            let named = sandboxes
                .iter_mut()
                .find(|s| s.engine == *identity && s.tags.container == spec.container_id)
                .filter(|_| *create_is_idempotent);
            match named {
                // The second request makes what the first was still to make: one name, one sandbox.
                Some(existing) => {
                    existing.visible_at = existing.visible_at.min(visible_at);
                    existing.clone()
                }
                None => world.start(spec, now, visible_at),
            }
        });
        let made = made.map_err(|e| CreateError::Unknown(e.to_string()))?;
        match faults.create {
            CreateFault::LostAfter | CreateFault::Late(_) => lost(),
            _ => Ok(made.seen()),
        }
    }

    async fn stop(&self, sandbox: &SandboxRef, _grace_seconds: u32) -> Result<(), ProviderError> {
        let faults = self.enter().await?;
        match faults.stop {
            StopFault::Error => return Err(broken()),
            StopFault::Ignore => return Ok(()),
            StopFault::None | StopFault::LostAfter => {}
        }
        let now = self.clock.now();
        self.change(|world| {
            if let Some(at) = world.find(sandbox, now) {
                let found = &mut world.sandboxes[at];
                if found.ended_at.is_none() {
                    found.ended_at = Some(now);
                    let id = found.sandbox_id.clone();
                    *world.stops.entry(id).or_default() += 1;
                }
            }
        })?;
        match faults.stop {
            StopFault::LostAfter => Err(broken()),
            _ => Ok(()),
        }
    }

    async fn logs(
        &self,
        _sandbox: &SandboxRef,
        offset: u64,
        _max_bytes: usize,
    ) -> Result<LogChunk, ProviderError> {
        Ok(LogChunk { offset, bytes: Vec::new(), next_offset: offset, finished: true })
    }

    async fn changed(&self) {
        self.hint.notified().await;
    }
}
