//! Asks a supervisor for its job's end, by file and by socket, and does the work itself where there is no
//! supervisor, or none that reacts.

use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::jobdir::{Durability, JobDir, StopRequest, exists, write_json};
use super::lock::{LockState, query};
use super::{Inner, control, host, locked, sweep};
use crate::ProviderError;

/// How long a supervisor may take to obey a stop without grace before it is ended itself.
const FORCE_AFTER: Duration = Duration::from_secs(3);
const RELEASE_LOOKS: u32 = 100;
const RELEASE_PAUSE: Duration = Duration::from_millis(10);
const ANSWER_WAIT: Duration = Duration::from_millis(500);

/// What a stop came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// Its supervisor has been told, or it had ended before.
    Asked,
    /// There is no supervisor, and now nothing else of it either.
    Swept,
}

pub(crate) fn stop(inner: &Inner, job: Uuid, grace_seconds: u32) -> Result<Stopped, ProviderError> {
    let dir = inner.dir(job);
    let unreachable = |what: &str, error: &dyn std::fmt::Display| {
        ProviderError::Unreachable(format!("{what} of job {job} failed: {error}"))
    };
    let present = exists(dir.path()).map_err(|error| unreachable("looking at the directory", &error))?;
    let finished =
        present && exists(&dir.result()).map_err(|error| unreachable("looking at the result", &error))?;
    if finished {
        locked(&inner.forced_at).remove(&job);
        return Ok(Stopped::Asked);
    }
    if !present {
        // Its directory is gone; something of it may not be.
        return swept(job, sweep::sweep(job));
    }
    let local = host::local_filesystem(dir.path())
        .map_err(|error| unreachable("asking for the file system", &error))?;
    match query(&dir, &inner.host, &local).map_err(|error| unreachable("the lock", &error))? {
        LockState::Free { .. } => {
            locked(&inner.forced_at).remove(&job);
            swept(job, sweep::sweep(job))
        }
        LockState::Held if grace_seconds == 0 && force_is_due(inner, job) => {
            tracing::warn!(%job, "its supervisor does not react to a forced stop; ending it");
            let done = swept(job, sweep::kill_supervisor(job))?;
            // The kernel drops a lock at a death, a moment after the environment by which it was found: a lock that
            // stays belongs to somebody we did not find.
            for _ in 0..RELEASE_LOOKS {
                let lock =
                    query(&dir, &inner.host, &local).map_err(|error| unreachable("the lock", &error))?;
                if lock != LockState::Held {
                    return Ok(done);
                }
                std::thread::sleep(RELEASE_PAUSE);
            }
            Err(unreachable(
                "a forced stop",
                &"its supervisor cannot be found among this user's processes; end it as the user who started it",
            ))
        }
        // A copied `ctl.path` leads to the original's supervisor, and nobody reads a `.stop` here.
        LockState::Elsewhere(why) => Err(unreachable("a stop", &why)),
        // Where the lock says nothing, whoever supervises it may still read the request.
        LockState::Held | LockState::Untrusted(_) => ask(inner, &dir, job, grace_seconds),
    }
}

/// Whether an earlier stop without grace was left unanswered. The first one starts the count.
fn force_is_due(inner: &Inner, job: Uuid) -> bool {
    let now = inner.config.clock.monotonic();
    let first = *locked(&inner.forced_at).entry(job).or_insert(now);
    now.saturating_sub(first) >= FORCE_AFTER
}

fn ask(inner: &Inner, dir: &JobDir, job: Uuid, grace_seconds: u32) -> Result<Stopped, ProviderError> {
    let request = StopRequest {
        grace_seconds,
        reason: parhelia_core::state::TerminationReason::Manual.as_str().to_owned(),
        requested_at: inner.config.clock.now(),
    };
    // The file outlives a server and a supervisor that is busy; the socket is quick and needs no space.
    let written = write_json(&dir.stop(), &request, Durability::Atomic);
    let poke = json!({"op": "stop", "graceSeconds": grace_seconds});
    let poked = control::ask(&dir.control_socket(), &poke, ANSWER_WAIT);
    match (written, poked) {
        (Err(file), Err(socket)) => Err(ProviderError::Unreachable(format!(
            "job {job} could not be told to stop: {} could not be written ({file}) and its control socket did \
             not answer ({socket}); free some space, or stop it with grace 0 to end its supervisor",
            dir.stop().display()
        ))),
        _ => Ok(Stopped::Asked),
    }
}

fn swept(job: Uuid, left: std::io::Result<usize>) -> Result<Stopped, ProviderError> {
    match left {
        Ok(0) => Ok(Stopped::Swept),
        Ok(left) => Err(ProviderError::Unreachable(format!(
            "{left} processes of job {job} are still there after SIGKILL"
        ))),
        Err(error) => {
            Err(ProviderError::Unreachable(format!("the processes of job {job} could not be ended: {error}")))
        }
    }
}
