//! The reconciler: how it is, and a pass at once.

use axum::Json;
use axum::extract::State;
use parhelia_core::api::ReconcilerStatus;

use super::{Answer, App};

/// How the reconciler is, as it is recorded.
#[utoipa::path(get, path = "/api/v1/reconciler", tag = "reconciler", responses((status = 200, body = ReconcilerStatus)))]
pub(in crate::http) async fn reconciler(State(app): State<App>) -> Answer<ReconcilerStatus> {
    Ok(Json(app.service.reconciler_status().await?))
}

/// A pass over every provider now; answers when it is over.
#[utoipa::path(post, path = "/api/v1/reconciler/run", tag = "reconciler", responses((status = 200, body = ReconcilerStatus)))]
pub(in crate::http) async fn reconcile_now(State(app): State<App>) -> Answer<ReconcilerStatus> {
    Ok(Json(app.service.reconcile_now().await?))
}
