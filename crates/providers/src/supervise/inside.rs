//! The supervisor as the first process of a container: nobody hands a lock or a directory over, so it makes its
//! own. It beats through a socket that is mounted from the host, writes the output where the engine takes it, and
//! ends as its command did.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use parhelia_core::ids::ContainerId;
use parhelia_core::sandbox::{Resources, SandboxSpec};
use parhelia_core::time::Clock;

use super::{Place, log, own};
use crate::clock::SystemClock;
use crate::process::jobdir::{
    Durability, JobDir, JobSpec, PROTOCOL, default_rotate_bytes, job_id, write_json,
};
use crate::process::lock;

/// Made by the provider before the start, for whoever the command runs as. It looks for the result there.
pub const JOBS_DIRECTORY: &str = "/.parhelia/jobs";
/// What the container proves itself with, for the socket of the host.
pub const SECRET_FILE: &str = "/.parhelia/token";
/// The one job of the container, in there.
pub const JOB: &str = "job";

/// What the command line says; whose job it is stands in the environment.
#[derive(Debug, Clone)]
pub struct Inside {
    /// The directory with the socket.
    pub door: PathBuf,
    pub heartbeat_interval_seconds: u64,
    pub idle_timeout_seconds: Option<u64>,
    pub tmux_session: Option<String>,
    pub cpu_cores: Option<f64>,
    pub memory_mb: Option<i64>,
    pub command: Vec<String>,
}

/// Runs the command to its end and returns its exit code. Call it before any runtime or thread exists.
pub fn run_inside(inside: Inside) -> i32 {
    match prepare(inside) {
        Ok((dir, _lock)) => own(dir, Place::Container).unwrap_or_else(failed),
        Err(message) => failed(message),
    }
}

fn failed(message: String) -> i32 {
    log(&message);
    125
}

fn prepare(inside: Inside) -> Result<(JobDir, File), String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let given = variable("PARHELIA_CONTAINER_ID").ok_or(
        "PARHELIA_CONTAINER_ID is not set: --inside is for containers that the docker provider starts",
    )?;
    let container_id = ContainerId::parse(&given).map_err(|error| error.to_string())?;
    let workdir = std::env::current_dir().map_err(|error| format!("the working directory: {error}"))?;
    let spec = JobSpec {
        protocol: PROTOCOL,
        job_id: job_id(&container_id),
        home: inside.door,
        created_at: SystemClock::new().now(),
        heartbeat_interval_seconds: inside.heartbeat_interval_seconds,
        output_rotate_bytes: default_rotate_bytes(),
        sandbox: SandboxSpec {
            container_id,
            instance_id: variable("PARHELIA_INSTANCE_ID").unwrap_or_default(),
            task_id: variable("PARHELIA_TASK_ID"),
            session_id: None,
            name: None,
            image: None,
            command: inside.command,
            // What the container has, it inherits.
            env: BTreeMap::new(),
            workdir: Some(workdir.to_string_lossy().into_owned()),
            labels: BTreeMap::new(),
            resources: Resources { cpu_cores: inside.cpu_cores, memory_mb: inside.memory_mb, gpu_type: None },
            idle_timeout_seconds: inside.idle_timeout_seconds,
            tmux_session: inside.tmux_session,
            job: None,
            surroundings: Default::default(),
        },
    };
    let path = Path::new(JOBS_DIRECTORY).join(JOB);
    make(&path, &spec).map_err(|error| format!("no place for the job's files at {}: {error}", path.display()))
}

/// A container that is started again begins afresh.
fn make(path: &Path, spec: &JobSpec) -> io::Result<(JobDir, File)> {
    match fs::remove_dir_all(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    DirBuilder::new().mode(0o700).create(path)?;
    let dir = JobDir::at(path);
    write_json(&dir.spec(), spec, Durability::Synced)?;
    let alive = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(dir.alive())?;
    if !lock::try_lock(&alive)? {
        return Err(io::Error::other("another has its lock"));
    }
    Ok((dir, alive))
}
