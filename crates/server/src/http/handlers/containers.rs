//! Containers: run, look, read, stop.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use parhelia_core::api::{
    CleanupReport, CleanupRequest, ContainerList, ContainerView, HEADER_LOG_FINISHED, HEADER_LOG_NEXT,
    HEADER_LOG_OFFSET, Problem, RunRequest, StatsView, StopRequest,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, App, Ask, Body, Fault, Path, Who, moment, repeated, wait, words};
use crate::service::ListQuery;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct ContainersAsk {
    /// One or several states, with commas between them.
    state: Option<String>,
    /// One or several, with commas between them.
    health: Option<String>,
    provider: Option<String>,
    task: Option<String>,
    /// The ended ones too.
    #[serde(default)]
    #[param(required = false)]
    all: bool,
    /// Only what nobody asked for: orphans and suspects.
    #[serde(default)]
    #[param(required = false)]
    orphans: bool,
    limit: Option<usize>,
    /// Those that were created before this one: the `next` of the page before.
    before: Option<String>,
    /// The registry as it was at this moment, rebuilt from the history.
    at: Option<String>,
}

/// The containers, with their totals.
#[utoipa::path(
    get, path = "/api/v1/containers", tag = "containers",
    params(ContainersAsk, ("label" = Option<Vec<String>>, Query, description = "key=value; all that are given must fit")),
    responses((status = 200, body = ContainerList)),
)]
pub(in crate::http) async fn containers(State(app): State<App>, uri: Uri) -> Answer<ContainerList> {
    let (labels, ask): (_, ContainersAsk) = repeated(&uri, "label")?;
    let labels: Result<_, Fault> = labels
        .iter()
        .map(|text| {
            let pair = text.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
            let shown: String = text.chars().take(60).collect();
            pair.ok_or_else(|| {
                Fault::unprocessable(format!("label: '{shown}' has no '='"), "write it as key=value")
            })
        })
        .collect();
    let query = ListQuery {
        states: words("state", ask.state.as_deref())?,
        health: words("health", ask.health.as_deref())?,
        provider: ask.provider,
        task: ask.task,
        labels: labels?,
        all: ask.all,
        orphans: ask.orphans,
        limit: ask.limit,
        before: ask.before,
    };
    Ok(Json(match moment("at", ask.at.as_deref())? {
        Some(at) => app.service.containers_at(query, at).await?,
        None => app.service.containers(query).await?,
    }))
}

/// Asks for a container. The intent is recorded; the reconciler makes it real.
#[utoipa::path(
    post, path = "/api/v1/containers", tag = "containers",
    request_body = RunRequest, responses((status = 201, body = ContainerView)),
)]
pub(in crate::http) async fn run(
    State(app): State<App>,
    Extension(who): Who,
    Body(request): Body<RunRequest>,
) -> Result<(StatusCode, Json<ContainerView>), Fault> {
    Ok((StatusCode::CREATED, Json(app.service.run(request, &who).await?)))
}

/// Counts and cost.
#[utoipa::path(get, path = "/api/v1/containers/stats", tag = "containers", responses((status = 200, body = StatsView)))]
pub(in crate::http) async fn stats(State(app): State<App>) -> Answer<StatsView> {
    Ok(Json(app.service.stats().await?))
}

/// One container, by its id or a unique prefix of it.
#[utoipa::path(
    get, path = "/api/v1/containers/{id}", tag = "containers",
    params(("id" = String, Path, description = "its id, or a unique prefix of it")), responses((status = 200, body = ContainerView)),
)]
pub(in crate::http) async fn container(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Answer<ContainerView> {
    Ok(Json(app.service.container(&id).await?))
}

/// Asks for its end, politely at first. It rests as `stopped` before it is `terminated`.
#[utoipa::path(
    post, path = "/api/v1/containers/{id}/stop", tag = "containers", params(("id" = String, Path)),
    request_body(content = StopRequest, description = "may be left out"), responses((status = 200, body = ContainerView)),
)]
pub(in crate::http) async fn stop(
    State(app): State<App>,
    Path(id): Path<String>,
    Extension(who): Who,
    Body(request): Body<StopRequest>,
) -> Answer<ContainerView> {
    Ok(Json(app.service.stop(&id, request, &who).await?))
}

/// Asks for its end and its removal.
#[utoipa::path(
    post, path = "/api/v1/containers/{id}/terminate", tag = "containers", params(("id" = String, Path)),
    request_body(content = StopRequest, description = "may be left out"), responses((status = 200, body = ContainerView)),
)]
pub(in crate::http) async fn terminate(
    State(app): State<App>,
    Path(id): Path<String>,
    Extension(who): Who,
    Body(request): Body<StopRequest>,
) -> Answer<ContainerView> {
    Ok(Json(app.service.terminate(&id, request, &who).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct LogsAsk {
    #[serde(default)]
    #[param(required = false)]
    offset: u64,
    /// Instead of an offset: the last so many bytes.
    tail_bytes: Option<u64>,
    max_bytes: Option<usize>,
    /// Waits this long for more when there is none.
    #[serde(default)]
    #[param(required = false, maximum = 60)]
    wait_seconds: u64,
}

/// Its output from an offset on; the headers say where to go on.
#[utoipa::path(
    get, path = "/api/v1/containers/{id}/logs", tag = "containers", params(("id" = String, Path), LogsAsk),
    responses(
        (status = 200, body = inline(String), content_type = "application/octet-stream", headers(
            ("parhelia-log-offset" = u64, description = "where these bytes begin"),
            ("parhelia-log-next" = u64, description = "the offset to go on from"),
            ("parhelia-log-finished" = bool, description = "there will never be more"),
        )),
        (status = 502, body = Problem, content_type = "application/problem+json", description = "The provider cannot be asked"),
    ),
)]
pub(in crate::http) async fn logs(
    State(app): State<App>,
    Path(id): Path<String>,
    Ask(ask): Ask<LogsAsk>,
) -> Result<impl IntoResponse, Fault> {
    let offset = match ask.tail_bytes {
        Some(bytes) => app.service.log_end(&id).await?.saturating_sub(bytes),
        None => ask.offset,
    };
    let chunk = app.service.logs(&id, offset, ask.max_bytes, wait(ask.wait_seconds)?).await?;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(HEADER_LOG_OFFSET, HeaderValue::from(chunk.offset));
    headers.insert(HEADER_LOG_NEXT, HeaderValue::from(chunk.next_offset));
    headers
        .insert(HEADER_LOG_FINISHED, HeaderValue::from_static(if chunk.finished { "true" } else { "false" }));
    Ok((headers, chunk.bytes))
}

/// Shows what could be cleaned up (without `ids`), or asks for the end of exactly those that were shown.
#[utoipa::path(
    post, path = "/api/v1/cleanup", tag = "containers",
    request_body = CleanupRequest, responses((status = 200, body = CleanupReport)),
)]
pub(in crate::http) async fn cleanup(
    State(app): State<App>,
    Extension(who): Who,
    Body(request): Body<CleanupRequest>,
) -> Answer<CleanupReport> {
    Ok(Json(app.service.cleanup(request, &who).await?))
}
