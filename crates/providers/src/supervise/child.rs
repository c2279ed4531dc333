//! Starts the command: its own session and group, dead when its supervisor dies, its streams, and an environment
//! that says which job it belongs to.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;

use super::streams::Ends;
use super::{JOB_VARIABLE, Shared};
use crate::process::procs::Handle;

/// What a terminal of ours is when nobody said: the commonest kind.
const DEFAULT_TERM: &str = "xterm-256color";

/// Why there is no process, as shells number it and in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StartFailure {
    pub(super) exit_code: i64,
    pub(super) message: String,
}

/// Must be called from the main thread: the parent-death signal follows the thread that forked.
pub(super) fn spawn(shared: &Shared, ends: Ends) -> Result<Handle, StartFailure> {
    let sandbox = &shared.spec.sandbox;
    let Some((program, arguments)) = sandbox.command.split_first() else {
        return Err(StartFailure { exit_code: 126, message: "the command is empty; give one".into() });
    };
    let too_many_files = |error: io::Error| StartFailure {
        exit_code: 126,
        message: format!("cannot start '{program}': {error}; raise the limit of open files (ulimit -n)"),
    };
    // Its end of file tells a fork that its parent is already gone. Kept open until this process ends.
    let (parent_alive, parent_holds) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|error| too_many_files(error.into()))?;

    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(&shared.workdir)
        .env_clear()
        .envs(environment(shared))
        .stdin(Stdio::from(ends.stdin))
        .stdout(Stdio::from(ends.stdout))
        .stderr(Stdio::from(ends.stderr));
    if ends.is_terminal && !sandbox.env.contains_key("TERM") {
        command.env("TERM", DEFAULT_TERM);
    }
    let link = ParentLink { alive: parent_alive.as_raw_fd(), holds: parent_holds.as_raw_fd() };
    set_up_fork(&mut command, link, ends.is_terminal);
    let child = command.spawn().map_err(|error| explain(program, &shared.workdir, &error))?;
    std::mem::forget(parent_holds);
    Ok(Handle::from_child(&child))
}

/// The two ends of the pipe that tells a fork of its parent's death.
#[derive(Debug, Clone, Copy)]
struct ParentLink {
    alive: RawFd,
    holds: RawFd,
}

/// A new session, its terminal if it has one, and SIGKILL when the parent dies, even if it died before that could be
/// arranged.
#[allow(unsafe_code, reason = "the parent-death signal can only be set between fork and exec")]
fn set_up_fork(command: &mut Command, parent: ParentLink, is_terminal: bool) {
    // SAFETY: between fork and exec the closure makes plain system calls only: it neither allocates nor
    // takes a lock. Both descriptors are open in the parent until `spawn` returns, so they are valid in the
    // fork; closing the fork's copy of `parent.holds` is right because nothing else there owns it.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid()?;
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            rustix::io::close(parent.holds);
            if is_terminal {
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            }
            let alive = BorrowedFd::borrow_raw(parent.alive);
            let mut watched = [PollFd::new(&alive, PollFlags::IN)];
            poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
            if watched[0].revents().contains(PollFlags::HUP) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
}

/// Ours without anything of Parhelia's, then what the job asked for, then what says whose it is.
fn environment(shared: &Shared) -> BTreeMap<OsString, OsString> {
    let sandbox = &shared.spec.sandbox;
    let mut variables: BTreeMap<OsString, OsString> =
        std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("PARHELIA_")).collect();
    variables.extend(sandbox.env.iter().map(|(name, value)| (name.into(), value.into())));
    let mut ours = vec![
        (JOB_VARIABLE, shared.spec.job_id.to_string()),
        ("PARHELIA_CONTAINER_ID", sandbox.container_id.to_string()),
        ("PARHELIA_INSTANCE_ID", sandbox.instance_id.clone()),
    ];
    ours.extend(sandbox.task_id.iter().map(|task| ("PARHELIA_TASK_ID", task.clone())));
    variables.extend(ours.into_iter().map(|(name, value)| (name.into(), value.into())));
    variables.insert("PARHELIA_HOME".into(), shared.spec.home.clone().into());
    variables
}

fn explain(program: &str, workdir: &Path, error: &io::Error) -> StartFailure {
    let workdir_is_there = workdir.is_dir();
    let shown: String = program.chars().take(200).collect();
    let (exit_code, message) = match error.raw_os_error() {
        _ if !workdir_is_there => (
            126,
            format!(
                "cannot start '{shown}': its directory {} is not there; create it or give another",
                workdir.display()
            ),
        ),
        Some(libc::ENOENT) if program.contains('/') => (
            127,
            format!(
                "cannot start '{shown}': there is no such file (or the interpreter its first line names is \
                 missing), seen from {}",
                workdir.display()
            ),
        ),
        Some(libc::ENOENT) => {
            (127, format!("cannot start '{shown}': not found in PATH; install it or give its full path"))
        }
        Some(libc::EACCES) => (
            126,
            format!(
                "cannot start '{shown}': permission denied; make it executable (chmod +x), or name its interpreter"
            ),
        ),
        Some(libc::ENOEXEC) => (
            126,
            format!(
                "cannot start '{shown}': it is not a program; name its interpreter (for example sh {shown})"
            ),
        ),
        Some(libc::E2BIG) => (
            126,
            format!(
                "cannot start '{shown}': its arguments or environment are too large; one argument may be at \
                 most 128 KiB: put large inputs into a file"
            ),
        ),
        _ => (126, format!("cannot start '{shown}' in {}: {error}", workdir.display())),
    };
    StartFailure { exit_code, message }
}
