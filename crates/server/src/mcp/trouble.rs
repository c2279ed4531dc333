//! The one place where an error becomes what an agent reads: the same code and message as at every other door,
//! and a next step that it can take with these tools.

use std::fmt;

use rmcp::model::ErrorData;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::wording::in_tools;
use crate::http::Fault;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Trouble {
    /// A stable word for programs, the same as in the HTTP API.
    pub(super) code: String,
    pub(super) message: String,
    /// What to do about it.
    pub(super) fix: String,
}

/// What a tool answers instead of its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Failed {
    pub(super) error: Trouble,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\nWhat to do: {}", self.code, self.message, self.fix)
    }
}

impl Trouble {
    /// Arguments that do not fit: says which, and what there is.
    pub(super) fn arguments<E: std::error::Error>(
        tool: &str,
        schema: &Value,
        error: &serde_path_to_error::Error<E>,
    ) -> Self {
        let path = error.path().to_string();
        let place = if path == "." { String::new() } else { format!(" at '{path}'") };
        let known = schema["properties"].as_object().into_iter().flat_map(|all| all.keys());
        let known: Vec<&str> = known.map(String::as_str).collect();
        Self {
            code: "invalid_request".into(),
            message: format!("the arguments do not fit{place}: {}", error.inner()),
            fix: format!("call {tool} again; its arguments are {}", known.join(", ")),
        }
    }

    pub(super) fn data(&self) -> Value {
        json!({ "code": self.code, "message": self.message, "fix": self.fix })
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        let problem = fault.problem();
        let fix = match problem.code.as_str() {
            "not_found" if problem.detail.starts_with("there is no session") => {
                "list what there is: parhelia_sessions with action=list and status_filter=all; a unique prefix of an id is enough, so is a name"
                    .to_owned()
            }
            "not_found" => {
                "list what there is: parhelia_containers with action=list and state_filter=all; a unique prefix of an id is enough"
                    .to_owned()
            }
            "forbidden" => {
                "ask the person who set this connection up for a token with that role ('parhelia tokens create'); do not try again with this one"
                    .to_owned()
            }
            _ => in_tools(&problem.fix),
        };
        Self { code: problem.code, message: in_tools(&problem.detail), fix }
    }
}

/// For what has no result to put it into: resources.
impl From<Trouble> for ErrorData {
    fn from(trouble: Trouble) -> Self {
        let data = Some(trouble.data());
        let message = format!("{}. What to do: {}", trouble.message, trouble.fix);
        match trouble.code.as_str() {
            "not_found" => ErrorData::resource_not_found(message, data),
            "internal" | "unavailable" | "provider" => ErrorData::internal_error(message, data),
            _ => ErrorData::invalid_params(message, data),
        }
    }
}
