//! `.sentinel.json`: proof for people and tools that the supervisor lives. Written from its own thread, so
//! that neither a slow server nor a flood of output delays it; a failed write is logged and tried again.

use std::io;
use std::sync::Mutex;

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
    status: &'static str,
    /// After the result only its removal may happen.
    closed: bool,
    failing: bool,
}

impl SentinelFile {
    /// Before the command starts, and durable: without it the job counts as never started.
    pub(super) fn write_first(&self, shared: &Shared) -> io::Result<()> {
        let mut state = locked(&self.state);
        state.status = "starting";
        write_json(&shared.dir.sentinel(), &content(shared, state.status), Durability::Synced)
    }

    pub(super) fn set_status(&self, shared: &Shared, status: &'static str) {
        locked(&self.state).status = status;
        self.write(shared);
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
        match write_json(&path, &content(shared, state.status), Durability::Atomic) {
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

fn content(shared: &Shared, status: &str) -> Sentinel {
    let sandbox = &shared.spec.sandbox;
    Sentinel {
        job_id: shared.spec.job_id,
        status: status.to_owned(),
        last_heartbeat: shared.clock.now(),
        workspace_path: shared.workdir.to_string_lossy().into_owned(),
        session_id: sandbox.session_id.clone(),
        agent_engine: engine(sandbox),
        started_at: shared.started_at,
        progress_percent: *locked(&shared.progress_percent),
        last_progress: Some(shared.last_progress()),
    }
}

/// What the job was labelled with, else the name of its program.
fn engine(sandbox: &parhelia_core::sandbox::SandboxSpec) -> String {
    if let Some(label) = sandbox.labels.get("agent_engine") {
        return label.clone();
    }
    let program = sandbox.command.first().map(String::as_str).unwrap_or_default();
    program.rsplit('/').next().unwrap_or(program).to_owned()
}
