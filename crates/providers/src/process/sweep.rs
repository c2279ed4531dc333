//! The one place that turns a job into live processes: what its dead supervisor left behind is found by the
//! environment it was started with, at this moment, and ended through checked descriptors.

use std::io;
use std::time::Duration;

use uuid::Uuid;

use super::procs;
use crate::supervise::{JOB_VARIABLE, SUPERVISES_VARIABLE};

const ROUNDS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// How many processes of the job live now.
pub fn survivors(job: Uuid) -> io::Result<usize> {
    Ok(procs::with_environment(JOB_VARIABLE, &job.to_string())?.len())
}

/// Ends every process of the job. Returns how many are left after a bounded time.
pub fn sweep(job: Uuid) -> io::Result<usize> {
    let value = job.to_string();
    let mut refused = None;
    for _ in 0..ROUNDS {
        let left = procs::with_environment(JOB_VARIABLE, &value)?;
        if left.is_empty() {
            return Ok(0);
        }
        for found in &left {
            if let Err(error) = procs::kill_if_started_with(found, JOB_VARIABLE, &value) {
                refused = Some(error);
            }
        }
        std::thread::sleep(PAUSE);
    }
    match (survivors(job)?, refused) {
        (0, _) => Ok(0),
        (_, Some(error)) => Err(error),
        (left, None) => Ok(left),
    }
}

/// Ends a supervisor that does not react, with everything below it, then whatever escaped the tree.
/// Returns how many processes are left after a bounded time.
pub fn kill_supervisor(job: Uuid) -> io::Result<usize> {
    let value = job.to_string();
    for supervisor in procs::with_environment(SUPERVISES_VARIABLE, &value)? {
        // Looked at before its end: afterwards a descendant without our variables could not be found.
        let tree = procs::below(supervisor.proc_no)?;
        procs::kill_if_started_with(&supervisor, SUPERVISES_VARIABLE, &value)?;
        for descendant in &tree {
            let _ = procs::signal(descendant, rustix::process::Signal::KILL);
        }
    }
    sweep(job)
}
