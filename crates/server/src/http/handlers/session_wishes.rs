//! What people want of sessions: begin one, end one, go on with one.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use parhelia_core::session::Session;
use parhelia_core::session::api::{
    CancelSession, CleanupSessions, CleanupSessionsReport, ResumeSession, StartSession,
};

use super::{Answer, App, Body, Fault, Path, Who};

/// Runs a cascade as a session. It is recorded; its server makes it real.
#[utoipa::path(
    post, path = "/api/v1/sessions", tag = "sessions",
    request_body = StartSession, responses((status = 201, body = Session)),
)]
pub(in crate::http) async fn start(
    State(app): State<App>,
    Extension(who): Who,
    Body(request): Body<StartSession>,
) -> Result<(StatusCode, Json<Session>), Fault> {
    Ok((StatusCode::CREATED, Json(app.service.start_session(request, &who).await?)))
}

/// Asks for the end of a session and of everything below it; it is `cancelled` once all of it is confirmed gone.
#[utoipa::path(
    post, path = "/api/v1/sessions/{id}/cancel", tag = "sessions", params(("id" = String, Path)),
    request_body(content = CancelSession, description = "may be left out"),
    responses((status = 200, body = Session)),
)]
pub(in crate::http) async fn cancel(
    State(app): State<App>,
    Path(id): Path<String>,
    Extension(who): Who,
    Body(request): Body<CancelSession>,
) -> Answer<Session> {
    Ok(Json(app.service.cancel_session(&id, request, &who).await?))
}

/// Goes on with a session: an orphaned one in place, one that is over as a new one that keeps what was done.
#[utoipa::path(
    post, path = "/api/v1/sessions/{id}/resume", tag = "sessions", params(("id" = String, Path)),
    request_body(content = ResumeSession, description = "may be left out"),
    responses((status = 200, body = Session)),
)]
pub(in crate::http) async fn resume(
    State(app): State<App>,
    Path(id): Path<String>,
    Extension(who): Who,
    Body(request): Body<ResumeSession>,
) -> Answer<Session> {
    Ok(Json(app.service.resume_session(&id, request, &who).await?))
}

/// Sessions whose server is dead, and what becomes of each. That happens by itself; this makes it happen now.
#[utoipa::path(
    post, path = "/api/v1/sessions/cleanup", tag = "sessions",
    request_body(content = CleanupSessions, description = "may be left out"),
    responses((status = 200, body = CleanupSessionsReport)),
)]
pub(in crate::http) async fn cleanup(
    State(app): State<App>,
    Body(request): Body<CleanupSessions>,
) -> Answer<CleanupSessionsReport> {
    Ok(Json(app.service.cleanup_sessions(request.dry_run).await?))
}
