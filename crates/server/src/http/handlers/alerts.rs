//! Alerts: listed, and tried out.

use axum::extract::State;
use axum::{Extension, Json};
use parhelia_core::alert::{AlertList, AlertTest};

use super::{Answer, App, Path, Who};

/// The configured alerts and what became of their deliveries. Never a secret.
#[utoipa::path(get, path = "/api/v1/alerts", tag = "alerts", responses((status = 200, body = AlertList)))]
pub(in crate::http) async fn alerts(State(app): State<App>) -> Answer<AlertList> {
    Ok(Json(app.service.alerts().await?))
}

/// Sends a test to the receiver of an alert, by its name, and tells what it answered.
#[utoipa::path(
    post, path = "/api/v1/alerts/{id}/test", tag = "alerts", params(("id" = String, Path)),
    responses((status = 200, body = AlertTest)),
)]
pub(in crate::http) async fn test_alert(
    State(app): State<App>,
    Path(id): Path<String>,
    Extension(who): Who,
) -> Answer<AlertTest> {
    Ok(Json(app.service.test_alert(&id, &who).await?))
}
