//! Identifiers: a type prefix, then the creation time and random bits in lower-case Crockford base32, so
//! that ids are short, sort by creation, and never need quoting. Other systems' ids (a task id from a file,
//! a session id of an engine) are kept as given.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// 45 bits of milliseconds (until the year 3084), then 35 random bits.
const TIME_CHARS: usize = 9;
const RANDOM_CHARS: usize = 7;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IdError {
    #[error("'{given}' is not a {kind} id: it should look like {prefix}01k9z3q8xw4f7m2a")]
    Malformed { kind: &'static str, prefix: &'static str, given: String },
}

fn base32(at_millis: u64, random: u64) -> String {
    let mut out = String::with_capacity(TIME_CHARS + RANDOM_CHARS);
    for (value, chars) in [(at_millis, TIME_CHARS), (random, RANDOM_CHARS)] {
        for i in (0..chars).rev() {
            out.push(ALPHABET[((value >> (5 * i)) & 31) as usize] as char);
        }
    }
    out
}

macro_rules! prefixed_id {
    ($name:ident, $kind:literal, $prefix:literal, $pattern:literal, $doc:literal) => {
        #[doc = $doc]
        #[derive(
            Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
        )]
        #[schema(value_type = String, pattern = $pattern)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// A new id from the wall clock and random bits, both given by the edge.
            pub fn mint(at_millis: u64, random: u64) -> Self {
                Self(format!("{}{}", $prefix, base32(at_millis, random)))
            }

            pub fn parse(text: &str) -> Result<Self, IdError> {
                text.to_owned().try_into()
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                let ok = text.strip_prefix($prefix).is_some_and(|rest| {
                    (4..=40).contains(&rest.len())
                        && rest.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
                });
                if ok {
                    Ok(Self(text))
                } else {
                    let given = text.chars().take(60).collect();
                    Err(IdError::Malformed { kind: $kind, prefix: $prefix, given })
                }
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

prefixed_id!(
    ContainerId,
    "container",
    "c-",
    "^c-[a-z0-9]{4,40}$",
    "One sandbox instance at a provider, and our record of it."
);
prefixed_id!(
    DeliveryId,
    "delivery",
    "dlv-",
    "^dlv-[a-z0-9]{4,40}$",
    "One event on its way to one receiver of alerts."
);
prefixed_id!(
    TokenId,
    "token",
    "tok-",
    "^tok-[a-z0-9]{4,40}$",
    "A secret that somebody was given, and what it opens."
);
prefixed_id!(
    WorkerId,
    "worker",
    "w-",
    "^w-[a-z0-9]{4,40}$",
    "A process inside a container that claims tasks."
);

prefixed_id!(SessionId, "session", "sess-", "^sess-[a-z0-9]{4,40}$", "One durable execution of a cascade.");
prefixed_id!(TaskId, "task", "ta-", "^ta-[a-z0-9]{4,40}$", "A unit of work in a phase of a session.");
prefixed_id!(WaitId, "wait", "wait-", "^wait-[a-z0-9]{4,40}$", "What a blocked session waits for.");
prefixed_id!(
    SignalId,
    "signal",
    "sig-",
    "^sig-[a-z0-9]{4,40}$",
    "Something that was said to whoever waits for it."
);
prefixed_id!(
    CheckpointId,
    "checkpoint",
    "cp-",
    "^cp-[a-z0-9]{4,40}$",
    "Something of a session that is done and will not be done again."
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_creation_and_parse_back() {
        let early = ContainerId::mint(1_768_000_000_000, u64::MAX);
        let late = ContainerId::mint(1_768_000_000_001, 0);
        assert!(early < late);
        assert_eq!(early.as_str().len(), 18);
        assert_eq!(ContainerId::parse(early.as_str()).unwrap(), early);
    }

    #[test]
    fn the_wrong_shape_is_refused_with_an_example() {
        for bad in ["", "c-", "c-AB12", "w-abcdef", "c-abc/..", "abcdef"] {
            let error = ContainerId::parse(bad).unwrap_err().to_string();
            assert!(error.contains("c-01"), "{error}");
        }
    }
}
