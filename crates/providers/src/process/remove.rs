//! Takes the directory of a job away, once it is proven that nothing of it can still need it.

use std::fs;
use std::io;
use std::path::Path;

use uuid::Uuid;

use super::jobdir::{exists, jobs_dir, sync_dir};
use super::lock::{LockState, query};
use super::{Inner, host, locked, sweep};
use crate::ProviderError;

/// What is under such a name was given up for good.
const ASIDE: &str = ".old-";

/// What an earlier server was cut off from removing.
pub(crate) fn finish_what_was_begun(jobs: &Path) {
    for entry in fs::read_dir(jobs).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(ASIDE))
            && let Err(error) = fs::remove_dir_all(entry.path())
        {
            tracing::warn!("{} was given up and cannot be removed: {error}", entry.path().display());
        }
    }
}

/// Refuses a job that lives, that may live, or of which something is left. Safe to repeat.
pub(crate) fn remove(inner: &Inner, job: Uuid) -> Result<(), ProviderError> {
    let dir = inner.dir(job);
    let jobs = jobs_dir(&inner.config.home);
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        ProviderError::Unreachable(format!("the directory of job {job} stays: {what}: {error}"))
    };
    let refused = |why: String| ProviderError::Rejected(format!("the directory of job {job} stays: {why}"));
    // Under another name it is nobody's job any more: what was cut off in the middle is taken up again here.
    let aside = jobs.join(format!("{ASIDE}{job}"));
    if exists(dir.path()).map_err(|error| failed("it cannot be looked at", &error))? {
        if locked(&inner.creating).contains(&job) {
            return Err(refused("it is being created".to_owned()));
        }
        let local = host::local_filesystem(dir.path()).map_err(|error| failed("its file system", &error))?;
        match query(&dir, &inner.host, &local).map_err(|error| failed("its lock", &error))? {
            LockState::Free { .. } => {}
            LockState::Held => return Err(refused("its supervisor lives".to_owned())),
            LockState::Untrusted(why) | LockState::Elsewhere(why) => return Err(refused(why)),
        }
        match sweep::survivors(job).map_err(|error| failed("its processes cannot be counted", &error))? {
            0 => {}
            left => return Err(refused(format!("{left} of its processes still run"))),
        }
        let socket = dir.control_socket();
        // Elsewhere only when the path was too long; there it would be left behind.
        if socket.parent() != Some(dir.path()) && socket.starts_with(inner.config.home.join("run")) {
            gone(fs::remove_file(&socket)).map_err(|error| failed("its socket", &error))?;
        }
        gone(fs::remove_dir_all(&aside)).map_err(|error| failed("what is left of it", &error))?;
        fs::rename(dir.path(), &aside).map_err(|error| failed("it cannot be moved aside", &error))?;
        sync_dir(&jobs).map_err(|error| failed("its removal cannot be kept", &error))?;
    }
    locked(&inner.known).remove(&job);
    locked(&inner.forced_at).remove(&job);
    gone(fs::remove_dir_all(&aside)).map_err(|error| failed("it cannot be emptied", &error))
}

/// What is not there is gone.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
