//! A sandbox as its provider shows it, and the specification that we ask one for. Not knowing is a state
//! here: no type of this module can turn "the provider did not answer" into "it is gone".

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::ContainerId;
use crate::state::TerminationReason;

/// Everything a provider needs to make one sandbox. Stored with the intent, so that any later process can
/// carry it out. Its environment is stored as given: secrets do not belong there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxSpec {
    pub container_id: ContainerId,
    pub instance_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// An argument vector; never given to a shell.
    pub command: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub resources: Resources,
    /// Stop after this long without output and without CPU use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_seconds: Option<u64>,
    /// The tmux session that it runs in, when there is one: its heartbeat then says whether that is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmux_session: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
}

/// The tags that every sandbox of ours carries, set atomically at its creation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tags {
    pub instance: String,
    pub container: ContainerId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}

pub const TAG_INSTANCE: &str = "parhelia.instance";
pub const TAG_CONTAINER: &str = "parhelia.container";
pub const TAG_TASK: &str = "parhelia.task";

/// One sandbox in a listing or an inspection.
#[derive(Debug, Clone, PartialEq)]
pub struct Sandbox {
    /// The provider's own id.
    pub sandbox_id: String,
    pub tags: Tags,
    pub phase: Phase,
    /// As the provider tells it.
    pub created_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub name: Option<String>,
    pub image: Option<String>,
    pub command: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub region: Option<String>,
    pub resources: Resources,
    /// The provider's own figure, when it has one.
    pub reported_cost_usd: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Phase {
    /// Made, its command not yet running.
    Starting,
    Running,
    /// Ended, and nothing of it is alive.
    Exited(Exit),
    /// It can never work again (its supervisor is gone), but something of it still runs and must be ended.
    Broken {
        reason: TerminationReason,
    },
    /// The provider has it and cannot say how it is. Changes nothing.
    Unknown {
        why: String,
    },
}

impl Phase {
    /// Proven to be using resources now.
    pub fn is_alive(&self) -> bool {
        matches!(self, Phase::Starting | Phase::Running | Phase::Broken { .. })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Exit {
    pub code: Option<i64>,
    pub reason: TerminationReason,
    pub at: Option<Timestamp>,
    /// For people: the signal's name, why it could not start.
    pub message: Option<String>,
}

/// What a provider answered to "what do you have?".
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    /// Which engine, account or home answered. A listing says nothing about sandboxes of another identity.
    pub identity: String,
    /// False when pages are missing: then absence from it means nothing at all.
    pub complete: bool,
    pub sandboxes: Vec<Sandbox>,
}

/// What a provider answered about one sandbox. A failed or timed-out question is an error, not `Absent`.
#[derive(Debug, Clone, PartialEq)]
pub enum Inspection {
    /// The provider says, for certain and by id, that it does not have it.
    Absent,
    Present(Box<Sandbox>),
}
