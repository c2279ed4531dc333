//! Sessions: look at them, and say what is wanted of them.

use axum::Json;
use axum::extract::State;
use parhelia_core::api::Problem;
use parhelia_core::session::TaskStatus;
use parhelia_core::session::api::{
    AttemptOutput, CheckpointList, SessionDetail, SessionList, SessionTree, TaskList,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, App, Ask, Path, words};
use crate::service::{SessionQuery, TaskQuery};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct SessionsAsk {
    /// One or several statuses, with commas between them.
    status: Option<String>,
    /// Exactly this cascade.
    cascade: Option<String>,
    /// Those that this session started: its id, a unique prefix of it, or its name.
    parent: Option<String>,
    /// Those too that were over long ago.
    #[serde(default)]
    #[param(required = false)]
    all: bool,
    #[param(maximum = 1000)]
    limit: Option<u32>,
    /// Those that were started before this one: the `next` of the page before.
    before: Option<String>,
}

/// The sessions, newest first: those that are not over, and those that were over in the last day.
#[utoipa::path(
    get, path = "/api/v1/sessions", tag = "sessions",
    params(SessionsAsk), responses(
        (status = 200, body = SessionList),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such session"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "The session's id is not unique"),
    ),
)]
pub(in crate::http) async fn sessions(
    State(app): State<App>,
    Ask(ask): Ask<SessionsAsk>,
) -> Answer<SessionList> {
    let query = SessionQuery {
        statuses: words("status", ask.status.as_deref())?,
        cascade: ask.cascade,
        parent: ask.parent,
        all: ask.all,
        limit: ask.limit,
        before: ask.before,
    };
    Ok(Json(app.service.sessions(query).await?))
}

/// One session with its phases, tasks, attempts and waits, and why it is not done.
#[utoipa::path(
    get, path = "/api/v1/sessions/{id}", tag = "sessions",
    params(("id" = String, Path, description = "its id, a unique prefix of it, or its name")),
    responses((status = 200, body = SessionDetail)),
)]
pub(in crate::http) async fn session(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Answer<SessionDetail> {
    Ok(Json(app.service.session(&id).await?))
}

/// The same, and the sessions below it.
#[utoipa::path(
    get, path = "/api/v1/sessions/{id}/tree", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = SessionTree)),
)]
pub(in crate::http) async fn tree(State(app): State<App>, Path(id): Path<String>) -> Answer<SessionTree> {
    Ok(Json(app.service.session_tree(&id).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct TasksAsk {
    /// Needed where more than one phase has tasks.
    phase: Option<String>,
    /// Only tasks in this state.
    state: Option<String>,
    /// Those after this position: the `next` of the page before.
    after: Option<i64>,
    #[param(maximum = 1000)]
    limit: Option<u32>,
}

/// The tasks of a phase in their order, with their attempts.
#[utoipa::path(
    get, path = "/api/v1/sessions/{id}/tasks", tag = "sessions", params(("id" = String, Path), TasksAsk),
    responses((status = 200, body = TaskList)),
)]
pub(in crate::http) async fn tasks(
    State(app): State<App>,
    Path(id): Path<String>,
    Ask(ask): Ask<TasksAsk>,
) -> Answer<TaskList> {
    let state = words::<TaskStatus>("state", ask.state.as_deref())?.first().copied();
    let query = TaskQuery { phase: ask.phase, state, after: ask.after, limit: ask.limit };
    Ok(Json(app.service.session_tasks(&id, query).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct CheckpointsAsk {
    /// Those after this one: the `next` of the page before.
    after: Option<String>,
    #[param(maximum = 1000)]
    limit: Option<u32>,
}

/// What of a session is done and will not be done again, in order.
#[utoipa::path(
    get, path = "/api/v1/sessions/{id}/checkpoints", tag = "sessions", params(("id" = String, Path), CheckpointsAsk),
    responses((status = 200, body = CheckpointList)),
)]
pub(in crate::http) async fn checkpoints(
    State(app): State<App>,
    Path(id): Path<String>,
    Ask(ask): Ask<CheckpointsAsk>,
) -> Answer<CheckpointList> {
    Ok(Json(app.service.session_checkpoints(&id, ask.after.as_deref(), ask.limit).await?))
}

/// What a task that a worker ran has written: the end of it. Any other's is that of its container.
#[utoipa::path(
    get, path = "/api/v1/tasks/{id}/attempts/{attempt}/output", tag = "sessions",
    params(("id" = String, Path), ("attempt" = i64, Path)), responses((status = 200, body = AttemptOutput)),
)]
pub(in crate::http) async fn output(
    State(app): State<App>,
    Path((id, attempt)): Path<(String, String)>,
) -> Answer<AttemptOutput> {
    Ok(Json(app.service.attempt_output(&id, number(&attempt)).await?))
}

/// Which attempt is meant; what is no number is none that there is.
pub(super) fn number(attempt: &str) -> i64 {
    attempt.parse().unwrap_or(-1)
}
