//! `parhelia_sessions`: what cascades do, one of them, its end, its going on.

use parhelia_core::access::Access;
use parhelia_core::event::Event;
use parhelia_core::session::api::{
    CancelSession, CleanupSessionsReport, ResumeSession, SessionDetail, SessionTotals, SessionTree,
    SessionView,
};
use parhelia_core::session::{Session, SessionStatus};
use parhelia_core::word_enum;
use rmcp::model::ToolAnnotations;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::text;
use super::tool::{Asking, Tool, bounded};
use crate::http::Fault;
use crate::service::{EventQuery, SessionQuery};

const MOST: i64 = 1000;

word_enum!(
    Action {
        List = "list",
        Show = "show",
        Tree = "tree",
        Events = "events",
        Cancel = "cancel",
        Resume = "resume",
        Cleanup = "cleanup",
    }
);

word_enum!(
    StatusFilter {
        /// Not over, or over in the last day.
        Recent = "recent",
        All = "all",
        Starting = "starting",
        Running = "running",
        Blocked = "blocked",
        Completed = "completed",
        Error = "error",
        Cancelled = "cancelled",
        Orphaned = "orphaned",
    }
);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Arguments {
    action: Action,
    session_id: Option<String>,
    status_filter: StatusFilter,
    cascade_id: Option<String>,
    limit: i64,
    reason: Option<String>,
    force: bool,
    from_phase: Option<String>,
    dry_run: bool,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            action: Action::List,
            session_id: None,
            status_filter: StatusFilter::Recent,
            cascade_id: None,
            limit: 20,
            reason: None,
            force: false,
            from_phase: None,
            dry_run: false,
        }
    }
}

/// What came of the action.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub(super) enum SessionsAnswer {
    /// The newest that match, the newest first; the totals are over all sessions.
    List { sessions: Vec<SessionView>, totals: SessionTotals },
    /// All of it but the tasks of long levels; `waiting` says why it is not done.
    Show { session: Box<SessionDetail> },
    /// The same, and the sessions below it.
    Tree { tree: Box<SessionTree> },
    /// The latest events, the newest last.
    Events { events: Vec<Event>, last_id: i64 },
    /// The end is asked for; it has happened when `status` is `cancelled`.
    Cancel { session: Box<Session> },
    /// The session that goes on: the same one, or a new one whose `origin_id` it is.
    Resume { session: Box<Session> },
    /// Sessions whose server is dead, and what became of each.
    Cleanup { report: CleanupSessionsReport },
}

pub(super) struct Sessions;

impl Tool for Sessions {
    const NAME: &'static str = "parhelia_sessions";
    const TITLE: &'static str = "Sessions";
    const DESCRIPTION: &'static str = "List, inspect, cancel and resume sessions: durable executions of cascades (workflows of phases and tasks)";
    type Arguments = Arguments;
    type Answer = SessionsAnswer;

    fn input_schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "action": {
                    "type": "string",
                    "enum": ["list", "show", "tree", "events", "cancel", "resume", "cleanup"],
                    "default": "list"
                },
                "session_id": {
                    "type": "string",
                    "description": "Session ID, a unique prefix of it, or its name (required for show/tree/events/cancel/resume)"
                },
                "status_filter": {
                    "type": "string",
                    "enum": ["recent", "all", "starting", "running", "blocked", "completed", "error", "cancelled", "orphaned"],
                    "default": "recent"
                },
                "cascade_id": {"type": "string", "description": "Only sessions of this cascade (list)"},
                "limit": {"type": "integer", "default": 20},
                "reason": {"type": "string", "description": "Why it is cancelled, for the history"},
                "force": {"type": "boolean", "default": false, "description": "Cancel without a grace"},
                "from_phase": {
                    "type": "string",
                    "description": "Resume as a new session that does this phase and those after it again"
                },
                "dry_run": {"type": "boolean", "default": false, "description": "Only show what cleanup would do"}
            }
        })
    }

    fn annotations() -> ToolAnnotations {
        // Of `cancel`, which ends work, and `resume`, which starts a new session each time.
        ToolAnnotations::new().read_only(false).destructive(true).idempotent(false).open_world(false)
    }

    fn access(arguments: &Arguments) -> (Access, String) {
        let access = match arguments.action {
            Action::List | Action::Show | Action::Tree | Action::Events => Access::Viewer,
            Action::Cancel | Action::Resume | Action::Cleanup => Access::Operator,
        };
        (access, format!("{} {}", Self::NAME, arguments.action))
    }

    async fn call(asking: &Asking, arguments: Arguments) -> Result<SessionsAnswer, Fault> {
        let service = asking.service();
        let limit = bounded("limit", arguments.limit, MOST)?;
        if arguments.action == Action::List {
            let found = service.sessions(query(&arguments, limit)).await?;
            return Ok(SessionsAnswer::List { sessions: found.sessions, totals: found.totals });
        }
        if arguments.action == Action::Cleanup {
            return Ok(SessionsAnswer::Cleanup {
                report: service.cleanup_sessions(arguments.dry_run).await?,
            });
        }
        let Some(id) = arguments.session_id else {
            return Err(Fault::unprocessable(
                format!("session_id is required for {}", arguments.action),
                "give the id, a unique prefix of it, or its name, as action=list shows it",
            ));
        };
        Ok(match arguments.action {
            Action::Cancel => {
                let request =
                    CancelSession { reason: arguments.reason, force: arguments.force, grace_seconds: None };
                let session = service.cancel_session(&id, request, &asking.caller).await?;
                SessionsAnswer::Cancel { session: Box::new(session) }
            }
            Action::Resume => {
                let request = ResumeSession { from: arguments.from_phase };
                let session = service.resume_session(&id, request, &asking.caller).await?;
                SessionsAnswer::Resume { session: Box::new(session) }
            }
            Action::Events => {
                let query = EventQuery {
                    session: Some(service.resolve_session(&id).await?.to_string()),
                    limit: Some(limit),
                    newest_first: true,
                    ..EventQuery::default()
                };
                let mut found = service.events(query).await?;
                found.events.sort_by_key(|event| event.id);
                SessionsAnswer::Events { events: found.events, last_id: found.last_id }
            }
            Action::Tree => SessionsAnswer::Tree { tree: Box::new(service.session_tree(&id).await?) },
            Action::Show | Action::List | Action::Cleanup => {
                SessionsAnswer::Show { session: Box::new(service.session(&id).await?) }
            }
        })
    }

    fn text(answer: &SessionsAnswer) -> String {
        match answer {
            SessionsAnswer::List { sessions, totals } => text::sessions(sessions, totals),
            SessionsAnswer::Show { session } => text::session(session),
            SessionsAnswer::Tree { tree } => text::session_tree(tree),
            SessionsAnswer::Events { events, .. } => text::events(events),
            SessionsAnswer::Cancel { session } => match session.status {
                SessionStatus::Cancelled => format!("{} is cancelled.", session.session_id),
                status => format!(
                    "The end of {} is asked for; it is {status} now. It has ended when action=show says that its \
                     status is cancelled; the server goes on trying until then.",
                    session.session_id
                ),
            },
            SessionsAnswer::Resume { session } => {
                format!("{} goes on; action=show tells how far it is.", session.session_id)
            }
            SessionsAnswer::Cleanup { report } => text::zombies(report),
        }
    }
}

fn query(arguments: &Arguments, limit: i64) -> SessionQuery {
    let filter = arguments.status_filter;
    SessionQuery {
        // The words are the same, but for the two that name no status.
        statuses: filter.as_str().parse().ok().into_iter().collect(),
        cascade: arguments.cascade_id.clone(),
        all: filter == StatusFilter::All,
        limit: u32::try_from(limit).ok(),
        ..SessionQuery::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_and_defaults_of_the_schema_are_those_that_are_read() {
        let schema = Sessions::input_schema();
        let words = |name: &str| schema["properties"][name]["enum"].clone();
        assert_eq!(words("action"), json!(Action::ALL));
        assert_eq!(words("status_filter"), json!(StatusFilter::ALL));
        let nothing: Arguments = serde_json::from_str("{}").unwrap();
        let default = |name: &str| schema["properties"][name]["default"].clone();
        assert_eq!(default("action"), json!(nothing.action));
        assert_eq!(default("status_filter"), json!(nothing.status_filter));
        assert_eq!(default("limit"), json!(nothing.limit));
        assert_eq!(default("force"), json!(nothing.force));
    }

    #[test]
    fn a_filter_is_a_status_or_none() {
        for filter in StatusFilter::ALL {
            let arguments = Arguments { status_filter: *filter, ..Arguments::default() };
            let asked = query(&arguments, 5);
            let none = matches!(filter, StatusFilter::All | StatusFilter::Recent);
            assert_eq!(asked.statuses.is_empty(), none, "{filter}");
            assert_eq!(asked.all, *filter == StatusFilter::All);
        }
    }

    #[test]
    fn only_what_changes_something_needs_an_operator() {
        for action in Action::ALL {
            let arguments = Arguments { action: *action, ..Arguments::default() };
            let looks = matches!(action, Action::List | Action::Show | Action::Tree | Action::Events);
            assert_eq!(Sessions::access(&arguments).0 == Access::Viewer, looks, "{action}");
        }
    }
}
