//! `.sentinel.json`: proof for people and tools that the supervisor lives. Written from its own thread, so
//! that neither a slow server nor a flood of output delays it; a failed write is logged and tried again.

use std::io;
use std::sync::Mutex;

use parhelia_core::job::JobActivity;
use parhelia_core::time::Clock;

use super::{Poke, Shared, locked, log};
use crate::process::jobdir::{Durability, Sentinel, exists, write_json};

#[derive(Debug, Default)]
pub(super) struct SentinelFile {
    state: Mutex<State>,
    poke: Poke,
}

#[derive(Debug, Default)]
struct State {
    /// The command has been started and is not being ended.
    running: bool,
    /// The command has been started.
    started: bool,
    writes: u64,
    failures: u64,
    /// After the result only its removal may happen.
    closed: bool,
    failing: bool,
}

impl SentinelFile {
    /// Before the command starts, and durable: without it the job counts as never started.
    pub(super) fn write_first(&self, shared: &Shared) -> io::Result<()> {
        let mut state = locked(&self.state);
        state.writes += 1;
        write_json(&shared.dir.sentinel(), &content(shared, &state), Durability::Synced)
    }

    pub(super) fn command_started(&self, shared: &Shared) {
        let mut state = locked(&self.state);
        (state.started, state.running) = (true, true);
        drop(state);
        self.write(shared);
    }

    pub(super) fn command_ending(&self, shared: &Shared) {
        locked(&self.state).running = false;
        self.write(shared);
    }

    /// One of the seed's words, and what it waits for.
    pub(super) fn status(&self, shared: &Shared) -> (JobActivity, Option<String>) {
        status(locked(&self.state).running, shared)
    }

    /// (how often it was written, how often that failed)
    pub(super) fn written(&self) -> (u64, u64) {
        let state = locked(&self.state);
        (state.writes, state.failures)
    }

    /// Has the thread write it soon.
    pub(super) fn poke(&self) {
        self.poke.poke();
    }

    fn write(&self, shared: &Shared) {
        let mut state = locked(&self.state);
        if state.closed {
            return;
        }
        let path = shared.dir.sentinel();
        let written = write_json(&path, &content(shared, &state), Durability::Atomic);
        state.writes += 1;
        state.failures += u64::from(written.is_err());
        match written {
            Ok(()) if state.failing => {
                state.failing = false;
                log("the sentinel can be written again");
            }
            Ok(()) => {}
            Err(error) if !state.failing => {
                state.failing = true;
                log(&format!("warning: {} could not be written: {error}; trying again", path.display()));
            }
            Err(_) => {}
        }
    }

    /// The last act: the result is durable, so the sentinel may go.
    pub(super) fn remove(&self, shared: &Shared) {
        locked(&self.state).closed = true;
        let path = shared.dir.sentinel();
        if let Err(error) = std::fs::remove_file(&path)
            && exists(&path).unwrap_or(true)
        {
            log(&format!("{} could not be removed: {error}", path.display()));
        }
    }
}

/// Writes at every interval until the process ends.
pub(super) fn keep(shared: &Shared) {
    loop {
        shared.sentinel.poke.wait(shared.heartbeat_interval());
        shared.sentinel.write(shared);
    }
}

fn status(running: bool, shared: &Shared) -> (JobActivity, Option<String>) {
    if !running {
        return (JobActivity::Processing, None);
    }
    match shared.activity.waiting_reason() {
        Some(reason) => (JobActivity::Waiting, Some(reason)),
        None => (JobActivity::Running, None),
    }
}

fn content(shared: &Shared, state: &State) -> Sentinel {
    let (status, waiting_reason) = status(state.running, shared);
    Sentinel {
        job_id: shared.spec.job_id,
        status: status.as_str().to_owned(),
        last_heartbeat: shared.clock.now(),
        workspace_path: shared.workdir.to_string_lossy().into_owned(),
        session_id: shared.activity.session(),
        agent_engine: engine(&shared.spec.sandbox),
        started_at: shared.started_at,
        progress_percent: *locked(&shared.progress_percent),
        last_progress: state.started.then(|| shared.last_progress()),
        waiting_reason,
    }
}

/// What it was asked for as, or labelled with, else the name of its program.
fn engine(sandbox: &parhelia_core::sandbox::SandboxSpec) -> String {
    let asked = sandbox.job.as_ref().and_then(|ask| ask.engine.as_ref());
    if let Some(engine) = asked.or(sandbox.labels.get("agent_engine")) {
        return engine.clone();
    }
    let program = sandbox.command.first().map(String::as_str).unwrap_or_default();
    program.rsplit('/').next().unwrap_or(program).to_owned()
}
