//! Signals: fire one, see what was fired.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use parhelia_core::api::Problem;
use parhelia_core::session::SignalRow;
use parhelia_core::session::api::{FireSignal, SignalList};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, App, Ask, Body, Fault, Who};
use crate::service::SignalQuery;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct SignalsAsk {
    /// Exactly this name.
    name: Option<String>,
    /// Those for this session alone: its id, a unique prefix of it, or its name.
    session: Option<String>,
    /// Only those that nobody has taken yet, and somebody still could.
    #[serde(default)]
    #[param(required = false)]
    pending: bool,
    #[param(maximum = 1000)]
    limit: Option<u32>,
    /// Those that were fired before this one: the `next` of the page before.
    before: Option<String>,
}

/// The signals that were fired, newest first.
#[utoipa::path(
    get, path = "/api/v1/signals", tag = "sessions",
    params(SignalsAsk), responses(
        (status = 200, body = SignalList),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such session"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "The session's id is not unique"),
    ),
)]
pub(in crate::http) async fn signals(
    State(app): State<App>,
    Ask(ask): Ask<SignalsAsk>,
) -> Answer<SignalList> {
    let SignalsAsk { name, session, pending, limit, before } = ask;
    Ok(Json(app.service.signals(SignalQuery { name, session, pending, limit, before }).await?))
}

/// Fires a signal. It ends the waits for it that are open; if there is none, the next one takes it.
#[utoipa::path(
    post, path = "/api/v1/signals", tag = "sessions",
    request_body = FireSignal, responses((status = 201, body = SignalRow)),
)]
pub(in crate::http) async fn fire(
    State(app): State<App>,
    Extension(who): Who,
    Body(request): Body<FireSignal>,
) -> Result<(StatusCode, Json<SignalRow>), Fault> {
    Ok((StatusCode::CREATED, Json(app.service.fire_signal(request, &who).await?)))
}
