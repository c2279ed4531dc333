//! Starting a server that is not there: detached, in a session of its own, its output in `server.log`. It
//! leaves by itself when it has nothing to do. Two commands may start one at the same moment; the lock on
//! the home decides, and both then talk to the winner.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use parhelia_core::time::Clock;
use parhelia_providers::SystemClock;

use crate::error::{CliError, Exit, Result};
use crate::output::Out;

const DEADLINE: Duration = Duration::from_secs(15);
const LOG_ROTATE_BYTES: u64 = 16 << 20;
const LOG_TAIL_BYTES: u64 = 16 << 10;
const LOG_TAIL_LINES: usize = 15;

/// What marks a process as part of a job. The server is part of none, even when a job asked for it: whoever
/// sweeps up after that job must not take the server for one of its children.
const JOB_VARIABLES: [&str; 4] =
    ["PARHELIA_JOB_ID", "PARHELIA_SUPERVISES", "PARHELIA_CONTAINER_ID", "PARHELIA_TASK_ID"];

#[derive(Debug)]
pub(crate) struct Autostart {
    pub(crate) home: PathBuf,
    pub(crate) config: Option<PathBuf>,
    pub(crate) out: Out,
}

impl Autostart {
    /// Returns when `is_ready` says so.
    pub(crate) async fn run(&self, clock: &SystemClock, is_ready: impl AsyncFn() -> bool) -> Result<()> {
        if std::env::var_os("PARHELIA_JOB_ID").is_some() {
            // Everything that a sandbox starts ends with it, and so would that server and all of its jobs.
            return Err(CliError::failure(
                "no_server",
                "no server is running, and none is started from inside a sandbox: it would end with it",
            )
            .fix("run 'parhelia up' (or any parhelia command) outside of the sandbox"));
        }
        make_home(&self.home)?;
        let log_path = self.home.join("server.log");
        rotate(&log_path);
        let log_begins_at = std::fs::metadata(&log_path).map_or(0, |meta| meta.len());
        let mut server = Some(self.spawn(&log_path)?);
        let begun = clock.monotonic();
        let mut told = false;
        let trouble = loop {
            tokio::time::sleep(Duration::from_millis(25)).await;
            if is_ready().await {
                return Ok(());
            }
            let waited = clock.monotonic().saturating_sub(begun);
            if waited > DEADLINE {
                break format!("the server was not ready within {} seconds", DEADLINE.as_secs());
            }
            if waited > Duration::from_secs(2) && !told {
                self.out.note(&format!("starting a server for {} …", self.home.display()));
                told = true;
            }
            match server.as_mut().map(Child::try_wait) {
                // Another server has the home: it is the one to wait for.
                Some(Ok(Some(status))) if status.code() == Some(Exit::Refused.code()) => server = None,
                Some(Ok(Some(status))) => break format!("the server ended at once ({status})"),
                Some(Err(error)) => break format!("the server cannot be watched: {error}"),
                Some(Ok(None)) | None => {}
            }
        };
        Err(self.failed(trouble, &log_path, log_begins_at))
    }

    fn spawn(&self, log_path: &Path) -> Result<Child> {
        let log_failed = |e| {
            CliError::io(format!("cannot write {}", log_path.display()), &e)
                .fix("check the permissions and the free space there, or use another home with --home DIR")
        };
        let log =
            OpenOptions::new().create(true).append(true).mode(0o600).open(log_path).map_err(log_failed)?;
        let second = log.try_clone().map_err(log_failed)?;
        let binary = std::env::current_exe().map_err(|e| CliError::io("cannot find my own binary", &e))?;
        let mut command = Command::new(&binary);
        // It makes a session of its own as the first thing that it does (`detach`).
        command.args(["up", "--on-demand", "--home"]).arg(&self.home);
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        for variable in
            JOB_VARIABLES.into_iter().chain(["PARHELIA_URL", "PARHELIA_TOKEN", "PARHELIA_TOKEN_FILE"])
        {
            command.env_remove(variable);
        }
        command.current_dir(&self.home).stdin(Stdio::null()).stdout(log).stderr(second);
        command.spawn().map_err(|e| {
            CliError::io(format!("cannot start a server with {}", binary.display()), &e)
                .fix("was the program replaced while it ran? Try again, or start one with 'parhelia up'")
        })
    }

    fn failed(&self, trouble: String, log_path: &Path, log_begins_at: u64) -> CliError {
        let tail = log_tail(log_path, log_begins_at);
        let mut message = trouble;
        if !tail.is_empty() {
            message.push_str(&format!("; the end of {}:\n{tail}", log_path.display()));
        }
        CliError::failure("server_not_started", message)
            .fix("mend what it says; 'parhelia up' shows the start in the foreground, 'parhelia doctor' checks the configuration, the store and the disk")
    }
}

/// A log that has grown large becomes `server.log.old`, in place of the one before it. A server that still writes to
/// it goes on there; if it cannot be moved, it grows.
fn rotate(log: &Path) {
    if std::fs::metadata(log).is_ok_and(|meta| meta.len() > LOG_ROTATE_BYTES) {
        let _ = std::fs::rename(log, log.with_extension("log.old"));
    }
}

fn make_home(home: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(home).map_err(|e| {
        CliError::io(format!("cannot make the home {}", home.display()), &e)
            .fix("use another with --home DIR")
    })
}

/// The last lines that this start wrote.
fn log_tail(path: &Path, begins_at: u64) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(begins_at.max(length.saturating_sub(LOG_TAIL_BYTES)).min(length)))?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..]
        .iter()
        .map(|line| format!("  {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The other side of [`Autostart::spawn`]: a session of its own, so that neither Ctrl-C nor the end of the
/// terminal reaches the server.
pub(crate) fn detach() {
    if let Err(error) = rustix::process::setsid() {
        // Already the leader of a session (started by an init system): as good.
        tracing::debug!(%error, "no new session");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_log_makes_way_and_one_old_one_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("server.log");
        rotate(&log);
        for word in ["first", "second"] {
            std::fs::write(&log, word).unwrap();
            rotate(&log);
            assert!(log.exists(), "a small one stays");
            File::options().write(true).open(&log).unwrap().set_len(LOG_ROTATE_BYTES + 1).unwrap();
            rotate(&log);
            assert!(!log.exists());
            let old = std::fs::read(dir.path().join("server.log.old")).unwrap();
            assert!(old.starts_with(word.as_bytes()));
        }
    }

    #[test]
    fn the_tail_is_of_this_start_only() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("server.log");
        std::fs::write(&log, "old\n").unwrap();
        assert_eq!(log_tail(&log, 4), "");
        let many: String = (0..40).map(|n| format!("line {n}\n")).collect();
        std::fs::write(&log, format!("old\n{many}")).unwrap();
        let tail = log_tail(&log, 4);
        assert_eq!(tail.lines().count(), LOG_TAIL_LINES);
        assert!(tail.ends_with("line 39"));
        assert_eq!(log_tail(&dir.path().join("none"), 0), "");
    }
}
