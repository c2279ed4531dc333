//! `parhelia_run`: begin a session.

use std::collections::BTreeMap;

use parhelia_core::access::Access;
use parhelia_core::session::SessionStatus;
use parhelia_core::session::api::{SessionDetail, StartSession};
use rmcp::model::ToolAnnotations;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::text;
use super::tool::{Asking, Tool};
use crate::http::Fault;
use crate::service::EventQuery;

const LONGEST_WAIT_SECONDS: u64 = 60;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Arguments {
    cascade: Option<Value>,
    text: Option<String>,
    inputs: BTreeMap<String, Value>,
    name: Option<String>,
    workdir: Option<String>,
    env: BTreeMap<String, String>,
    provider: Option<String>,
    wait_seconds: u64,
}

/// The session that was begun.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RunAnswer {
    session: SessionDetail,
}

pub(super) struct Run;

impl Tool for Run {
    const NAME: &'static str = "parhelia_run";
    const TITLE: &'static str = "Run";
    const DESCRIPTION: &'static str =
        "Run a cascade (a workflow of phases and tasks) as a durable session that survives any crash";
    type Arguments = Arguments;
    type Answer = RunAnswer;

    fn input_schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "The text of a cascade file (YAML)"},
                "cascade": {
                    "type": "object",
                    "description": "Instead of text: the definition, {\"cascade_id\": \"…\", \"phases\": [{\"name\": \"…\", \"run\": \"…\"}]}"
                },
                "inputs": {"type": "object", "description": "Values for the inputs of the cascade"},
                "name": {"type": "string", "description": "A name to find the session by"},
                "workdir": {"type": "string", "description": "An absolute directory on the server for commands that have none of their own"},
                "env": {"type": "object", "additionalProperties": {"type": "string"}},
                "provider": {"type": "string", "description": "Where the tasks run, instead of what the cascade says"},
                "wait_seconds": {
                    "type": "integer",
                    "default": 0,
                    "description": "Answer when the session is over or blocked, or after this long (at most 60)"
                }
            }
        })
    }

    fn annotations() -> ToolAnnotations {
        // It runs what it is given, twice if it is called twice.
        ToolAnnotations::new().read_only(false).destructive(true).idempotent(false).open_world(true)
    }

    fn access(_: &Arguments) -> (Access, String) {
        (Access::Operator, Self::NAME.to_owned())
    }

    async fn call(asking: &Asking, arguments: Arguments) -> Result<RunAnswer, Fault> {
        let service = asking.service();
        let Arguments { cascade, text, inputs, name, workdir, env, provider, wait_seconds } = arguments;
        if wait_seconds > LONGEST_WAIT_SECONDS {
            return Err(Fault::unprocessable(
                format!("wait_seconds = {wait_seconds} is out of range"),
                format!(
                    "give at most {LONGEST_WAIT_SECONDS}, and look again with parhelia_sessions action=show"
                ),
            ));
        }
        let request =
            StartSession { cascade, text, inputs, name, workdir, env, provider, ..StartSession::default() };
        let id = service.start_session(request, &asking.caller).await?.session_id;
        let mut after = 0;
        let ends = service.clock.monotonic() + std::time::Duration::from_secs(wait_seconds);
        loop {
            let session = service.session(id.as_str()).await?;
            let left = ends.saturating_sub(service.clock.monotonic());
            let status = session.view.session.status;
            if status.is_over() || status == SessionStatus::Blocked || left.is_zero() {
                return Ok(RunAnswer { session });
            }
            let query = EventQuery {
                session: Some(id.to_string()),
                after: Some(after),
                wait_seconds: left.as_secs().max(1),
                ..EventQuery::default()
            };
            after = service.events(query).await?.last_id;
        }
    }

    fn text(answer: &RunAnswer) -> String {
        text::session(&answer.session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_waited_for_unless_it_is_asked_for() {
        let nothing: Arguments = serde_json::from_str("{}").unwrap();
        assert_eq!(Run::input_schema()["properties"]["wait_seconds"]["default"], json!(nothing.wait_seconds));
        assert_eq!(Run::access(&nothing).0, Access::Operator);
    }
}
