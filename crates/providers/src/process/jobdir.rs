//! The directory of one job: where its files are and what is in them. This is the frozen protocol (v1,
//! additive only) between the server and supervisors that may be older than it. Nothing here names a
//! process, and nothing here decides what a file means.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use parhelia_core::ids::ContainerId;
pub use parhelia_core::job::{PROTOCOL, job_id};
use parhelia_core::sandbox::SandboxSpec;
use parhelia_core::state::TerminationReason;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

/// A unix socket's path must fit 108 bytes; the rest of the room is for the kernel's terminator and doubt.
const SOCKET_PATH_MAX: usize = 100;

/// No file of a job except its output is larger; a larger one is not ours.
const FILE_MAX_BYTES: u64 = 16 * 1024 * 1024;

pub fn jobs_dir(home: &Path) -> PathBuf {
    home.join("jobs")
}

/// The paths in `{home}/jobs/{jobId}/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobDir {
    path: PathBuf,
}

impl JobDir {
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub fn of(home: &Path, job: Uuid) -> Self {
        Self::at(jobs_dir(home).join(job.to_string()))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn spec(&self) -> PathBuf {
        self.path.join("spec.json")
    }

    pub fn sentinel(&self) -> PathBuf {
        self.path.join(".sentinel.json")
    }

    /// Locked while the supervisor lives.
    pub fn alive(&self) -> PathBuf {
        self.path.join(".alive")
    }

    pub fn result(&self) -> PathBuf {
        self.path.join("result.json")
    }

    /// Becomes `result.json`; its space is taken before the command starts.
    pub fn result_reserve(&self) -> PathBuf {
        self.path.join(".result.reserve")
    }

    pub fn stop(&self) -> PathBuf {
        self.path.join(".stop")
    }

    /// The newest part of the output. Older parts are `output.log.<offset of their first byte>`.
    pub fn output(&self) -> PathBuf {
        self.path.join("output.log")
    }

    pub fn output_segment(&self, start: u64) -> PathBuf {
        self.path.join(format!("output.log.{start}"))
    }

    pub fn supervisor_log(&self) -> PathBuf {
        self.path.join("supervisor.log")
    }

    /// Names the control socket when that could not be in this directory.
    pub fn control_path_file(&self) -> PathBuf {
        self.path.join("ctl.path")
    }

    /// Where the supervisor is to listen, and whether `ctl.path` must say so.
    pub fn control_socket_to_make(&self, home: &Path, job: Uuid) -> (PathBuf, bool) {
        let here = self.path.join("ctl.sock");
        if here.as_os_str().len() <= SOCKET_PATH_MAX {
            return (here, false);
        }
        let short: String = job.simple().to_string().chars().take(16).collect();
        (home.join("run").join(format!("{short}.sock")), true)
    }

    /// Where a client finds the control socket.
    pub fn control_socket(&self) -> PathBuf {
        match fs::read_to_string(self.control_path_file()) {
            Ok(text) if !text.trim().is_empty() => PathBuf::from(text.trim()),
            _ => self.path.join("ctl.sock"),
        }
    }
}

/// `spec.json`: all that a supervisor needs to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSpec {
    pub protocol: u32,
    pub job_id: Uuid,
    pub home: PathBuf,
    #[serde(with = "text_time")]
    pub created_at: Timestamp,
    #[serde(default = "default_heartbeat_seconds")]
    pub heartbeat_interval_seconds: u64,
    #[serde(default = "default_rotate_bytes")]
    pub output_rotate_bytes: u64,
    pub sandbox: SandboxSpec,
}

pub const fn default_heartbeat_seconds() -> u64 {
    30
}

pub const fn default_rotate_bytes() -> u64 {
    64 * 1024 * 1024
}

/// `.sentinel.json`: seed 001's fields, then ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sentinel {
    pub job_id: Uuid,
    /// `running`, `waiting` (it needs a person) or `processing` (being started, being ended). Older supervisors
    /// wrote `starting` and `stopping`.
    pub status: String,
    #[serde(with = "text_time")]
    pub last_heartbeat: Timestamp,
    pub workspace_path: String,
    /// The agent's own session: given with the job, or found in its output.
    pub session_id: Option<String>,
    pub agent_engine: String,
    #[serde(with = "text_time")]
    pub started_at: Timestamp,
    #[serde(default)]
    pub progress_percent: Option<f64>,
    /// When it last gave output, used CPU or reported progress. Absent until its command has been started.
    #[serde(default, with = "optional_text_time")]
    pub last_progress: Option<Timestamp>,
    /// What it needs a person for; only while it is `waiting`.
    #[serde(default)]
    pub waiting_reason: Option<String>,
}

impl Sentinel {
    /// False while the command is about to be started.
    pub fn command_started(&self) -> bool {
        match self.status.as_str() {
            "starting" => false,
            "processing" => self.last_progress.is_some(),
            _ => true,
        }
    }
}

/// `result.json`: the durable record of the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobResult {
    pub protocol: u32,
    pub job_id: Uuid,
    pub container_id: ContainerId,
    pub exit_code: Option<i64>,
    pub signal: Option<String>,
    /// A word of `TerminationReason`. Kept as text: a later version may have more words.
    pub reason: String,
    pub message: Option<String>,
    #[serde(with = "text_time")]
    pub started_at: Timestamp,
    #[serde(with = "text_time")]
    pub ended_at: Timestamp,
    /// Where the output ends, in the offsets that readers use.
    pub output_bytes: u64,
    pub lost_bytes: u64,
    /// Its exit code says that it needs a person.
    #[serde(default)]
    pub waiting: bool,
    #[serde(default)]
    pub waiting_reason: Option<String>,
    /// The agent's own session, as in the sentinel.
    #[serde(default)]
    pub session_id: Option<String>,
    /// How often the sentinel was written, and how often that failed.
    #[serde(default)]
    pub sentinel_writes: u64,
    #[serde(default)]
    pub sentinel_failures: u64,
}

impl JobResult {
    /// As shells number it: 128 and the signal when one ended it.
    pub fn shell_code(&self) -> i32 {
        let signal = || self.signal.as_deref().and_then(crate::supervise::signals::number);
        let code = self.exit_code.or_else(|| signal().map(|number| 128 + i64::from(number)));
        code.and_then(|code| i32::try_from(code).ok()).unwrap_or(1)
    }

    pub fn reason(&self) -> TerminationReason {
        self.reason.parse().unwrap_or(match self.exit_code {
            Some(0) => TerminationReason::Completed,
            Some(_) => TerminationReason::Failed,
            None => TerminationReason::Crash,
        })
    }
}

/// `.stop`: somebody wants it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StopRequest {
    pub grace_seconds: u32,
    pub reason: String,
    #[serde(with = "text_time")]
    pub requested_at: Timestamp,
}

/// What `.alive` holds: which kernel knows about its lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AliveNote {
    pub protocol: u32,
    pub boot_id: String,
    pub machine_id: Option<String>,
}

/// All of `.alive`: the note, and which file it was written into. A copy of the file names the original.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AliveFile {
    #[serde(flatten)]
    pub note: AliveNote,
    /// Both are missing in the files of older servers.
    #[serde(default)]
    pub device: Option<u64>,
    #[serde(default)]
    pub inode: Option<u64>,
}

/// Why a file of a job gave nothing.
#[derive(Debug, Error)]
pub enum ReadError {
    #[error("{path} could not be read: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is not what it should be: {why}", path = path.display())]
    Corrupt { path: PathBuf, why: String },
}

/// The content of a file, `None` when it is not there. Not being able to tell is an error.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ReadError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    // Nearly all of them fit: one read, and one that finds the end.
    let mut bytes = Vec::with_capacity(4096);
    file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    let corrupt = |why| ReadError::Corrupt { path: path.to_owned(), why };
    if bytes.len() as u64 > FILE_MAX_BYTES {
        return Err(corrupt(format!("it is larger than {} MiB", FILE_MAX_BYTES >> 20)));
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|error| corrupt(error.to_string()))
}

/// True or false only when the file system said so.
pub fn exists(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// How sure a write has to be when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Readers see the old or the new content, never a mixture.
    Atomic,
    /// That, and the new content is still there after a power failure.
    Synced,
}

/// Writes beside the file and renames: a reader, or a crash, never meets half of it.
pub fn write_json<T: Serialize>(path: &Path, value: &T, durability: Durability) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(io::Error::other)?;
    bytes.push(b'\n');
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = path.with_file_name(format!(".{}.tmp", name.trim_start_matches('.')));
    let written = write_and_rename(&temporary, path, &bytes, durability);
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_and_rename(temporary: &Path, path: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(temporary)?;
    file.write_all(bytes)?;
    if durability == Durability::Synced {
        file.sync_all()?;
    }
    drop(file);
    fs::rename(temporary, path)?;
    if durability == Durability::Synced
        && let Some(parent) = path.parent()
    {
        sync_dir(parent)?;
    }
    Ok(())
}

/// Makes the names in a directory durable.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Fixed-width UTC text with milliseconds, as everywhere.
pub(crate) mod text_time {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&parhelia_core::time::to_text(*at))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(from)?;
        parhelia_core::time::from_text(&text).map_err(serde::de::Error::custom)
    }
}

pub(crate) mod optional_text_time {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(at: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => super::text_time::serialize(at, to),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        match Option::<String>::deserialize(from)? {
            Some(text) => parhelia_core::time::from_text(&text).map(Some).map_err(serde::de::Error::custom),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentinel_has_the_seeds_fields_and_names_no_process() {
        let at: Timestamp = "2025-10-15T10:30:45.123Z".parse().unwrap();
        let sentinel = Sentinel {
            job_id: job_id(&ContainerId::parse("c-01k9z3q8xw4f7m2a").unwrap()),
            status: "running".into(),
            last_heartbeat: at,
            workspace_path: "/w".into(),
            session_id: Some("abc".into()),
            agent_engine: "claude-code".into(),
            started_at: at,
            progress_percent: None,
            last_progress: None,
            waiting_reason: None,
        };
        let json = serde_json::to_value(&sentinel).unwrap();
        let mut names: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
        names.sort();
        assert_eq!(
            names,
            [
                "agentEngine",
                "jobId",
                "lastHeartbeat",
                "lastProgress",
                "progressPercent",
                "sessionId",
                "startedAt",
                "status",
                "waitingReason",
                "workspacePath"
            ]
        );
        assert_eq!(json["lastHeartbeat"], "2025-10-15T10:30:45.123Z");
    }

    #[test]
    fn a_reader_tells_missing_from_corrupt() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("result.json");
        assert!(read_json::<JobResult>(&path).unwrap().is_none());
        fs::write(&path, "{").unwrap();
        assert!(matches!(read_json::<JobResult>(&path), Err(ReadError::Corrupt { .. })));
    }

    #[test]
    fn a_long_home_puts_the_socket_under_run() {
        let home = PathBuf::from(format!("/{}", "h".repeat(60)));
        let job = job_id(&ContainerId::parse("c-01k9z3q8xw4f7m2a").unwrap());
        let (path, elsewhere) = JobDir::of(&home, job).control_socket_to_make(&home, job);
        assert!(elsewhere);
        assert!(path.starts_with(home.join("run")), "{path:?}");
    }
}
