//! What can go wrong with a request, in the words of the one who made it.

use std::borrow::Cow;

use parhelia_store::StoreError;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ServiceError {
    #[error("there is no {what} '{id}'")]
    NotFound { what: &'static str, id: String, fix: &'static str },
    #[error("'{given}' is not unique: it could be {}", matches.join(", "))]
    Ambiguous { given: String, matches: Vec<String>, fix: &'static str },
    #[error("{message}")]
    Invalid { code: &'static str, message: String, fix: String },
    #[error("{message}")]
    Conflict { message: String, fix: &'static str },
    #[error("{message}")]
    Unavailable { message: String, fix: Cow<'static, str> },
    #[error("{message}")]
    Provider { message: String, fix: String },
    #[error("something failed inside: {0}")]
    Internal(String),
}

/// Where `given` is the beginning of an id.
pub(super) const LONGER: &str = "give more characters of the id";

impl ServiceError {
    pub fn invalid(message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Invalid { code: "invalid_request", message: message.into(), fix: fix.into() }
    }

    pub fn no_container(id: impl Into<String>) -> Self {
        Self::NotFound {
            what: "container",
            id: id.into(),
            fix: "'parhelia containers --all' lists every container; a unique prefix of an id is enough",
        }
    }
}

impl From<StoreError> for ServiceError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict { .. } => Self::Conflict {
                message: "it was changed by somebody else at the same moment; nothing was written".into(),
                fix: "look at it again and repeat the request if it is still needed",
            },
            StoreError::Fenced { .. } => Self::Unavailable {
                message: "this server no longer leads; nothing was written".into(),
                fix: "repeat the request: another server has taken over".into(),
            },
            unreadable @ StoreError::Unreadable { .. } => Self::Internal(unreadable.to_string()),
            StoreError::Unavailable { what, fix } | StoreError::Denied { what, fix } => {
                Self::Unavailable { message: format!("the store could not be used: {what}"), fix: fix.into() }
            }
            other => Self::Unavailable {
                message: other.to_string(),
                fix: "the server's log tells more; look whether it was done before you repeat the request"
                    .into(),
            },
        }
    }
}
