//! The server itself: whether it lives, whether it works, what it is, and the document of its API.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse};
use parhelia_core::api::{Problem, ServerInfo};
use parhelia_core::doctor::DoctorReport;

use super::{App, Fault};
use crate::metrics::{CONTENT_TYPE, scrape};

/// What this server is.
#[utoipa::path(get, path = "/api/v1/server", tag = "server", responses((status = 200, body = ServerInfo)))]
pub(in crate::http) async fn server(State(app): State<App>) -> Json<ServerInfo> {
    Json(app.server_info())
}

/// Whether this server's surroundings are as they should be: store, providers, disk, clock, doors, limits. Each is
/// tried now, side by side, for a few seconds at most.
#[utoipa::path(get, path = "/api/v1/doctor", tag = "server", responses((status = 200, body = DoctorReport)))]
pub(in crate::http) async fn doctor(State(app): State<App>) -> Json<DoctorReport> {
    Json(app.service.doctor(&app.info).await)
}

/// Ends the server; the sandboxes go on.
#[utoipa::path(post, path = "/api/v1/server/shutdown", tag = "server", responses((status = 202, description = "It is stopping")))]
pub(in crate::http) async fn shutdown(State(app): State<App>) -> StatusCode {
    app.stop.notify_one();
    StatusCode::ACCEPTED
}

/// Whether the process answers and none of its control loops is stuck. It says nothing of the store: a restart
/// would not mend that.
#[utoipa::path(get, path = "/livez", tag = "server", responses(
    (status = 200, body = inline(String), content_type = "text/plain"),
    (status = 503, body = Problem, content_type = "application/problem+json", description = "A loop is stuck, and which"),
))]
pub(in crate::http) async fn livez(State(app): State<App>) -> Result<&'static str, Fault> {
    let limit = Duration::from_secs(app.service.config.server.stuck_after_seconds);
    match app.metrics.loops.stuck(app.service.clock.monotonic(), limit) {
        None => Ok("ok\n"),
        Some((name, took)) => Err(Fault::unavailable(
            format!("a pass of the {name} loop has been under way for {}s", took.as_secs()),
            "restart the server; its log may say what it waits for",
        )),
    }
}

/// What this server measures, for Prometheus (OpenMetrics text).
#[utoipa::path(get, path = "/metrics", tag = "server", responses(
    (status = 200, body = inline(String), content_type = "application/openmetrics-text"),
))]
pub(in crate::http) async fn metrics(State(app): State<App>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], scrape(&app).await)
}

/// Whether it can do its work: the store answers.
#[utoipa::path(get, path = "/readyz", tag = "server", responses(
    (status = 200, body = inline(String), content_type = "text/plain"),
    (status = 503, body = Problem, content_type = "application/problem+json", description = "It cannot, and says why"),
))]
pub(in crate::http) async fn readyz(State(app): State<App>) -> Result<&'static str, Fault> {
    app.service.ready().await?;
    Ok("ready\n")
}

/// This document.
#[utoipa::path(get, path = "/api/openapi.json", tag = "server", responses((status = 200, body = inline(Object), content_type = "application/json")))]
pub(in crate::http) async fn openapi(State(app): State<App>) -> impl IntoResponse {
    let document = app.document.get().cloned().unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json")], document)
}

/// This document, as a page to read. It needs nothing from elsewhere.
#[utoipa::path(get, path = "/api/docs", tag = "server", responses((status = 200, body = inline(String), content_type = "text/html")))]
pub(in crate::http) async fn docs() -> Html<&'static str> {
    Html(include_str!("../docs.html"))
}
