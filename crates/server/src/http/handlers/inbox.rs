//! The inbox: what waits for a person, and their answers.

use axum::extract::State;
use axum::{Extension, Json};
use parhelia_core::session::api::{AnswerReport, AnswerWaits, Inbox};

use super::{Answer, App, Body, Who};

/// Everything that waits for a person, over all sessions and jobs; what has waited longest first.
#[utoipa::path(get, path = "/api/v1/inbox", tag = "sessions", responses((status = 200, body = Inbox)))]
pub(in crate::http) async fn inbox(State(app): State<App>) -> Answer<Inbox> {
    Ok(Json(app.service.inbox().await?))
}

/// One answer to one or several waits. The first answer to each holds; each that is refused says why.
#[utoipa::path(
    post, path = "/api/v1/inbox", tag = "sessions",
    request_body = AnswerWaits, responses((status = 200, body = AnswerReport)),
)]
pub(in crate::http) async fn answer(
    State(app): State<App>,
    Extension(who): Who,
    Body(request): Body<AnswerWaits>,
) -> Answer<AnswerReport> {
    Ok(Json(app.service.answer_waits(request, &who).await?))
}
