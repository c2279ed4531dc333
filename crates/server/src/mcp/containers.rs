//! `parhelia_containers`: what is there, one of them, its events, its end.

use parhelia_core::access::Access;
use parhelia_core::api::{ContainerView, StopRequest, Totals};
use parhelia_core::event::Event;
use parhelia_core::state::{ContainerState, Health};
use parhelia_core::word_enum;
use rmcp::model::ToolAnnotations;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::text;
use super::tool::{Asking, Tool, bounded};
use crate::http::Fault;
use crate::service::{EventQuery, ListQuery};

const MOST: i64 = 1000;

word_enum!(
    Action {
        List = "list",
        Show = "show",
        Terminate = "terminate",
        Events = "events",
    }
);

word_enum!(
    StateFilter {
        All = "all",
        Running = "running",
        Orphaned = "orphaned",
        Terminated = "terminated",
    }
);

word_enum!(
    HealthFilter {
        All = "all",
        Healthy = "healthy",
        Degraded = "degraded",
        Unhealthy = "unhealthy",
        Dead = "dead",
    }
);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Arguments {
    action: Action,
    container_id: Option<String>,
    state_filter: StateFilter,
    health_filter: HealthFilter,
    limit: i64,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            action: Action::List,
            container_id: None,
            state_filter: StateFilter::Running,
            health_filter: HealthFilter::All,
            limit: 20,
        }
    }
}

/// What came of the action.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub(super) enum ContainersAnswer {
    /// The newest that match, the newest last; the totals are over all that match.
    List {
        containers: Vec<ContainerView>,
        totals: Totals,
    },
    Show {
        container: Box<ContainerView>,
    },
    /// The end is asked for; it has happened when `state` is `terminated`.
    Terminate {
        container: Box<ContainerView>,
    },
    /// The latest events, the newest last.
    Events {
        events: Vec<Event>,
        last_id: i64,
    },
}

pub(super) struct Containers;

impl Tool for Containers {
    const NAME: &'static str = "parhelia_containers";
    const TITLE: &'static str = "Containers";
    const DESCRIPTION: &'static str = "List and manage running containers";
    type Arguments = Arguments;
    type Answer = ContainersAnswer;

    fn input_schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "action": {
                    "type": "string",
                    "enum": ["list", "show", "terminate", "events"],
                    "default": "list"
                },
                "container_id": {
                    "type": "string",
                    "description": "Container ID (required for show/terminate/events)"
                },
                "state_filter": {
                    "type": "string",
                    "enum": ["all", "running", "orphaned", "terminated"],
                    "default": "running"
                },
                "health_filter": {
                    "type": "string",
                    "enum": ["all", "healthy", "degraded", "unhealthy", "dead"],
                    "default": "all"
                },
                "limit": {
                    "type": "integer",
                    "default": 20
                }
            }
        })
    }

    fn annotations() -> ToolAnnotations {
        // Of `terminate`, which asks for the same end however often it is called.
        ToolAnnotations::new().read_only(false).destructive(true).idempotent(true).open_world(false)
    }

    fn access(arguments: &Arguments) -> (Access, String) {
        let access = match arguments.action {
            Action::List | Action::Show | Action::Events => Access::Viewer,
            Action::Terminate => Access::Operator,
        };
        (access, format!("{} {}", Self::NAME, arguments.action))
    }

    async fn call(asking: &Asking, arguments: Arguments) -> Result<ContainersAnswer, Fault> {
        let service = asking.service();
        let limit = bounded("limit", arguments.limit, MOST)?;
        if arguments.action == Action::List {
            let found = service.containers(query(&arguments, limit)).await?;
            return Ok(ContainersAnswer::List {
                containers: found.containers,
                totals: found.totals.unwrap_or_default(),
            });
        }
        let Some(id) = arguments.container_id else {
            return Err(Fault::unprocessable(
                format!("container_id is required for {}", arguments.action),
                "give the id, or a unique prefix of it, as action=list shows it",
            ));
        };
        Ok(match arguments.action {
            Action::Terminate => {
                let container = service.terminate(&id, StopRequest::default(), &asking.caller).await?;
                ContainersAnswer::Terminate { container: Box::new(container) }
            }
            Action::Events => {
                let query = EventQuery {
                    container: Some(id),
                    limit: Some(limit),
                    newest_first: true,
                    ..EventQuery::default()
                };
                let mut found = service.events(query).await?;
                found.events.sort_by_key(|event| event.id);
                ContainersAnswer::Events { events: found.events, last_id: found.last_id }
            }
            Action::Show | Action::List => {
                ContainersAnswer::Show { container: Box::new(service.container(&id).await?) }
            }
        })
    }

    fn text(answer: &ContainersAnswer) -> String {
        match answer {
            ContainersAnswer::List { containers, totals } => text::list(containers, totals),
            ContainersAnswer::Show { container } => text::container(container),
            ContainersAnswer::Terminate { container } => {
                let id = &container.record.id;
                match container.record.state {
                    ContainerState::Terminated => format!("{id} is terminated."),
                    state => format!(
                        "The end of {id} is asked for; it is {state} now. It has ended when \
                         action=show says that its state is terminated; the server goes on trying until then."
                    ),
                }
            }
            ContainersAnswer::Events { events, .. } => text::events(events),
        }
    }
}

fn query(arguments: &Arguments, limit: i64) -> ListQuery {
    let states = match arguments.state_filter {
        StateFilter::All => vec![],
        StateFilter::Running => vec![ContainerState::Running],
        StateFilter::Orphaned => vec![ContainerState::Orphaned],
        StateFilter::Terminated => vec![ContainerState::Terminated],
    };
    let health = match arguments.health_filter {
        HealthFilter::All => vec![],
        HealthFilter::Healthy => vec![Health::Healthy],
        HealthFilter::Degraded => vec![Health::Degraded],
        HealthFilter::Unhealthy => vec![Health::Unhealthy],
        HealthFilter::Dead => vec![Health::Dead],
    };
    let all = arguments.state_filter == StateFilter::All;
    ListQuery { states, health, all, limit: usize::try_from(limit).ok(), ..ListQuery::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_and_defaults_of_the_schema_are_those_that_are_read() {
        let schema = Containers::input_schema();
        let words = |name: &str| schema["properties"][name]["enum"].clone();
        assert_eq!(words("action"), json!(Action::ALL));
        assert_eq!(words("state_filter"), json!(StateFilter::ALL));
        assert_eq!(words("health_filter"), json!(HealthFilter::ALL));
        let nothing: Arguments = serde_json::from_str("{}").unwrap();
        let default = |name: &str| schema["properties"][name]["default"].clone();
        assert_eq!(default("action"), json!(nothing.action));
        assert_eq!(default("state_filter"), json!(nothing.state_filter));
        assert_eq!(default("health_filter"), json!(nothing.health_filter));
        assert_eq!(default("limit"), json!(nothing.limit));
    }

    #[test]
    fn only_what_ends_something_needs_an_operator() {
        for action in Action::ALL {
            let arguments = Arguments { action: *action, ..Arguments::default() };
            let (access, what) = Containers::access(&arguments);
            assert_eq!(access == Access::Operator, *action == Action::Terminate, "{what}");
            assert_eq!(what, format!("parhelia_containers {action}"));
        }
    }
}
