//! What workers of sessions ask.

use axum::extract::State;
use axum::{Extension, Json};
use parhelia_core::session::TaskRow;
use parhelia_core::session::api::{ClaimTask, Claimed, TaskResult};

use super::sessions::number;
use super::{Answer, App, Body, Path, Who};

/// A worker asks for the next task of its session.
#[utoipa::path(
    post, path = "/api/v1/sessions/{id}/claims", tag = "workers", params(("id" = String, Path)),
    request_body = ClaimTask, responses((status = 200, body = Claimed)),
)]
pub(in crate::http) async fn claim(
    State(app): State<App>,
    Path(id): Path<String>,
    Extension(who): Who,
    Body(request): Body<ClaimTask>,
) -> Answer<Claimed> {
    Ok(Json(app.service.claim_task(&id, request, &who).await?))
}

/// A worker says what became of an attempt. Refused (409) unless it is the open one.
#[utoipa::path(
    post, path = "/api/v1/tasks/{id}/attempts/{attempt}/result", tag = "workers",
    params(("id" = String, Path), ("attempt" = i64, Path)),
    request_body = TaskResult, responses((status = 200, body = TaskRow)),
)]
pub(in crate::http) async fn result(
    State(app): State<App>,
    Path((id, attempt)): Path<(String, String)>,
    Extension(who): Who,
    Body(result): Body<TaskResult>,
) -> Answer<TaskRow> {
    Ok(Json(app.service.finish_task(&id, number(&attempt), result, &who).await?))
}
