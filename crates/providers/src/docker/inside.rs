//! A supervisor inside the container: the command is run by `parhelia supervise --inside`, which beats through
//! a socket that is mounted from here. That socket takes heartbeats and nothing else.

use bollard::models::{Mount, MountType};
use parhelia_core::config::DockerSupervisor;
use parhelia_core::sandbox::SandboxSpec;

use super::Supervisor;

/// Where the container finds our binary and our socket.
const BINARY: &str = "/.parhelia/parhelia";
const DOOR: &str = "/.parhelia/door";

#[derive(Debug)]
pub(crate) struct Wrapped {
    pub(crate) mounts: Vec<Mount>,
    pub(crate) entrypoint: Vec<String>,
    pub(crate) arguments: Vec<String>,
}

/// The image's own entry point is not run: the command is what it would have been for a local process.
pub(crate) fn wrap(supervisor: &Supervisor, spec: &SandboxSpec) -> Wrapped {
    let bind = |source: &std::path::Path, target: &str| Mount {
        typ: Some(MountType::BIND),
        source: Some(source.to_string_lossy().into_owned()),
        target: Some(target.to_owned()),
        read_only: Some(true),
        ..Mount::default()
    };
    let mut mounts = vec![bind(&supervisor.door, DOOR)];
    let program = match supervisor.mode {
        DockerSupervisor::Mount => {
            mounts.push(bind(&supervisor.binary, BINARY));
            BINARY
        }
        DockerSupervisor::Image | DockerSupervisor::Off => "parhelia",
    };
    let entrypoint = [program, "supervise", "--inside", DOOR].map(str::to_owned).to_vec();
    let mut arguments =
        vec!["--heartbeat-interval".to_owned(), supervisor.heartbeat_interval_seconds.to_string()];
    if let Some(seconds) = spec.idle_timeout_seconds {
        arguments.extend(["--idle-timeout".to_owned(), seconds.to_string()]);
    }
    if let Some(session) = &spec.tmux_session {
        arguments.extend(["--tmux".to_owned(), session.clone()]);
    }
    if let Some(cores) = spec.resources.cpu_cores {
        arguments.extend(["--cpu".to_owned(), cores.to_string()]);
    }
    if let Some(memory) = spec.resources.memory_mb {
        arguments.extend(["--memory".to_owned(), memory.to_string()]);
    }
    arguments.push("--".to_owned());
    arguments.extend(spec.command.iter().cloned());
    Wrapped { mounts, entrypoint, arguments }
}
