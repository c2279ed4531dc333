//! The handlers: parse, call, render.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use parhelia_core::api::{
    AdoptReport, CleanupReport, CleanupRequest, ContainerList, ContainerView, EventList, HEADER_LOG_FINISHED,
    HEADER_LOG_NEXT, HEADER_LOG_OFFSET, HeartbeatBatch, HeartbeatHistory, HeartbeatReceipt, InstanceList,
    ReconcilerStatus, RunRequest, ServerInfo, StatsView, StopRequest,
};
use parhelia_core::heartbeat::Sample;
use serde::Deserialize;

use super::extract::{Ask, Body, misfit, moment, repeated, words};
use super::{App, Fault};
use crate::service::{Caller, EventQuery, ListQuery, Service};

type Answer<T> = Result<Json<T>, Fault>;
type Who = Extension<Caller>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ContainersAsk {
    state: Option<String>,
    health: Option<String>,
    provider: Option<String>,
    task: Option<String>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    orphans: bool,
    limit: Option<usize>,
    before: Option<String>,
}

pub(super) async fn containers(State(app): State<App>, uri: Uri) -> Answer<ContainerList> {
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
    Ok(Json(app.service.containers(query).await?))
}

pub(super) async fn run(
    State(app): State<App>,
    Extension(who): Who,
    Body(request): Body<RunRequest>,
) -> Result<(StatusCode, Json<ContainerView>), Fault> {
    Ok((StatusCode::CREATED, Json(app.service.run(request, &who).await?)))
}

pub(super) async fn stats(State(app): State<App>) -> Answer<StatsView> {
    Ok(Json(app.service.stats().await?))
}

pub(super) async fn container(State(app): State<App>, Path(id): Path<String>) -> Answer<ContainerView> {
    Ok(Json(app.service.container(&id).await?))
}

pub(super) async fn stop(
    State(app): State<App>,
    Path(id): Path<String>,
    Extension(who): Who,
    Body(request): Body<StopRequest>,
) -> Answer<ContainerView> {
    Ok(Json(app.service.stop(&id, request, &who).await?))
}

pub(super) async fn terminate(
    State(app): State<App>,
    Path(id): Path<String>,
    Extension(who): Who,
    Body(request): Body<StopRequest>,
) -> Answer<ContainerView> {
    Ok(Json(app.service.terminate(&id, request, &who).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogsAsk {
    #[serde(default)]
    offset: u64,
    tail_bytes: Option<u64>,
    max_bytes: Option<usize>,
    #[serde(default)]
    wait_seconds: u64,
}

pub(super) async fn logs(
    State(app): State<App>,
    Path(id): Path<String>,
    Ask(ask): Ask<LogsAsk>,
) -> Result<impl IntoResponse, Fault> {
    let offset = match ask.tail_bytes {
        Some(bytes) => app.service.log_end(&id).await?.saturating_sub(bytes),
        None => ask.offset,
    };
    let chunk = app.service.logs(&id, offset, ask.max_bytes, ask.wait_seconds).await?;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(HEADER_LOG_OFFSET, HeaderValue::from(chunk.offset));
    headers.insert(HEADER_LOG_NEXT, HeaderValue::from(chunk.next_offset));
    headers
        .insert(HEADER_LOG_FINISHED, HeaderValue::from_static(if chunk.finished { "true" } else { "false" }));
    Ok((headers, chunk.bytes))
}

pub(super) async fn heartbeats(
    State(app): State<App>,
    Body(batch): Body<HeartbeatBatch>,
) -> Answer<HeartbeatReceipt> {
    let sent = batch.heartbeats.len();
    let receipt = app.service.heartbeats(batch.heartbeats).await?;
    match receipt.rejected.first() {
        // Nothing at all was taken: an error, so that a sender who looks only at the status learns of it.
        Some(first) if receipt.accepted == 0 => {
            let detail = format!("none of {sent} heartbeats was taken; the first: {}", first.message);
            if receipt.rejected.iter().all(|r| r.code == "unknown_container") {
                return Err(Fault::not_found(
                    detail,
                    "check the container ids with 'parhelia containers --all'",
                ));
            }
            Err(Fault::unprocessable(detail, "correct them and send them again"))
        }
        _ => Ok(Json(receipt)),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryAsk {
    since: Option<String>,
    limit: Option<i64>,
}

pub(super) async fn heartbeat_history(
    State(app): State<App>,
    Path(id): Path<String>,
    Ask(ask): Ask<HistoryAsk>,
) -> Answer<HeartbeatHistory> {
    let since = moment("since", ask.since.as_deref())?;
    Ok(Json(app.service.heartbeat_history(&id, since, ask.limit).await?))
}

/// The sample's container is the one of the path; the body need not repeat it.
pub(super) async fn heartbeat(
    State(app): State<App>,
    Path(id): Path<String>,
    Body(mut fields): Body<serde_json::Map<String, serde_json::Value>>,
) -> Answer<HeartbeatReceipt> {
    let id = app.service.resolve(&id).await?;
    fields.insert("container_id".into(), id.as_str().into());
    let fields = serde_json::Value::Object(fields);
    let sample: Sample = serde_path_to_error::deserialize(fields).map_err(|e| misfit("the heartbeat", &e))?;
    Ok(Json(app.service.heartbeat(sample).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsAsk {
    container: Option<String>,
    task: Option<String>,
    #[serde(rename = "type")]
    event_type: Option<String>,
    since: Option<String>,
    until: Option<String>,
    after: Option<i64>,
    limit: Option<i64>,
    order: Option<String>,
    #[serde(default)]
    wait_seconds: u64,
}

async fn ask_events(service: &Service, ask: EventsAsk, container: Option<String>) -> Answer<EventList> {
    let newest_first = match ask.order.as_deref() {
        Some("asc") => false,
        Some("desc") => true,
        None => ask.after.is_none(),
        Some(other) => {
            let shown: String = other.chars().take(40).collect();
            return Err(Fault::unprocessable(format!("order: '{shown}' is not known"), "use asc or desc"));
        }
    };
    let query = EventQuery {
        container: container.or(ask.container),
        task: ask.task,
        event_types: words("type", ask.event_type.as_deref())?,
        since: moment("since", ask.since.as_deref())?,
        until: moment("until", ask.until.as_deref())?,
        after: ask.after,
        limit: ask.limit,
        newest_first,
        wait_seconds: ask.wait_seconds,
    };
    Ok(Json(service.events(query).await?))
}

pub(super) async fn events(State(app): State<App>, Ask(ask): Ask<EventsAsk>) -> Answer<EventList> {
    ask_events(&app.service, ask, None).await
}

pub(super) async fn container_events(
    State(app): State<App>,
    Path(id): Path<String>,
    Ask(ask): Ask<EventsAsk>,
) -> Answer<EventList> {
    ask_events(&app.service, ask, Some(id)).await
}

pub(super) async fn cleanup(
    State(app): State<App>,
    Extension(who): Who,
    Body(request): Body<CleanupRequest>,
) -> Answer<CleanupReport> {
    Ok(Json(app.service.cleanup(request, &who).await?))
}

pub(super) async fn reconciler(State(app): State<App>) -> Answer<ReconcilerStatus> {
    Ok(Json(app.service.reconciler_status().await?))
}

pub(super) async fn reconcile_now(State(app): State<App>) -> Answer<ReconcilerStatus> {
    Ok(Json(app.service.reconcile_now().await?))
}

pub(super) async fn instances(State(app): State<App>) -> Answer<InstanceList> {
    Ok(Json(app.service.instances().await?))
}

pub(super) async fn adopt(
    State(app): State<App>,
    Path(id): Path<String>,
    Extension(who): Who,
) -> Answer<AdoptReport> {
    Ok(Json(app.service.adopt(&id, &who).await?))
}

pub(super) async fn server(State(app): State<App>) -> Json<ServerInfo> {
    let epoch = app.service.epoch();
    let mut info = app.info.as_ref().clone();
    info.leads = epoch.is_some();
    info.epoch = epoch.unwrap_or(0);
    Json(info)
}

pub(super) async fn shutdown(State(app): State<App>) -> StatusCode {
    app.stop.notify_one();
    StatusCode::ACCEPTED
}

pub(super) async fn livez() -> &'static str {
    "ok\n"
}

pub(super) async fn readyz(State(app): State<App>) -> Result<&'static str, Fault> {
    app.service.ready().await?;
    Ok("ready\n")
}
