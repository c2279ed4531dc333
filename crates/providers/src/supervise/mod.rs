//! The supervisor: the small, synchronous process that owns one job's command and outlives the server.
//!
//! It owns the job's directory (`process::jobdir`) and everything that descends from the command: nothing
//! survives its sandbox. It refuses to run without the lock that its spawner hands over as standard input,
//! keeps no runtime, stores no process number, and treats every failed write but the first ones as
//! something to log: a full disk ends no job.

mod activity;
mod attach;
mod beat;
mod child;
mod control;
mod ending;
mod inside;
mod output;
mod result;
mod said;
mod sentinel;
pub(crate) mod signals;
mod streams;
mod usage;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parhelia_core::job::Sign;
use parhelia_core::state::TerminationReason;
use parhelia_core::time::Clock;
use rustix::process::Signal;

use crate::clock::SystemClock;
use crate::process::jobdir::{JobDir, JobSpec, read_json};
use crate::process::lock;
use crate::process::procs::Handle;

pub use inside::{Inside, JOB, JOBS_DIRECTORY, SECRET_FILE, run_inside};

/// Set by the spawner on the supervisor alone; never on what it runs.
pub const SUPERVISES_VARIABLE: &str = "PARHELIA_SUPERVISES";
/// Set on everything that descends from the command; never on the supervisor.
pub const JOB_VARIABLE: &str = "PARHELIA_JOB_ID";

/// Supervises the job in `job_dir` to its end. Call it before any runtime or thread exists. Returns the
/// process's exit code: 0 when the job has a result, 1 when it was not started or its end not recorded.
pub fn run(job_dir: &Path) -> i32 {
    match supervise(job_dir) {
        Ok(()) => 0,
        Err(message) => {
            log(&message);
            1
        }
    }
}

fn supervise(job_dir: &Path) -> Result<(), String> {
    let dir = JobDir::at(job_dir);
    // Held until the process ends, whichever way it does.
    let _lock = receive_lock(&dir)?;
    own(dir, Place::Host).map(drop)
}

/// Where the supervisor is, and so where the output goes and who counts the grace of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A process of this machine: the output goes into files, the grace is ours.
    Host,
    /// The first process of a container: the engine keeps the output and counts the grace.
    Container,
}

/// Runs the job in `dir`, whose lock is ours, to its end. Gives the command's exit code as shells number it.
fn own(dir: JobDir, place: Place) -> Result<i32, String> {
    // Fails when it is a session leader already, which is just as well.
    let _ = rustix::process::setsid();
    signals::install().map_err(|error| format!("signal handlers could not be installed: {error}"))?;
    // The argument only says "yes"; the kernel reads no process out of it.
    rustix::process::set_child_subreaper(Handle::from_raw(1))
        .map_err(|error| format!("could not become the reaper of the job's orphans: {error}"))?;

    let spec = read_json::<JobSpec>(&dir.spec())
        .map_err(|error| error.to_string())?
        .ok_or_else(|| format!("{} is not there; nothing to run", dir.spec().display()))?;
    let (streams, ends) = streams::open(spec.sandbox.job.as_ref())
        .map_err(|error| format!("the command's streams could not be made: {error}; not starting"))?;
    let shared = Arc::new(Shared::new(dir, spec, place, streams)?);

    // Order matters: without a sentinel, a result and a lock the job is proven never to have started.
    let reserve = result::reserve(&shared.dir)?;
    shared.sentinel.write_first(&shared).map_err(|error| {
        format!("{} could not be written: {error}; not starting", shared.dir.sentinel().display())
    })?;
    let oom_kills_before = usage::oom_kills();
    let pump = match start_threads(&shared) {
        Ok(pump) => pump,
        Err(message) => {
            shared.sentinel.remove(&shared);
            return Err(format!("{message}; not starting"));
        }
    };
    let command = match child::spawn(&shared, ends) {
        Ok(command) => command,
        Err(failure) => {
            let code = i32::try_from(failure.exit_code).unwrap_or(126);
            if place == Place::Container {
                log(&failure.message);
            }
            return result::finish(&shared, reserve, result::Ended::NotStarted(failure), (0, 0))
                .map(|()| code);
        }
    };
    shared.sentinel.command_started(&shared);

    let mut end = ending::wait(&shared, command)?;
    shared.output.finish();
    let written = pump.join().unwrap_or_else(|_| shared.output.written());
    if end.signal == Some(libc::SIGKILL) && end.reason.is_none() && usage::oom_kills() > oom_kills_before {
        end.reason = Some(TerminationReason::Oom);
    }
    let code = end.exit_code.unwrap_or_else(|| 128 + i64::from(end.signal.unwrap_or(0)));
    let code = i32::try_from(code).unwrap_or(1);
    match result::finish(&shared, reserve, result::Ended::Ran(end), written) {
        Ok(()) => Ok(code),
        // The engine has the end too.
        Err(message) if place == Place::Container => {
            log(&message);
            Ok(code)
        }
        Err(message) => Err(message),
    }
}

type Pump = std::thread::JoinHandle<(u64, u64)>;

/// Everything that must work before the command may start.
fn start_threads(shared: &Arc<Shared>) -> Result<Pump, String> {
    let of = |body: fn(&Shared)| {
        let shared = shared.clone();
        move || body(&shared)
    };
    if let Some(listener) = control::bind(shared) {
        let shared = shared.clone();
        thread("control", move || control::serve(&listener, &shared))?;
    }
    thread("sentinel", of(sentinel::keep))?;
    thread("heartbeat", of(beat::keep))?;
    let shared = shared.clone();
    thread("output", move || output::pump(&shared))
}

/// The lock comes as standard input, already locked. It is moved away at once, so that nothing that is
/// started from here inherits it.
fn receive_lock(dir: &JobDir) -> Result<OwnedFd, String> {
    let how = "start jobs through the server; it hands the lock over as standard input";
    let alive = dir.alive();
    let held = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)
        .map_err(|error| format!("standard input could not be taken: {error}; {how}"))?;
    let null = File::open("/dev/null").map_err(|error| format!("/dev/null could not be opened: {error}"))?;
    rustix::stdio::dup2_stdin(&null).map_err(|error| format!("standard input stays open: {error}"))?;

    let given = File::from(held);
    let ours = given.metadata().map_err(|error| format!("standard input: {error}; {how}"))?;
    let path = std::fs::metadata(&alive).map_err(|error| format!("{}: {error}; {how}", alive.display()))?;
    if (ours.dev(), ours.ino()) != (path.dev(), path.ino()) {
        return Err(format!("standard input is not {}; {how}", alive.display()));
    }
    let asked = File::open(&alive).and_then(lock::is_locked);
    let locked = asked.map_err(|error| format!("the lock on {}: {error}", alive.display()))?;
    // Taking it again succeeds only for the description that has it.
    if !locked || !lock::try_lock(&given).unwrap_or(false) {
        return Err(format!("{} is not locked by standard input; {how}", alive.display()));
    }
    Ok(given.into())
}

/// One line in `supervisor.log`. A full disk loses it, and nothing else.
fn log(message: &str) {
    let _ = writeln!(io::stderr(), "parhelia supervise: {message}");
}

fn thread<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<std::thread::JoinHandle<T>, String> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(256 * 1024)
        .spawn(body)
        .map_err(|error| format!("the {name} thread could not be started: {error}"))
}

/// A poisoned lock guards nothing that a panic could have left half done here.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the threads of one supervisor share.
#[derive(Debug)]
struct Shared {
    clock: SystemClock,
    dir: JobDir,
    spec: JobSpec,
    place: Place,
    workdir: PathBuf,
    started_at: Timestamp,
    streams: streams::Streams,
    output: output::Output,
    activity: activity::Activity,
    attached: attach::Attached,
    /// To be delivered by the main thread, each once.
    signals: Mutex<Vec<Signal>>,
    sentinel: sentinel::SentinelFile,
    beats: Poke,
    /// Monotonic milliseconds of the last sign that the work gets on.
    progress_at_ms: AtomicU64,
    progress_percent: Mutex<Option<f64>>,
    stop: Mutex<Option<StopAsked>>,
    /// Wakes the main thread.
    wake: OwnedFd,
    /// Held while a helper of our own runs: its exit status must not be reaped as an orphan's.
    helper: Mutex<()>,
    ending: AtomicBool,
}

/// The strictest stop that was asked for so far.
#[derive(Debug, Clone, PartialEq)]
struct StopAsked {
    /// On the monotonic clock.
    kill_at: Duration,
    reason: TerminationReason,
    message: String,
}

impl Shared {
    fn new(dir: JobDir, spec: JobSpec, place: Place, streams: streams::Streams) -> Result<Self, String> {
        let clock = SystemClock::new();
        let started_at = clock.now();
        let workdir = spec.sandbox.workdir.as_ref().map_or_else(|| dir.path().to_owned(), PathBuf::from);
        let event = || {
            use rustix::event::{EventfdFlags, eventfd};
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|error| format!("no event descriptor: {error}"))
        };
        Ok(Self {
            clock,
            workdir,
            started_at,
            streams,
            output: output::Output::new(event()?),
            activity: activity::Activity::new(
                spec.sandbox.job.as_ref().and_then(|ask| ask.agent_session.clone()),
            ),
            attached: attach::Attached::default(),
            signals: Mutex::default(),
            sentinel: sentinel::SentinelFile::default(),
            beats: Poke::default(),
            progress_at_ms: AtomicU64::new(0),
            progress_percent: Mutex::new(None),
            stop: Mutex::new(None),
            wake: event()?,
            helper: Mutex::new(()),
            ending: AtomicBool::new(false),
            dir,
            spec,
            place,
        })
    }

    fn heartbeat_interval(&self) -> Duration {
        Duration::from_secs(self.spec.heartbeat_interval_seconds.max(1))
    }

    /// It gave a sign of getting on, if that is one that counts for this job.
    fn note_sign(&self, sign: Sign) {
        let counted = self.spec.sandbox.job.as_ref().map_or(&[][..], |ask| &ask.activity);
        if counted.is_empty() || counted.contains(&sign) {
            self.note_progress();
        }
    }

    fn note_progress(&self) {
        let now_ms = self.clock.monotonic().as_millis() as u64;
        self.progress_at_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    fn since_progress(&self) -> Duration {
        let at = Duration::from_millis(self.progress_at_ms.load(Ordering::Relaxed));
        self.clock.monotonic().saturating_sub(at)
    }

    fn last_progress(&self) -> Timestamp {
        let ago = SignedDuration::try_from(self.since_progress()).unwrap_or(SignedDuration::ZERO);
        self.clock.now().saturating_sub(ago).unwrap_or(self.started_at)
    }

    /// Asks the main thread to end the job. A later request may shorten an earlier grace, never lengthen it.
    fn ask_stop(&self, grace_seconds: u64, reason: TerminationReason, message: String) {
        let kill_at = self.clock.monotonic().saturating_add(Duration::from_secs(grace_seconds));
        let mut stop = locked(&self.stop);
        match stop.as_mut() {
            Some(asked) => asked.kill_at = asked.kill_at.min(kill_at),
            None => *stop = Some(StopAsked { kill_at, reason, message }),
        }
        drop(stop);
        self.wake();
    }

    /// Passes a signal on to the command.
    fn pass_on(&self, signal: Signal) {
        let mut signals = locked(&self.signals);
        if !signals.contains(&signal) {
            signals.push(signal);
        }
        drop(signals);
        self.wake();
    }

    fn wake(&self) {
        poke_event(&self.wake);
    }
}

/// An event descriptor that is already full wakes its reader just as well.
fn poke_event(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

fn clear_event(event: &OwnedFd) {
    let mut count = [0; 8];
    let _ = rustix::io::read(event, &mut count);
}

/// A sleeping thread that can be told to look now; many pokes are one.
#[derive(Debug, Default)]
struct Poke {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl Poke {
    fn poke(&self) {
        *locked(&self.asked) = true;
        self.changed.notify_one();
    }

    /// True when it was poked, false when the time is over.
    fn wait(&self, at_most: Duration) -> bool {
        let asked = locked(&self.asked);
        let (mut asked, _) = self
            .changed
            .wait_timeout_while(asked, at_most, |asked| !*asked)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *asked)
    }
}
