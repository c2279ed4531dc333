//! What is in the jobs directory, and how each job is. Reads only; the sole thing it moves is a directory
//! that nobody can read any more and nobody lives in.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use jiff::Timestamp;
use parhelia_core::sandbox::{Exit, Inspection, Listing, Phase, Sandbox, Tags};
use parhelia_core::state::TerminationReason;
use uuid::Uuid;

use super::jobdir::{JobDir, JobResult, JobSpec, ReadError, Sentinel, exists, jobs_dir, read_json};
use super::lock::{LockState, query};
use super::procs::Census;
use super::{Inner, host, locked, procs};
use crate::ProviderError;
use crate::supervise::JOB_VARIABLE;

/// What is remembered of a job because it cannot change.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// From `spec.json`; its phase is meaningful only when `finished`.
    sandbox: Sandbox,
    finished: bool,
    /// When its lock was last seen held: it did not end before that, however old its sentinel is.
    alive_at: Option<Timestamp>,
}

/// One look at one job.
#[derive(Debug)]
enum Look {
    /// Proven never to have run: for the reconciler it does not exist.
    NeverStarted,
    Seen(Box<Sandbox>),
    /// Its supervisor is gone without a result. Whether something survived is found out for all at once.
    Lost(Box<Sandbox>, Loss),
    /// Its own files make no sense.
    Corrupt(String),
    /// It could not be read now.
    Failed(String),
}

#[derive(Debug)]
struct Loss {
    rebooted: bool,
    /// It ended after this; nobody can say how long after.
    last_sign: Timestamp,
}

pub(crate) fn list(inner: &Inner) -> Result<Listing, ProviderError> {
    let home = &inner.config.home;
    let jobs = jobs_dir(home);
    let local = local(inner)?;
    let mut sandboxes = Vec::new();
    let mut lost = Vec::new();
    let mut corrupt = Vec::new();
    let mut complete = true;
    let mut present = HashSet::new();
    for job in jobs_in(&jobs)? {
        present.insert(job);
        match look(inner, job, &local) {
            Look::NeverStarted => {}
            Look::Seen(sandbox) => sandboxes.push(*sandbox),
            Look::Lost(sandbox, loss) => lost.push((sandbox, loss)),
            Look::Corrupt(why) => corrupt.push((job, why)),
            Look::Failed(why) => {
                // Absence from this listing must mean nothing then.
                complete = false;
                inner.set_aside(why);
            }
        }
    }
    locked(&inner.known).retain(|job, _| present.contains(job));
    if !lost.is_empty() || !corrupt.is_empty() {
        // Counted after the last lock was seen free, or a death in between would go unnoticed.
        let alive = survivors()?;
        let from = sandboxes.len();
        sandboxes.extend(lost.into_iter().map(|(sandbox, loss)| settle(*sandbox, &loss, &alive)));
        tell_of_unreadable(inner, &sandboxes[from..], &alive);
        for (job, why) in corrupt {
            set_aside(inner, job, &why, &local, &alive);
        }
    }
    Ok(Listing { identity: inner.config.home_id.clone(), complete, sandboxes })
}

pub(crate) fn inspect(inner: &Inner, job: Uuid) -> Result<Inspection, ProviderError> {
    let local = local(inner)?;
    let dir = inner.dir(job);
    match exists(dir.path()) {
        Ok(true) => {}
        // Only a readable jobs directory can prove an absence; `local` has just looked at it.
        Ok(false) => return without_directory(&dir, job),
        Err(error) => return Err(unreadable(dir.path(), &error)),
    }
    match look(inner, job, &local) {
        Look::NeverStarted => Ok(Inspection::Absent),
        Look::Seen(sandbox) => Ok(Inspection::Present(sandbox)),
        Look::Lost(sandbox, loss) => {
            let alive = survivors()?;
            let sandbox = settle(*sandbox, &loss, &alive);
            tell_of_unreadable(inner, std::slice::from_ref(&sandbox), &alive);
            Ok(Inspection::Present(Box::new(sandbox)))
        }
        Look::Corrupt(why) | Look::Failed(why) => Err(ProviderError::Unreachable(why)),
    }
}

/// Somebody removed its directory. That ends nothing: what still runs is not absent.
fn without_directory(dir: &JobDir, job: Uuid) -> Result<Inspection, ProviderError> {
    match survivors()?.of(&job.to_string()) {
        0 => Ok(Inspection::Absent),
        left => Err(ProviderError::Unreachable(format!(
            "{} is gone, and {left} of its processes still run; terminate the container to end them",
            dir.path().display()
        ))),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> ProviderError {
    ProviderError::Unreachable(format!("{} could not be read: {error}", path.display()))
}

/// Whether free locks may be believed here. Fails when the jobs directory is gone: that proves nothing.
fn local(inner: &Inner) -> Result<Result<(), String>, ProviderError> {
    let jobs = jobs_dir(&inner.config.home);
    host::local_filesystem(&jobs).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ProviderError::Unreachable(format!(
            "the jobs directory {} is gone; put it back, or restart the server to begin with an empty one",
            jobs.display()
        )),
        _ => unreadable(&jobs, &error),
    })
}

pub(super) fn jobs_in(jobs: &Path) -> Result<Vec<Uuid>, ProviderError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(jobs).map_err(|error| unreadable(jobs, &error))? {
        let entry = entry.map_err(|error| unreadable(jobs, &error))?;
        // Anything else in there is not ours.
        if let Some(job) =
            entry.file_name().to_str().filter(|name| name.len() == 36).and_then(|n| n.parse().ok())
        {
            found.push(job);
        }
    }
    Ok(found)
}

fn survivors() -> Result<Census, ProviderError> {
    procs::census(JOB_VARIABLE).map_err(|error| ProviderError::Unreachable(error.to_string()))
}

/// A program of this user that does not let itself be read (setuid, or not dumpable) may be left from a lost
/// job, and nobody can tell. An unrelated one must not keep the job from ending, so people are told, once
/// per job, and it goes on.
fn tell_of_unreadable(inner: &Inner, lost: &[Sandbox], alive: &Census) {
    let now = inner.config.clock.now();
    let mut unread = 0;
    let mut jobs = Vec::new();
    for sandbox in lost {
        let ended_here =
            matches!(&sandbox.phase, Phase::Exited(exit) if exit.reason == TerminationReason::SupervisorLost);
        let Some(began) = sandbox.started_at.or(sandbox.created_at).filter(|_| ended_here) else { continue };
        let since = alive.unreadable_since(began, now);
        if since > 0 && inner.is_news(format!("unreadable {}", sandbox.sandbox_id)) {
            unread = since.max(unread);
            jobs.push(sandbox.sandbox_id.as_str());
        }
    }
    if jobs.is_empty() {
        return;
    }
    let more = if jobs.len() > 3 { format!(" and {} more", jobs.len() - 3) } else { String::new() };
    jobs.truncate(3);
    inner.set_aside(format!(
        "{unread} processes of this user do not let their environment be read (setuid or protected programs); \
         one of them may be left from the lost job {}{more}: look with ps, and end by hand what belongs to it",
        jobs.join(", ")
    ));
}

fn look(inner: &Inner, job: Uuid, local: &Result<(), String>) -> Look {
    let known = locked(&inner.known).get(&job).cloned();
    if let Some(known) = &known
        && known.finished
    {
        return Look::Seen(Box::new(known.sandbox.clone()));
    }
    let dir = inner.dir(job);
    match look_closer(inner, job, &dir, known, local) {
        Ok(look) => look,
        Err(ReadError::Corrupt { path, why }) => {
            Look::Corrupt(format!("job {job}: {} is not what it should be: {why}", path.display()))
        }
        Err(error) => Look::Failed(format!("job {job}: {error}")),
    }
}

fn look_closer(
    inner: &Inner,
    job: Uuid,
    dir: &JobDir,
    known: Option<Known>,
    local: &Result<(), String>,
) -> Result<Look, ReadError> {
    let (mut sandbox, mut alive_at) = match known {
        Some(known) => (known.sandbox, known.alive_at),
        None => (from_spec(job, dir)?, None),
    };
    if let Some(result) = read_result(dir)? {
        return Ok(Look::Seen(finished(inner, job, sandbox, result)));
    }
    let io = |path: std::path::PathBuf| move |source| ReadError::Io { path, source };
    let state = query(dir, &inner.host, local).map_err(io(dir.alive()))?;
    if state == LockState::Held {
        alive_at = Some(inner.config.clock.now());
    } else {
        // It may have ended between the two looks, and then its result came before its lock went.
        if let Some(result) = read_result(dir)? {
            return Ok(Look::Seen(finished(inner, job, sandbox, result)));
        }
    }
    match state {
        LockState::Held if sandbox.started_at.is_some() => sandbox.phase = Phase::Running,
        LockState::Held => match read_json::<Sentinel>(&dir.sentinel()) {
            Ok(Some(sentinel)) => {
                sandbox.started_at = Some(sentinel.started_at);
                sandbox.phase = Phase::Running;
            }
            Ok(None) => sandbox.phase = Phase::Starting,
            // The lock says more than the sentinel does.
            Err(_) => sandbox.phase = Phase::Running,
        },
        LockState::Untrusted(why) | LockState::Elsewhere(why) => sandbox.phase = Phase::Unknown { why },
        LockState::Free { rebooted } => {
            let began = exists(&dir.sentinel()).map_err(io(dir.sentinel()))?;
            // An unreadable result proves a start as well as a readable one.
            if !began && !exists(&dir.result()).map_err(io(dir.result()))? {
                return Ok(Look::NeverStarted);
            }
            let sentinel = read_json::<Sentinel>(&dir.sentinel()).ok().flatten();
            sandbox.started_at = sandbox.started_at.or(sentinel.as_ref().map(|s| s.started_at));
            let beat = sentinel.map(|sentinel| sentinel.last_heartbeat);
            let last_sign = beat.max(alive_at).unwrap_or_else(|| inner.config.clock.now());
            return Ok(Look::Lost(Box::new(sandbox), Loss { rebooted, last_sign }));
        }
    }
    locked(&inner.known).insert(job, Known { sandbox: sandbox.clone(), finished: false, alive_at });
    Ok(Look::Seen(Box::new(sandbox)))
}

/// A damaged result is no result: the lock and the sentinel tell the rest.
fn read_result(dir: &JobDir) -> Result<Option<JobResult>, ReadError> {
    match read_json(&dir.result()) {
        Err(ReadError::Corrupt { .. }) => Ok(None),
        other => other,
    }
}

/// A job without a result whose supervisor is gone, now that the survivors are counted.
fn settle(mut sandbox: Sandbox, loss: &Loss, alive: &Census) -> Sandbox {
    let left = if loss.rebooted { 0 } else { alive.of(&sandbox.sandbox_id) };
    let reason =
        if loss.rebooted { TerminationReason::HostRebooted } else { TerminationReason::SupervisorLost };
    sandbox.phase = if left > 0 {
        Phase::Broken { reason }
    } else {
        let message = if loss.rebooted { "its machine was restarted" } else { "its supervisor died" };
        Phase::Exited(Exit {
            code: None,
            reason,
            at: Some(loss.last_sign),
            message: Some(message.to_owned()),
        })
    };
    sandbox
}

fn finished(inner: &Inner, job: Uuid, mut sandbox: Sandbox, result: JobResult) -> Box<Sandbox> {
    let reason = result.reason();
    sandbox.started_at = Some(result.started_at);
    let message = match (result.message, result.signal) {
        (Some(message), Some(signal)) if !message.contains(&signal) => Some(format!("{message} ({signal})")),
        (message, signal) => message.or(signal),
    };
    let exit = Exit { code: result.exit_code, reason, at: Some(result.ended_at), message };
    sandbox.phase = Phase::Exited(exit);
    locked(&inner.known).insert(job, Known { sandbox: sandbox.clone(), finished: true, alive_at: None });
    locked(&inner.forced_at).remove(&job);
    Box::new(sandbox)
}

fn from_spec(job: Uuid, dir: &JobDir) -> Result<Sandbox, ReadError> {
    let corrupt = |why: &str| ReadError::Corrupt { path: dir.spec(), why: why.to_owned() };
    let spec = read_json::<JobSpec>(&dir.spec())?.ok_or_else(|| corrupt("it is missing"))?;
    if spec.job_id != job {
        return Err(corrupt("it belongs to another job"));
    }
    let sandbox = spec.sandbox;
    Ok(Sandbox {
        sandbox_id: job.to_string(),
        tags: Tags { instance: sandbox.instance_id, container: sandbox.container_id, task: sandbox.task_id },
        phase: Phase::Unknown { why: "not looked at yet".to_owned() },
        created_at: Some(spec.created_at),
        started_at: None,
        name: sandbox.name,
        image: None,
        command: sandbox.command,
        labels: sandbox.labels,
        region: None,
        resources: sandbox.resources,
        reported_cost_usd: None,
    })
}

/// A directory that makes no sense goes to `.quarantine` when nothing of it lives, for certain.
fn set_aside(inner: &Inner, job: Uuid, why: &str, local: &Result<(), String>, alive: &Census) {
    let dir = inner.dir(job);
    let left = alive.of(&job.to_string());
    match query(&dir, &inner.host, local) {
        Ok(LockState::Held) => {
            inner.set_aside(format!("{why}; it is alive and stays in its place, but cannot be shown"));
            return;
        }
        Err(error) => {
            inner.set_aside(format!("{why}; its lock could not be asked either: {error}"));
            return;
        }
        Ok(LockState::Untrusted(doubt) | LockState::Elsewhere(doubt)) => {
            inner.set_aside(format!(
                "{why}; it may be alive and stays in its place, but cannot be shown: {doubt}"
            ));
            return;
        }
        Ok(LockState::Free { .. }) if left > 0 => {
            inner.set_aside(format!("{why}; {left} of its processes still run, so it stays in its place"));
            return;
        }
        Ok(LockState::Free { .. }) => {}
    }
    let quarantine = jobs_dir(&inner.config.home).join(".quarantine");
    let stamp = inner.config.clock.now().strftime("%Y%m%dT%H%M%S%3fZ").to_string();
    let to = quarantine.join(format!("{job}-{stamp}"));
    let moved = std::fs::create_dir_all(&quarantine).and_then(|()| std::fs::rename(dir.path(), &to));
    match moved {
        Ok(()) => inner.set_aside(format!("{why}; moved to {}", to.display())),
        Err(error) => inner.set_aside(format!("{why}; it could not be moved to {}: {error}", to.display())),
    }
}
