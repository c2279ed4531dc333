//! Heartbeats: in, and their history.

use axum::extract::State;
use axum::{Extension, Json};
use parhelia_core::api::{HeartbeatBatch, HeartbeatHistory, HeartbeatReceipt};
use parhelia_core::heartbeat::Sample;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, App, Ask, Body, Fault, Path, Who, misfit, moment};

/// A batch of heartbeats; everything that is not in `rejected` is on disk.
#[utoipa::path(
    post, path = "/api/v1/heartbeats", tag = "heartbeats",
    request_body = HeartbeatBatch, responses((status = 200, body = HeartbeatReceipt)),
)]
pub(in crate::http) async fn heartbeats(
    State(app): State<App>,
    Extension(who): Who,
    Body(batch): Body<HeartbeatBatch>,
) -> Answer<HeartbeatReceipt> {
    let sent = batch.heartbeats.len();
    let receipt = app.service.heartbeats(batch.heartbeats, &who).await?;
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

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct HistoryAsk {
    /// A moment like 2026-01-21T14:30:00Z.
    since: Option<String>,
    limit: Option<i64>,
}

/// What a container's heartbeats said, the raw ones and the hours before them.
#[utoipa::path(
    get, path = "/api/v1/containers/{id}/heartbeats", tag = "heartbeats",
    params(("id" = String, Path), HistoryAsk), responses((status = 200, body = HeartbeatHistory)),
)]
pub(in crate::http) async fn heartbeat_history(
    State(app): State<App>,
    Path(id): Path<String>,
    Ask(ask): Ask<HistoryAsk>,
) -> Answer<HeartbeatHistory> {
    let since = moment("since", ask.since.as_deref())?;
    Ok(Json(app.service.heartbeat_history(&id, since, ask.limit).await?))
}

/// One heartbeat. Its container is the one of the path; the body need not repeat it.
#[utoipa::path(
    post, path = "/api/v1/containers/{id}/heartbeats", tag = "heartbeats", params(("id" = String, Path)),
    request_body(content = Object, description = "a heartbeat without its container; may be left out"),
    responses((status = 200, body = HeartbeatReceipt)),
)]
pub(in crate::http) async fn heartbeat(
    State(app): State<App>,
    Path(id): Path<String>,
    Extension(who): Who,
    Body(mut fields): Body<serde_json::Map<String, serde_json::Value>>,
) -> Answer<HeartbeatReceipt> {
    let id = app.service.resolve(&id).await?;
    fields.insert("container_id".into(), id.as_str().into());
    let fields = serde_json::Value::Object(fields);
    let sample: Sample = serde_path_to_error::deserialize(fields).map_err(|e| misfit("the heartbeat", &e))?;
    Ok(Json(app.service.heartbeat(sample, &who).await?))
}
