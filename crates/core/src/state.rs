//! The states of a container and the only legal moves between them. Health is a separate axis: a running
//! container may be healthy or dead, and a terminated one keeps the last health that it had.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Declares an enum that is stored and shown as a lower-case word, with `ALL`, `as_str` and `FromStr`.
#[macro_export]
macro_rules! word_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vmeta])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl $crate::utoipa::PartialSchema for $name {
            fn schema() -> $crate::utoipa::openapi::RefOr<$crate::utoipa::openapi::schema::Schema> {
                $crate::utoipa::openapi::schema::ObjectBuilder::new()
                    .schema_type($crate::utoipa::openapi::schema::Type::String)
                    .enum_values(Some([$($word),+]))
                    .into()
            }
        }

        impl $crate::utoipa::ToSchema for $name {}

        impl std::str::FromStr for $name {
            type Err = $crate::state::UnknownWord;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok($name::$variant),)+
                    other => Err($crate::state::UnknownWord {
                        given: other.chars().take(60).collect(),
                        known: &[$($word),+],
                    }),
                }
            }
        }
    };
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownWord {
    pub given: String,
    pub known: &'static [&'static str],
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not known here; use one of: {}", self.given, self.known.join(", "))
    }
}

impl std::error::Error for UnknownWord {}

word_enum!(
    /// Where a container is in its life, as last observed.
    ContainerState {
        /// Our intent is recorded; the provider may or may not have it yet.
        Created = "created",
        Running = "running",
        /// Its process has ended after a stop or an idle timeout; not yet cleaned away.
        Stopped = "stopped",
        Terminated = "terminated",
        /// Alive with our tag, no record of ours asked for it, and older than the grace.
        Orphaned = "orphaned",
        /// Alive with our tag, without a record until now: suspected, inside its grace.
        Unknown = "unknown",
    }
);

word_enum!(
    /// How long ago a container was last heard, on the liveness ladder.
    Health {
        Unknown = "unknown",
        Healthy = "healthy",
        Degraded = "degraded",
        Unhealthy = "unhealthy",
        Dead = "dead",
    }
);

word_enum!(
    /// What the people and policies that own a container want of it.
    Desired {
        Running = "running",
        Terminated = "terminated",
    }
);

word_enum!(
    /// Why a container is no longer running.
    TerminationReason {
        /// It ended by itself with exit code 0.
        Completed = "completed",
        /// It ended by itself with another exit code.
        Failed = "failed",
        /// A signal that we did not send ended it.
        Crash = "crash",
        Oom = "oom",
        IdleTimeout = "idle_timeout",
        /// It ran for longer than it may.
        Timeout = "timeout",
        /// Somebody asked for it.
        Manual = "manual",
        /// The provider no longer has it, and we did not ask for that.
        External = "external",
        /// Its supervisor died; whatever it left was swept.
        SupervisorLost = "supervisor_lost",
        /// Its machine was restarted under it.
        HostRebooted = "host_rebooted",
        /// Its command could not be started at all.
        StartFailed = "start_failed",
        /// The provider refused to create it.
        CreateFailed = "create_failed",
        /// Nobody can say whether the provider created it; a successor was made under a new id.
        CreateLost = "create_lost",
        OrphanCleanup = "orphan_cleanup",
        DeadCleanup = "dead_cleanup",
        /// Silent for longer than the stale threshold, with `auto_terminate_stale` on.
        Stale = "stale",
        /// No persisted heartbeat for `max_silent_hours`.
        Silent = "silent",
    }
);

word_enum!(
    /// Whether a cost came from the provider's own bill or from our price table.
    CostSource {
        Estimated = "estimated",
        Reported = "reported",
    }
);

word_enum!(
    /// What a worker process is doing.
    WorkerState {
        Spawning = "spawning",
        Ready = "ready",
        Busy = "busy",
        Stalled = "stalled",
        Crashed = "crashed",
        Stopped = "stopped",
        Terminated = "terminated",
    }
);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("a container cannot go from {from} to {to}")]
pub struct InvalidTransition {
    pub from: ContainerState,
    pub to: ContainerState,
}

impl ContainerState {
    /// Still costing money, or about to, as far as we know.
    pub fn is_active(self) -> bool {
        !matches!(self, ContainerState::Terminated)
    }

    /// The one transition function. `terminated → running` is a correction, legal only because a record can
    /// be wrong: the sandbox is the truth.
    pub fn to(self, to: ContainerState) -> Result<ContainerState, InvalidTransition> {
        use ContainerState::*;
        let legal = match (self, to) {
            (from, to) if from == to => false,
            (Created, Running | Terminated) => true,
            // `created → stopped`: it ran and was stopped between two observations.
            (Created, Stopped) => true,
            (Running, Stopped | Terminated) => true,
            (Stopped, Terminated | Running) => true,
            (Unknown, Orphaned | Running | Stopped | Terminated) => true,
            (Orphaned, Terminated | Running | Stopped) => true,
            (Terminated, Running) => true,
            _ => false,
        };
        if legal { Ok(to) } else { Err(InvalidTransition { from: self, to }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_move_is_either_listed_here_or_an_error() {
        use ContainerState::*;
        let legal = [
            (Created, Running),
            (Created, Stopped),
            (Created, Terminated),
            (Running, Stopped),
            (Running, Terminated),
            (Stopped, Running),
            (Stopped, Terminated),
            (Unknown, Running),
            (Unknown, Orphaned),
            (Unknown, Stopped),
            (Unknown, Terminated),
            (Orphaned, Running),
            (Orphaned, Stopped),
            (Orphaned, Terminated),
            (Terminated, Running),
        ];
        for &from in ContainerState::ALL {
            for &to in ContainerState::ALL {
                let expected = legal.contains(&(from, to));
                assert_eq!(from.to(to).is_ok(), expected, "{from} -> {to}");
            }
        }
    }

    #[test]
    fn words_parse_back_and_unknown_ones_name_the_choices() {
        for state in ContainerState::ALL {
            assert_eq!(state.as_str().parse::<ContainerState>().unwrap(), *state);
        }
        let error = "runing".parse::<ContainerState>().unwrap_err().to_string();
        assert!(error.contains("running, stopped"), "{error}");
    }
}
