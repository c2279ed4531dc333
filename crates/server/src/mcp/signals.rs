//! `parhelia_signals`: say something to whoever waits for it.

use parhelia_core::access::Access;
use parhelia_core::session::SignalRow;
use parhelia_core::session::api::FireSignal;
use parhelia_core::word_enum;
use rmcp::model::ToolAnnotations;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::text;
use super::tool::{Asking, Tool, bounded};
use crate::http::Fault;
use crate::service::SignalQuery;

const MOST: i64 = 1000;

word_enum!(Action { List = "list", Fire = "fire" });

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Arguments {
    action: Action,
    name: Option<String>,
    session_id: Option<String>,
    payload: Value,
    pending: bool,
    limit: i64,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            action: Action::List,
            name: None,
            session_id: None,
            payload: Value::Null,
            pending: false,
            limit: 20,
        }
    }
}

/// What came of the action.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub(super) enum SignalsAnswer {
    /// The newest first; `deliveries` says how many waits each has ended.
    List { signals: Vec<SignalRow> },
    /// It is kept: whoever waits for it takes it, now or when they come to it.
    Fire { signal: SignalRow },
}

pub(super) struct Signals;

impl Tool for Signals {
    const NAME: &'static str = "parhelia_signals";
    const TITLE: &'static str = "Signals";
    const DESCRIPTION: &'static str =
        "Fire a signal that sessions wait for, or list the signals that were fired";
    type Arguments = Arguments;
    type Answer = SignalsAnswer;

    fn input_schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": ["list", "fire"], "default": "list"},
                "name": {"type": "string", "description": "Name of the signal (required for fire)"},
                "session_id": {
                    "type": "string",
                    "description": "Only for this session: its ID, a unique prefix of it, or its name"
                },
                "payload": {"description": "JSON for whoever takes it (fire)"},
                "pending": {"type": "boolean", "default": false, "description": "Only those that nobody has taken yet (list)"},
                "limit": {"type": "integer", "default": 20}
            }
        })
    }

    fn annotations() -> ToolAnnotations {
        // Of `fire`: it adds, and each is another.
        ToolAnnotations::new().read_only(false).destructive(false).idempotent(false).open_world(false)
    }

    fn access(arguments: &Arguments) -> (Access, String) {
        let access = if arguments.action == Action::List { Access::Viewer } else { Access::Operator };
        (access, format!("{} {}", Self::NAME, arguments.action))
    }

    async fn call(asking: &Asking, arguments: Arguments) -> Result<SignalsAnswer, Fault> {
        let service = asking.service();
        let Arguments { action, name, session_id: session, payload, pending, limit } = arguments;
        let limit = bounded("limit", limit, MOST)?;
        if action == Action::List {
            let limit = u32::try_from(limit).ok();
            let query = SignalQuery { name, session, pending, limit, before: None };
            return Ok(SignalsAnswer::List { signals: service.signals(query).await?.signals });
        }
        let name = name.ok_or_else(|| {
            Fault::unprocessable("name is required for fire", "give the name that a session waits for")
        })?;
        let request = FireSignal { name, session, payload };
        Ok(SignalsAnswer::Fire { signal: service.fire_signal(request, &asking.caller).await? })
    }

    fn text(answer: &SignalsAnswer) -> String {
        match answer {
            SignalsAnswer::List { signals } => text::signals(signals),
            SignalsAnswer::Fire { signal } => {
                format!("{} fired as {}; action=list tells who has taken it.", signal.name, signal.id)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_and_defaults_of_the_schema_are_those_that_are_read() {
        let schema = Signals::input_schema();
        assert_eq!(schema["properties"]["action"]["enum"], json!(Action::ALL));
        let nothing: Arguments = serde_json::from_str("{}").unwrap();
        assert_eq!(schema["properties"]["action"]["default"], json!(nothing.action));
        assert_eq!(schema["properties"]["limit"]["default"], json!(nothing.limit));
        assert_eq!(schema["properties"]["pending"]["default"], json!(nothing.pending));
    }
}
