//! Why something is as it is.

use axum::Json;
use axum::extract::State;
use parhelia_core::api::Why;

use super::{Answer, App, Path};

/// Why something is as it is: state, evidence, what it waits for, and who can change that. Asks its provider now.
#[utoipa::path(
    get, path = "/api/v1/why/{id}", tag = "why",
    params(("id" = String, Path, description = "of a container, task, token, instance or provider; a unique prefix is enough")),
    responses((status = 200, body = Why)),
)]
pub(in crate::http) async fn why(State(app): State<App>, Path(id): Path<String>) -> Answer<Why> {
    Ok(Json(app.service.why(&id).await?))
}
