//! Other control planes whose sandboxes are seen here.

use axum::extract::State;
use axum::{Extension, Json};
use parhelia_core::api::{AdoptReport, InstanceList};

use super::{Answer, App, Path, Who};

/// The instances that are known, with what of theirs is alive and what it costs.
#[utoipa::path(get, path = "/api/v1/instances", tag = "instances", responses((status = 200, body = InstanceList)))]
pub(in crate::http) async fn instances(State(app): State<App>) -> Answer<InstanceList> {
    Ok(Json(app.service.instances().await?))
}

/// Takes an instance over, with everything of it that is alive.
#[utoipa::path(
    post, path = "/api/v1/instances/{id}/adopt", tag = "instances", params(("id" = String, Path)),
    responses((status = 200, body = AdoptReport)),
)]
pub(in crate::http) async fn adopt(
    State(app): State<App>,
    Path(id): Path<String>,
    Extension(who): Who,
) -> Answer<AdoptReport> {
    Ok(Json(app.service.adopt(&id, &who).await?))
}
