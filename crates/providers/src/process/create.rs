//! Makes a job: its directory with a locked `.alive` appears in one step, then a detached supervisor gets
//! the locked descriptor. A second create of the same id finds the first one's directory and starts nothing
//! unless that is proven never to have started.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parhelia_core::sandbox::{Inspection, Sandbox, SandboxSpec};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::jobdir::{
    Durability, JobDir, JobSpec, PROTOCOL, Sentinel, exists, job_id, jobs_dir, read_json, sync_dir,
    write_json,
};
use super::lock::{LockState, hold, query};
use super::{Inner, blocking, host, locked, observe};
use crate::CreateError;
use crate::supervise::SUPERVISES_VARIABLE;

const START_WAIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);
/// The kernel's limit for one argument or one environment entry, with its terminator.
const ARGUMENT_MAX_BYTES: usize = 128 * 1024;

/// How a supervisor that was started by us ended, if it did while we waited.
type Ended = oneshot::Receiver<io::Result<std::process::ExitStatus>>;

pub(crate) async fn create(inner: &Arc<Inner>, spec: &SandboxSpec) -> Result<Sandbox, CreateError> {
    validate(spec).map_err(CreateError::Rejected)?;
    let job = job_id(&spec.container_id);
    // Goes with the work: a create that was given up by its caller is under way until its thread is back.
    let under_way = UnderWay::begin(inner, job)?;
    // A step of its own: where a dead mount holds it up until nobody waits any more, nothing is started.
    let (under_way, secrets) = {
        let workdir = spec.workdir.clone();
        let names = spec.surroundings.secrets.clone();
        blocking(inner, CreateError::Unknown, move |inner| {
            find_workdir(workdir.as_deref()).map_err(CreateError::Rejected)?;
            let secrets = secrets(inner, &names).map_err(CreateError::Rejected)?;
            Ok((under_way, secrets))
        })
        .await?
    };
    let (prepared, _under_way) = {
        let spec = spec.clone();
        blocking(inner, CreateError::Unknown, move |inner| {
            Ok((start(inner, job, &spec, secrets)?, under_way))
        })
        .await?
    };
    if let Some(ended) = prepared {
        wait_for_start(inner, job, ended).await?;
    }
    let seen = blocking(inner, CreateError::Unknown, move |inner| {
        observe::inspect(inner, job).map_err(|error| CreateError::Unknown(error.to_string()))
    });
    match seen.await? {
        Inspection::Present(sandbox) => {
            if sandbox.phase.is_alive() {
                inner.watches.watch(job, inner.dir(job));
            }
            Ok(*sandbox)
        }
        Inspection::Absent => {
            Err(CreateError::Unknown(format!("job {job} was started and cannot be seen yet")))
        }
    }
}

/// One create per job at a time in this process.
#[derive(Debug)]
struct UnderWay {
    inner: Arc<Inner>,
    job: Uuid,
}

impl UnderWay {
    fn begin(inner: &Arc<Inner>, job: Uuid) -> Result<Self, CreateError> {
        if !locked(&inner.creating).insert(job) {
            return Err(CreateError::Unknown(format!("job {job} is being created already")));
        }
        Ok(Self { inner: inner.clone(), job })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        locked(&self.inner.creating).remove(&self.job);
    }
}

/// What can be known to be wrong before anything is made, and without touching a file system.
fn validate(spec: &SandboxSpec) -> Result<(), String> {
    if let Some(image) = &spec.image {
        return Err(format!(
            "the process provider runs commands of this machine and has no images; leave out the image \
             '{image}' or use provider docker"
        ));
    }
    // A secret is a variable of its environment; the rest is an engine's.
    let asked = spec.surroundings.asked();
    if let Some(first) = asked.into_iter().find(|asked| *asked != "secret") {
        return Err(format!(
            "the process provider cannot give a {first}: its processes are those of this machine; use provider docker"
        ));
    }
    if spec.command.first().is_none_or(|program| program.is_empty()) {
        return Err("the command is empty; give the program and its arguments after --".to_owned());
    }
    for (index, argument) in spec.command.iter().enumerate() {
        if argument.contains('\0') {
            return Err(format!(
                "argument {index} holds a NUL byte, which no program can be given; put it into a file"
            ));
        }
        if argument.len() >= ARGUMENT_MAX_BYTES {
            return Err(format!(
                "argument {index} has {} bytes; one argument may be at most 128 KiB: put large inputs into a file",
                argument.len()
            ));
        }
    }
    for (name, value) in &spec.env {
        let shown: String = name.chars().take(60).collect();
        if name.is_empty() || name.contains('=') || name.contains('\0') || value.contains('\0') {
            return Err(format!(
                "'{shown}' is not a possible environment variable: its name must not be empty or hold '=', and \
                 neither name nor value may hold a NUL byte"
            ));
        }
        if name.len() + 1 + value.len() >= ARGUMENT_MAX_BYTES {
            return Err(format!(
                "the environment variable '{shown}' is too large; one may be at most 128 KiB: put large values into a file"
            ));
        }
    }
    if let Some(ours) = spec.surroundings.secrets.iter().find(|name| name.starts_with("PARHELIA_")) {
        return Err(format!("the secret {ours} would be one of our own variables; give it another name"));
    }
    if let Some(workdir) = &spec.workdir
        && (workdir.contains('\0') || !Path::new(workdir).is_absolute())
    {
        return Err(format!("the working directory '{workdir}' must be a full path; begin it with /"));
    }
    Ok(())
}

/// Names and values; the values are nowhere else.
type Secrets = Vec<(String, std::ffi::OsString)>;

fn secrets(inner: &Inner, names: &[String]) -> Result<Secrets, String> {
    use std::os::unix::ffi::OsStringExt;
    let dir = inner.config.home.join("secrets");
    let read = |name: &String| {
        let mut value = crate::secret::read(&dir, name)?;
        // Written with an editor or `echo`, it ends with a newline that is no part of it.
        if value.ends_with(b"\n") {
            value.truncate(value.len() - if value.ends_with(b"\r\n") { 2 } else { 1 });
        }
        if value.contains(&0) || name.len() + 1 + value.len() >= ARGUMENT_MAX_BYTES {
            return Err(format!(
                "the secret {name} cannot be an environment variable: it holds a NUL byte, or more than 128 KiB"
            ));
        }
        Ok((name.clone(), std::ffi::OsString::from_vec(value)))
    };
    names.iter().map(read).collect()
}

/// May wait for ever where the directory is on a server that does not answer.
fn find_workdir(workdir: Option<&str>) -> Result<(), String> {
    match workdir {
        Some(workdir) if !Path::new(workdir).is_dir() => {
            Err(format!("the working directory {workdir} is not there; create it or give another"))
        }
        _ => Ok(()),
    }
}

/// `None` when there is one already that may live or has lived.
fn start(
    inner: &Inner,
    job: Uuid,
    spec: &SandboxSpec,
    secrets: Secrets,
) -> Result<Option<Ended>, CreateError> {
    let dir = inner.dir(job);
    // Whatever was known of an earlier directory of this name is about another one.
    locked(&inner.known).remove(&job);
    let refused = |error: io::Error| {
        CreateError::Rejected(format!(
            "the job's directory {} could not be made: {error}; check the space on that disk and who owns the home",
            dir.path().display()
        ))
    };
    let alive = if exists(dir.path()).map_err(refused)? {
        match take_over(inner, &dir, spec)? {
            Some(alive) => alive,
            None => return Ok(None),
        }
    } else {
        make(inner, &dir, job, spec).map_err(refused)?
    };
    spawn(inner, &dir, job, alive, secrets).map(Some)
}

/// Builds the directory aside and moves it into place: it is never seen without its lock.
fn make(inner: &Inner, dir: &JobDir, job: Uuid, spec: &SandboxSpec) -> io::Result<File> {
    let jobs = jobs_dir(&inner.config.home);
    let aside = JobDir::at(jobs.join(format!(".new-{job}")));
    if exists(aside.path())? {
        // Left by a server that died in here; nothing was ever started from it.
        fs::remove_dir_all(aside.path())?;
    }
    let built = (|| {
        DirBuilder::new().mode(0o700).create(aside.path())?;
        write_json(&aside.spec(), &job_spec(inner, job, spec), Durability::Synced)?;
        let alive = hold(&aside, &inner.host)?;
        fs::rename(aside.path(), dir.path())?;
        sync_dir(&jobs)?;
        Ok(alive)
    })();
    if built.is_err() {
        let _ = fs::remove_dir_all(aside.path());
    }
    built
}

fn job_spec(inner: &Inner, job: Uuid, spec: &SandboxSpec) -> JobSpec {
    JobSpec {
        protocol: PROTOCOL,
        job_id: job,
        home: inner.config.home.clone(),
        created_at: inner.config.clock.now(),
        heartbeat_interval_seconds: inner.config.heartbeat_interval_seconds,
        output_rotate_bytes: inner.config.output_rotate_bytes,
        sandbox: spec.clone(),
    }
}

/// The directory is there. Only a job that is proven never to have started is started now.
fn take_over(inner: &Inner, dir: &JobDir, spec: &SandboxSpec) -> Result<Option<File>, CreateError> {
    let unknown = |error: &dyn std::fmt::Display| {
        CreateError::Unknown(format!("what is in {} could not be found out: {error}", dir.path().display()))
    };
    let has_run = || -> io::Result<bool> { Ok(exists(&dir.result())? || exists(&dir.sentinel())?) };
    if has_run().map_err(|error| unknown(&error))? {
        return Ok(None);
    }
    let local = host::local_filesystem(dir.path()).map_err(|error| unknown(&error))?;
    match query(dir, &inner.host, &local).map_err(|error| unknown(&error))? {
        LockState::Free { .. } => {}
        LockState::Held => return Ok(None),
        LockState::Untrusted(why) | LockState::Elsewhere(why) => return Err(unknown(&why)),
    }
    let alive = hold(dir, &inner.host).map_err(|error| unknown(&error))?;
    // Under the lock nobody else can start it; what came before is visible now.
    if has_run().map_err(|error| unknown(&error))? {
        return Ok(None);
    }
    write_json(&dir.spec(), &job_spec(inner, job_id(&spec.container_id), spec), Durability::Synced)
        .map_err(|error| unknown(&error))?;
    Ok(Some(alive))
}

/// The supervisor leaves our session by itself as its first act; until it has written its sentinel it is
/// proven not to have started anything.
fn spawn(
    inner: &Inner,
    dir: &JobDir,
    job: Uuid,
    alive: File,
    secrets: Secrets,
) -> Result<Ended, CreateError> {
    let refused = |what: &Path, error: io::Error| {
        CreateError::Rejected(format!(
            "the supervisor of job {job} could not be started: {}: {error}; check that file and the limits of \
             processes and open files",
            what.display()
        ))
    };
    let log_path = dir.supervisor_log();
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&log_path)
        .and_then(|log| Ok((log.try_clone()?, log)))
        .map_err(|error| refused(&log_path, error))?;
    let mut command = tokio::process::Command::new(&inner.config.supervisor);
    command.arg("supervise").arg("--dir").arg(dir.path());
    command.stdin(Stdio::from(alive)).stdout(Stdio::from(log.0)).stderr(Stdio::from(log.1));
    command.current_dir(dir.path());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PARHELIA_")) {
        command.env_remove(name);
    }
    // In its environment alone, from which its command has them: never in a file.
    command.envs(secrets);
    command.env(SUPERVISES_VARIABLE, job.to_string());
    let mut child = command.spawn().map_err(|error| refused(&inner.config.supervisor, error))?;
    let (tell, ended) = oneshot::channel();
    let watches = inner.watches.clone();
    // Waits for as long as the supervisor lives, so that it does not stay a zombie of ours.
    tokio::spawn(async move {
        let status = child.wait().await;
        let _ = tell.send(status);
        watches.hint();
    });
    Ok(ended)
}

/// Until its sentinel says that the command runs, or there is a result.
async fn wait_for_start(inner: &Arc<Inner>, job: Uuid, mut ended: Ended) -> Result<(), CreateError> {
    let dir = inner.dir(job);
    let started = async {
        loop {
            if has_started(&dir) == Some(true) {
                return Ok(());
            }
            match ended.try_recv() {
                Ok(status) if has_started(&dir).is_none() => return Err(never_started(&dir, job, status)),
                // It began and is gone already: what is left of it will be seen.
                Ok(_) => return Ok(()),
                Err(_) => tokio::time::sleep(LOOK).await,
            }
        }
    };
    match tokio::time::timeout(START_WAIT, started).await {
        Ok(answer) => answer,
        Err(_) if has_started(&dir).is_some() => Ok(()),
        Err(_) => Err(CreateError::Unknown(format!(
            "the supervisor of job {job} said nothing for {} s; see {}",
            START_WAIT.as_secs(),
            dir.supervisor_log().display()
        ))),
    }
}

/// `None`: no sign of it. `Some(false)`: the command is about to be started.
fn has_started(dir: &JobDir) -> Option<bool> {
    let sentinel = read_json::<Sentinel>(&dir.sentinel()).ok().flatten();
    // The result comes before the sentinel goes, so it is looked at last.
    if exists(&dir.result()).unwrap_or(false) {
        return Some(true);
    }
    sentinel.map(|sentinel| sentinel.command_started())
}

fn never_started(dir: &JobDir, job: Uuid, status: io::Result<std::process::ExitStatus>) -> CreateError {
    let text = fs::read_to_string(dir.supervisor_log()).unwrap_or_default();
    let said: Vec<&str> = text.lines().rev().take(3).collect();
    let said = said.into_iter().rev().collect::<Vec<_>>().join(" ");
    match status {
        // It said why and will say it again.
        Ok(status) if status.code().is_some() => CreateError::Rejected(format!(
            "job {job} was not started: {}",
            if said.is_empty() {
                format!("its supervisor ended with {status} and said nothing")
            } else {
                said
            }
        )),
        Ok(status) => {
            CreateError::Unknown(format!("the supervisor of job {job} ended before it began: {status}"))
        }
        Err(error) => {
            CreateError::Unknown(format!("the supervisor of job {job} could not be waited for: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parhelia_core::ids::ContainerId;

    #[test]
    fn what_cannot_work_is_refused_with_what_to_do() {
        let good = SandboxSpec {
            container_id: ContainerId::parse("c-01k9z3q8xw4f7m2a").unwrap(),
            instance_id: "i".into(),
            task_id: None,
            session_id: None,
            name: None,
            image: None,
            command: vec!["true".into()],
            env: Default::default(),
            workdir: None,
            labels: Default::default(),
            resources: Default::default(),
            idle_timeout_seconds: None,
            tmux_session: None,
            job: None,
            surroundings: Default::default(),
        };
        assert_eq!(validate(&good), Ok(()));
        let with = |change: fn(&mut SandboxSpec)| {
            let mut spec = good.clone();
            change(&mut spec);
            validate(&spec).unwrap_err()
        };
        for (message, part) in [
            (with(|s| s.command = vec![]), "is empty"),
            (with(|s| s.command.push("a\0b".into())), "NUL"),
            (with(|s| s.command.push("x".repeat(ARGUMENT_MAX_BYTES))), "128 KiB"),
            (with(|s| s.image = Some("alpine".into())), "docker"),
            (with(|s| s.workdir = Some("relative".into())), "full path"),
            (with(|s| drop(s.env.insert("A=B".into(), "1".into()))), "'A=B'"),
            (with(|s| drop(s.env.insert("".into(), "1".into()))), "empty"),
        ] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(find_workdir(None), Ok(()));
        assert_eq!(find_workdir(Some("/")), Ok(()));
        assert!(find_workdir(Some("/not/there")).unwrap_err().contains("create it"));
    }
}
