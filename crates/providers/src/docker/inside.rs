//! A supervisor inside the container: the command is run by `parhelia supervise --inside`, which beats through
//! a socket that is mounted from here. That socket takes heartbeats and nothing else.

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{ContainerInspectResponse, Mount, MountType};
use bollard::query_parameters::DownloadFromContainerOptionsBuilder;
use futures::StreamExt;
use parhelia_core::config::DockerSupervisor;
use parhelia_core::sandbox::{Phase, Sandbox, SandboxSpec};
use parhelia_core::state::TerminationReason;

use super::engine::{status, told};
use super::{Inner, LABEL_SUPERVISOR, Supervisor, observe};
use crate::process::jobdir::JobResult;
use crate::supervise::{JOB, JOBS_DIRECTORY};

/// Where the container finds our binary and our socket.
const BINARY: &str = "/.parhelia/parhelia";
const DOOR: &str = "/.parhelia/door";
const LARGEST_RESULT_BYTES: usize = 64 * 1024;

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

/// The engine knows the exit code, the supervisor why: an idle timeout, a command that is not there. Its record
/// stays in the ended container. Without one the engine's word stands; where nobody can say whether there is one,
/// nothing is known yet.
pub(crate) async fn explain(
    inner: &Inner,
    docker: &Docker,
    found: &ContainerInspectResponse,
    sandbox: &mut Sandbox,
) {
    let supervised = observe::labels(found).is_some_and(|labels| labels.contains_key(LABEL_SUPERVISOR));
    let Phase::Exited(exit) = &mut sandbox.phase else { return };
    let known = matches!(exit.reason, TerminationReason::Completed | TerminationReason::Oom);
    if !supervised || known {
        return;
    }
    let asked = tokio::time::timeout(inner.patience(), record(docker, &sandbox.sandbox_id)).await;
    match asked.unwrap_or(Err(Error::RequestTimeoutError)) {
        Ok(Record::Result(result)) => {
            exit.reason = result.reason.parse().unwrap_or(exit.reason);
            exit.message = result.message.or(result.signal).or(exit.message.take());
        }
        // Whoever is killed at once has not begun either, and that was the signal's doing.
        Ok(Record::NeverBegan) if exit.code.is_some_and(|code| (1..128).contains(&code)) => {
            exit.reason = TerminationReason::StartFailed;
            exit.message = Some(NEVER_BEGAN.to_owned());
        }
        Ok(Record::NeverBegan | Record::None) => {}
        Err(error) => {
            let why = format!("it has ended, and its supervisor's record could not be had: {}", told(&error));
            sandbox.phase = Phase::Unknown { why };
        }
    }
}

const NEVER_BEGAN: &str = "its supervisor could not be started: the image may lack the libraries that parhelia is linked with \
                           ('ldd parhelia' names them), or be of another architecture; its logs tell more";

/// What a supervisor has left in its container.
enum Record {
    Result(Box<JobResult>),
    /// Not even the directory that it makes before anything else.
    NeverBegan,
    None,
}

async fn record(docker: &Docker, id: &str) -> Result<Record, Error> {
    let directory = format!("{JOBS_DIRECTORY}/{JOB}");
    if let Some(archive) = download(docker, id, &format!("{directory}/result.json")).await? {
        let result = only_file(&archive).and_then(|record| serde_json::from_slice(record).ok());
        return Ok(result.map_or(Record::None, |result| Record::Result(Box::new(result))));
    }
    let began = download(docker, id, &directory).await?.is_some();
    Ok(if began { Record::None } else { Record::NeverBegan })
}

/// The archive of a path; `None` where there is no such path, empty where it is too large to be read.
async fn download(docker: &Docker, id: &str, path: &str) -> Result<Option<Vec<u8>>, Error> {
    let options = DownloadFromContainerOptionsBuilder::default().path(path).build();
    let mut stream = std::pin::pin!(docker.download_from_container(id, Some(options)));
    let mut archive = Vec::new();
    while let Some(piece) = stream.next().await {
        match piece {
            Ok(piece) => archive.extend_from_slice(&piece),
            Err(error) if matches!(status(&error), Some(400 | 404)) => return Ok(None),
            Err(error) => return Err(error),
        }
        if archive.len() > LARGEST_RESULT_BYTES {
            return Ok(Some(Vec::new()));
        }
    }
    Ok(Some(archive))
}

/// The content of the one file of an archive.
fn only_file(archive: &[u8]) -> Option<&[u8]> {
    let size = std::str::from_utf8(archive.get(124..135)?).ok()?;
    let size = usize::from_str_radix(size.trim_matches(['\0', ' ']), 8).ok()?;
    archive.get(512..512usize.checked_add(size)?)
}
