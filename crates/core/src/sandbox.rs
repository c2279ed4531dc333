//! A sandbox as its provider shows it, and the specification that we ask one for. Not knowing is a state
//! here: no type of this module can turn "the provider did not answer" into "it is gone".

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::ContainerId;
use crate::job::JobAsk;
use crate::state::TerminationReason;

/// What the variables that we set ourselves begin with; nobody else sets one.
pub const OURS: &str = "PARHELIA_";

/// Everything a provider needs to make one sandbox. Stored with the intent, so that any later process can
/// carry it out. Its environment is stored as given: secrets do not belong there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
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
    /// What it asks of its supervisor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobAsk>,
    /// What an engine puts around it.
    #[serde(flatten)]
    pub surroundings: Surroundings,
}

/// What a container engine puts around a command. A provider that cannot give it refuses the whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Surroundings {
    /// `uid`, `uid:gid` or names that the image knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeMount>,
    /// Names only: the values are resolved when the sandbox is made, and kept nowhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

impl Surroundings {
    /// What of it was asked for, for the refusal of a provider that has no such thing.
    pub fn asked(&self) -> Vec<&'static str> {
        let asked = [
            ("user", self.user.is_some()),
            ("network", self.network.is_some()),
            ("volume", !self.volumes.is_empty()),
            ("secret", !self.secrets.is_empty()),
        ];
        asked.into_iter().filter(|(_, is)| *is).map(|(what, _)| what).collect()
    }
}

/// A named volume of the engine, and where the sandbox finds it. Never a path of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeMount {
    pub name: String,
    pub path: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

impl std::str::FromStr for VolumeMount {
    type Err = String;

    /// `NAME:/path` or `NAME:/path:ro`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (rest, read_only) = match text.strip_suffix(":ro") {
            Some(rest) => (rest, true),
            None => (text.strip_suffix(":rw").unwrap_or(text), false),
        };
        let volume = match rest.split_once(':') {
            Some((name, path)) => Self { name: name.to_owned(), path: path.to_owned(), read_only },
            None => return Err("write it like NAME:/path or NAME:/path:ro".to_owned()),
        };
        volume.check()?;
        Ok(volume)
    }
}

impl VolumeMount {
    /// An engine would take a name that begins with '/' for a directory of the host: refused.
    pub fn check(&self) -> Result<(), String> {
        let first = self.name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        let rest = self.name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
        if !first || !rest || self.name.len() > 128 {
            let shown: String = self.name.chars().take(60).collect();
            return Err(format!(
                "'{shown}' is not the name of a volume: letters, digits, '_', '.', '-'; directories of the host are not mounted"
            ));
        }
        let odd = |c: char| c.is_control() || c == ':';
        let climbs = self.path.split('/').any(|part| part == "..");
        if !self.path.starts_with('/') || self.path == "/" || self.path.contains(odd) || climbs {
            let shown: String = self.path.chars().take(60).collect();
            return Err(format!(
                "'{shown}' cannot hold the volume {}: give a full path, without ':' and '..'",
                self.name
            ));
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Resources {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
}

/// The tags that every sandbox of ours carries, set atomically at its creation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_a_name_and_never_a_directory_of_the_host() {
        let cache: VolumeMount = "cache:/var/cache".parse().unwrap();
        assert_eq!(cache, VolumeMount { name: "cache".into(), path: "/var/cache".into(), read_only: false });
        assert!("models:/m:ro".parse::<VolumeMount>().unwrap().read_only);
        for bad in ["cache", "/etc:/etc", "../x:/x", ":/x", "cache:x", "cache:/", "cache:/a/../b", "a:/b:c"] {
            assert!(bad.parse::<VolumeMount>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_specification_of_before_is_still_read_and_written_the_same() {
        let old = r#"{"container_id":"c-01k9z3q8xw4f7m2a","instance_id":"i","command":["true"],"env":{},"labels":{},"resources":{}}"#;
        let spec: SandboxSpec = serde_json::from_str(old).unwrap();
        assert_eq!(spec.surroundings, Surroundings::default());
        assert_eq!(serde_json::to_string(&spec).unwrap(), old);
    }
}
