//! `parhelia_events`: the history.

use parhelia_core::access::Access;
use parhelia_core::api::EventList;
use parhelia_core::event::EventType;
use parhelia_core::time::plus_seconds;
use rmcp::model::ToolAnnotations;
use serde::Deserialize;
use serde_json::{Value, json};

use super::text;
use super::tool::{Asking, Tool, bounded};
use crate::http::Fault;
use crate::service::EventQuery;

const MOST: i64 = 1000;
const MOST_MINUTES: i64 = 10 * 366 * 24 * 60;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Arguments {
    container_id: Option<String>,
    task_id: Option<String>,
    event_type: Option<String>,
    since_minutes: i64,
    limit: i64,
}

impl Default for Arguments {
    fn default() -> Self {
        Self { container_id: None, task_id: None, event_type: None, since_minutes: 60, limit: 50 }
    }
}

pub(super) struct Events;

impl Tool for Events {
    const NAME: &'static str = "parhelia_events";
    const TITLE: &'static str = "Events";
    const DESCRIPTION: &'static str = "Query control plane events";
    type Arguments = Arguments;
    type Answer = EventList;

    fn input_schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "container_id": {"type": "string"},
                "task_id": {"type": "string"},
                "event_type": {"type": "string"},
                "since_minutes": {"type": "integer", "default": 60},
                "limit": {"type": "integer", "default": 50}
            }
        })
    }

    fn annotations() -> ToolAnnotations {
        ToolAnnotations::new().read_only(true).destructive(false).idempotent(true).open_world(false)
    }

    fn access(_: &Arguments) -> (Access, String) {
        (Access::Viewer, Self::NAME.to_owned())
    }

    async fn call(asking: &Asking, arguments: Arguments) -> Result<EventList, Fault> {
        let service = asking.service();
        let minutes = bounded("since_minutes", arguments.since_minutes, MOST_MINUTES)?;
        let query = EventQuery {
            container: arguments.container_id,
            task: arguments.task_id,
            event_types: arguments.event_type.as_deref().map(event_type).transpose()?.into_iter().collect(),
            since: Some(plus_seconds(service.clock.now(), -minutes * 60)),
            limit: Some(bounded("limit", arguments.limit, MOST)?),
            newest_first: true,
            ..EventQuery::default()
        };
        let mut found = service.events(query).await?;
        found.events.sort_by_key(|event| event.id);
        Ok(found)
    }

    fn text(answer: &EventList) -> String {
        text::events(&answer.events)
    }
}

/// By its full word, or the short one of the screens.
fn event_type(given: &str) -> Result<EventType, Fault> {
    let short = EventType::ALL.iter().find(|t| t.short() == given);
    short.copied().map_or_else(|| given.parse(), Ok).map_err(|unknown| {
        Fault::unprocessable(format!("event_type: {unknown}"), "use one of those, or leave it out for all")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_schema_are_those_that_are_read() {
        let schema = Events::input_schema();
        let nothing: Arguments = serde_json::from_str("{}").unwrap();
        assert_eq!(schema["properties"]["since_minutes"]["default"], nothing.since_minutes);
        assert_eq!(schema["properties"]["limit"]["default"], nothing.limit);
    }

    #[test]
    fn a_type_is_known_by_both_of_its_words() {
        assert_eq!(event_type("container_created").unwrap(), EventType::ContainerCreated);
        assert_eq!(event_type("created").unwrap(), EventType::ContainerCreated);
        let problem = event_type("birth").unwrap_err().problem();
        assert!(problem.detail.contains("container_created"), "{problem:?}");
    }
}
