//! The main thread's life: waits for the command, obeys stops, and does not return before the kernel says
//! that nothing which descended from the command is left. As the reaper of orphans it gets even those that
//! forked twice and left their session.

use std::collections::HashSet;
use std::time::Duration;

use parhelia_core::state::TerminationReason;
use parhelia_core::time::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process_group, pidfd_open, wait as wait_any,
};
use std::sync::TryLockError;
use std::sync::atomic::Ordering;

use super::{Place, Shared, StopAsked, clear_event, locked, log, signals};
use crate::process::jobdir::{ReadError, StopRequest, read_json};
use crate::process::procs::{self, Handle};

const LOOK: Duration = Duration::from_millis(500);
const LOOK_WHILE_STOPPING: Duration = Duration::from_millis(100);
const DEFAULT_GRACE_SECONDS: u64 = 10;
/// The engine kills everything when the grace that it was given is over; it must not be cut short.
const ENGINE_COUNTS_SECONDS: u64 = 4000;
/// For what a command leaves behind when it ends by itself.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);

/// How the command ended, and why if it was not by itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct End {
    pub(super) exit_code: Option<i64>,
    pub(super) signal: Option<i32>,
    pub(super) reason: Option<TerminationReason>,
    pub(super) message: Option<String>,
}

/// A stop under way.
#[derive(Debug)]
struct Stopping {
    kill_at: Duration,
    kill_rounds: u32,
}

pub(super) fn wait(shared: &Shared, command: Handle) -> Result<End, String> {
    let watched = pidfd_open(command, PidfdFlags::empty())
        .map_err(|error| format!("the command cannot be watched: {error}"))?;
    let mut status: Option<WaitStatus> = None;
    let mut stopping: Option<Stopping> = None;
    let mut asked_while_running: Option<StopAsked> = None;
    let mut stop_file = StopFile::default();
    let mut signal_obeyed = false;
    let timeout_seconds = shared.spec.sandbox.job.as_ref().and_then(|ask| ask.timeout_seconds);
    let began = shared.clock.monotonic();
    let mut times_out_at = timeout_seconds.map(|seconds| began.saturating_add(Duration::from_secs(seconds)));
    loop {
        let none_left = reap(shared, command, &mut status);
        if let Some(status) = status
            && none_left
        {
            return Ok(end(status, asked_while_running));
        }
        if signals::stop_asked() && !std::mem::replace(&mut signal_obeyed, true) {
            let message = "its supervisor was told to end (SIGTERM)".to_owned();
            let grace = match shared.place {
                Place::Host => DEFAULT_GRACE_SECONDS,
                Place::Container => ENGINE_COUNTS_SECONDS,
            };
            shared.ask_stop(grace, TerminationReason::Manual, message);
        }
        stop_file.look(shared);
        deliver(shared, status.is_none().then_some(command));

        let now = shared.clock.monotonic();
        if status.is_none() && times_out_at.is_some_and(|at| at <= now) {
            times_out_at = None;
            let message =
                format!("it ran for longer than its timeout of {} s", timeout_seconds.unwrap_or_default());
            shared.ask_stop(DEFAULT_GRACE_SECONDS, TerminationReason::Timeout, message);
        }
        let asked = locked(&shared.stop).clone();
        if let Some(asked) = asked {
            match stopping.as_mut() {
                Some(stopping) => stopping.kill_at = stopping.kill_at.min(asked.kill_at),
                None => stopping = Some(begin(shared, (status.is_none()).then_some(command), asked.kill_at)),
            }
            if status.is_none() && asked_while_running.is_none() {
                asked_while_running = Some(asked);
            }
        } else if status.is_some() && stopping.is_none() {
            stopping = Some(begin(shared, None, now + LEFTOVER_GRACE));
        }

        let pause = match stopping.as_mut() {
            None => times_out_at.map_or(LOOK, |at| LOOK.min(at.saturating_sub(now))),
            Some(stopping) if now < stopping.kill_at => LOOK_WHILE_STOPPING.min(stopping.kill_at - now),
            Some(stopping) => {
                kill_all(status.is_none().then_some(command), stopping.kill_rounds);
                stopping.kill_rounds = stopping.kill_rounds.saturating_add(1);
                // What does not die at once (a process in the kernel's hands) is not asked a thousand times.
                Duration::from_millis(10 * u64::from(stopping.kill_rounds.min(50)))
            }
        };
        let mut events = vec![PollFd::new(&shared.wake, PollFlags::IN)];
        if status.is_none() {
            events.push(PollFd::new(&watched, PollFlags::IN));
        }
        let pause = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: i64::from(pause.subsec_nanos()) };
        let _ = poll(&mut events, Some(&pause));
        clear_event(&shared.wake);
    }
}

/// Collects whatever has ended. True when there is no child of ours left, which, because orphans become
/// our children, means no descendant either.
fn reap(shared: &Shared, command: Handle, status: &mut Option<WaitStatus>) -> bool {
    let free = shared.helper.try_lock();
    if matches!(free, Err(TryLockError::WouldBlock)) {
        // A helper is being waited for by its own thread; only the command's end is looked at now.
        if status.is_none()
            && let Ok(Some((_, ended))) = rustix::process::waitpid(Some(command), WaitOptions::NOHANG)
        {
            *status = Some(ended);
        }
        return false;
    }
    loop {
        match wait_any(WaitOptions::NOHANG) {
            Ok(Some((handle, ended))) => {
                if handle == command && status.is_none() {
                    *status = Some(ended);
                }
            }
            Ok(None) => return false,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CHILD) => return true,
            Err(error) => {
                log(&format!("waiting failed: {error}"));
                return false;
            }
        }
    }
}

/// Signals that somebody attached sends: to whom the terminal's keys would reach, else to the command's group.
fn deliver(shared: &Shared, command: Option<Handle>) {
    let signals = std::mem::take(&mut *locked(&shared.signals));
    for signal in signals {
        let to_foreground = shared.streams.signal_foreground(signal, &descendants());
        if let (None, Some(command)) = (to_foreground, command) {
            // While the command is unreaped its group's number cannot be anybody else's.
            let _ = kill_process_group(command, signal);
        }
    }
}

/// SIGTERM to everything, once each: many programs take a second one as an order to drop their work.
fn begin(shared: &Shared, command: Option<Handle>, kill_at: Duration) -> Stopping {
    shared.ending.store(true, Ordering::SeqCst);
    shared.sentinel.command_ending(shared);
    let command_group = command.map(Handle::as_raw_pid);
    if let Some(command) = command {
        // While the command is unreaped its group's number cannot be anybody else's.
        let _ = kill_process_group(command, Signal::TERM);
        let _ = kill_process_group(command, Signal::CONT);
    }
    for seen in descendants() {
        if Some(seen.group) != command_group {
            let _ = procs::signal(&seen, Signal::TERM);
            // A stopped process gets no other signal before it goes on.
            let _ = procs::signal(&seen, Signal::CONT);
        }
    }
    Stopping { kill_at, kill_rounds: 0 }
}

fn kill_all(command: Option<Handle>, round: u32) {
    if let Some(command) = command {
        let _ = kill_process_group(command, Signal::KILL);
    }
    let mut done: HashSet<i32> = HashSet::new();
    // Again at once for what was forked during the look.
    for _ in 0..8 {
        let mut new = 0;
        for seen in descendants() {
            if !done.insert(seen.proc_no) {
                continue;
            }
            new += 1;
            if let Err(error) = procs::signal(&seen, Signal::KILL)
                && round == 0
            {
                log(&format!("a descendant of the command could not be killed: {error}; trying on"));
            }
        }
        if new == 0 {
            break;
        }
    }
}

fn descendants() -> Vec<procs::Proc> {
    let found = procs::own().and_then(|own| procs::below(own.proc_no));
    match found {
        Ok(found) => found.into_iter().filter(|seen| !seen.zombie).collect(),
        Err(error) => {
            log(&format!("the job's processes could not be listed: {error}"));
            Vec::new()
        }
    }
}

fn end(status: WaitStatus, asked: Option<StopAsked>) -> End {
    let exit_code = status.exit_status().map(i64::from);
    let signal = status.terminating_signal();
    let natural = signal.map(|signal| format!("ended by {}", signals::name(signal)));
    match asked {
        Some(asked) => End { exit_code, signal, reason: Some(asked.reason), message: Some(asked.message) },
        None => End { exit_code, signal, reason: None, message: natural },
    }
}

/// `.stop`, acted on once per content.
#[derive(Debug, Default)]
struct StopFile {
    last: Option<StopRequest>,
    complained: bool,
}

impl StopFile {
    fn look(&mut self, shared: &Shared) {
        match read_json::<StopRequest>(&shared.dir.stop()) {
            Ok(Some(request)) if self.last.as_ref() != Some(&request) => {
                let reason = request.reason.parse().unwrap_or(TerminationReason::Manual);
                let message = "it was asked to stop".to_owned();
                shared.ask_stop(u64::from(request.grace_seconds), reason, message);
                self.last = Some(request);
            }
            Ok(_) => {}
            Err(error) => {
                if !self.complained && matches!(error, ReadError::Corrupt { .. }) {
                    self.complained = true;
                    // Somebody wants an end, whatever else the file should have said.
                    log(&format!("{error}; stopping with the default grace"));
                    let message = "it was asked to stop".to_owned();
                    shared.ask_stop(DEFAULT_GRACE_SECONDS, TerminationReason::Manual, message);
                }
            }
        }
    }
}
