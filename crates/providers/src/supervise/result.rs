//! `result.json`: the durable record of the end. Its space is taken before the command starts, because the
//! disk that a job fills must not take the job's result with it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Duration;

use parhelia_core::state::TerminationReason;
use parhelia_core::time::Clock;
use rustix::fs::{FallocateFlags, fallocate};

use super::child::StartFailure;
use super::ending::End;
use super::{Shared, log, signals};
use crate::process::jobdir::{JobDir, JobResult, PROTOCOL, sync_dir};

const RESERVED_BYTES: u64 = 16 * 1024;
const MESSAGE_MAX_CHARS: usize = 2000;
/// How often a failing write is tried, once a second.
const WRITE_ATTEMPTS: u32 = 60;

#[derive(Debug)]
pub(super) enum Ended {
    NotStarted(StartFailure),
    Ran(End),
}

pub(super) fn reserve(dir: &JobDir) -> Result<File, String> {
    let path = dir.result_reserve();
    let take = || -> io::Result<File> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, RESERVED_BYTES) {
            Ok(()) => {}
            Err(rustix::io::Errno::OPNOTSUPP) => file.write_all(&[b' '; RESERVED_BYTES as usize])?,
            Err(error) => return Err(error.into()),
        }
        Ok(file)
    };
    take().map_err(|error| {
        format!(
            "no space for the result could be reserved at {}: {error}; not starting. Free some space",
            path.display()
        )
    })
}

/// Writes the result, then removes the sentinel.
pub(super) fn finish(
    shared: &Shared,
    reserve: File,
    ended: Ended,
    written: (u64, u64),
) -> Result<(), String> {
    super::control::remove(shared);
    let result = record(shared, ended, written);
    let mut bytes = serde_json::to_vec_pretty(&result).map_err(|error| format!("the result: {error}"))?;
    bytes.push(b'\n');
    let mut last = String::new();
    for attempt in 0..WRITE_ATTEMPTS {
        match publish(shared, &reserve, &bytes) {
            Ok(()) => {
                shared.sentinel.remove(shared);
                super::attach::tell_end(shared, &bytes);
                return Ok(());
            }
            Err(error) => last = error.to_string(),
        }
        if attempt == 0 {
            log(&format!("{} could not be written: {last}; trying again", shared.dir.result().display()));
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    Err(format!("the end of the job could not be recorded in {}: {last}", shared.dir.result().display()))
}

fn publish(shared: &Shared, reserve: &File, bytes: &[u8]) -> io::Result<()> {
    reserve.write_all_at(bytes, 0)?;
    reserve.set_len(bytes.len() as u64)?;
    reserve.sync_all()?;
    std::fs::rename(shared.dir.result_reserve(), shared.dir.result())?;
    sync_dir(shared.dir.path())
}

fn record(shared: &Shared, ended: Ended, (output_bytes, lost_bytes): (u64, u64)) -> JobResult {
    let ask = shared.spec.sandbox.job.as_ref();
    let (exit_code, signal, reason, message) = match ended {
        Ended::NotStarted(failure) => {
            (Some(failure.exit_code), None, TerminationReason::StartFailed, Some(failure.message))
        }
        Ended::Ran(end) => {
            let natural = match (end.exit_code, end.signal) {
                (Some(0), _) => TerminationReason::Completed,
                (Some(_), _) => TerminationReason::Failed,
                (None, _) => TerminationReason::Crash,
            };
            let signal = end.signal.map(signals::name);
            (end.exit_code, signal, end.reason.unwrap_or(natural), end.message)
        }
    };
    let waiting_code = exit_code.filter(|code| ask.is_some_and(|ask| ask.waiting_codes.contains(code)));
    let (sentinel_writes, sentinel_failures) = shared.sentinel.written();
    JobResult {
        protocol: PROTOCOL,
        job_id: shared.spec.job_id,
        container_id: shared.spec.sandbox.container_id.clone(),
        exit_code,
        signal,
        reason: reason.as_str().to_owned(),
        message: message.map(|text| text.chars().take(MESSAGE_MAX_CHARS).collect()),
        started_at: shared.started_at,
        ended_at: shared.clock.now().max(shared.started_at),
        output_bytes,
        lost_bytes,
        waiting: waiting_code.is_some(),
        waiting_reason: waiting_code
            .map(|code| shared.activity.last_reason().unwrap_or_else(|| format!("exited with code {code}"))),
        session_id: shared.activity.session(),
        sentinel_writes,
        sentinel_failures,
    }
}
