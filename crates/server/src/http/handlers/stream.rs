//! The history as it happens, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use parhelia_core::api::Problem;
use parhelia_core::interest::Interest;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{App, Ask, Fault, HangUp, Shown, words};
use crate::relay::{Follow, Watcher};
use crate::service::ServiceError;

const LAST_EVENT_ID: &str = "last-event-id";

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct StreamAsk {
    /// One or several types, with commas between them.
    #[serde(rename = "type")]
    event_type: Option<String>,
    /// An id, or a unique prefix of one.
    container: Option<String>,
    task: Option<String>,
    /// Its id, a unique prefix of it, or its name.
    session: Option<String>,
    /// The `workspace_id` in an event's details.
    workspace: Option<String>,
    /// `info`, `warning` or `error`: at least this serious.
    severity: Option<String>,
    /// Like the header `Last-Event-ID`, for clients that cannot set one. The header counts when both are there.
    after: Option<i64>,
    /// Begins with the containers as they are.
    #[serde(default)]
    #[param(required = false)]
    snapshot: bool,
}

/// Live events (server-sent events). Each has its `id`, its type as `event` and the event itself as `data`.
#[utoipa::path(
    get, path = "/api/v1/events/stream", tag = "events",
    params(StreamAsk, ("Last-Event-ID" = Option<String>, Header, description = "Go on after this event")),
    responses(
        (status = 200, content_type = "text/event-stream", body = String),
        (status = 404, content_type = "application/problem+json", body = Problem, description = "There is no such container"),
        (status = 409, content_type = "application/problem+json", body = Problem, description = "The id is not unique"),
    ),
)]
pub(in crate::http) async fn stream(
    State(app): State<App>,
    Extension(shown): Extension<Shown>,
    Extension(hang_up): Extension<HangUp>,
    headers: HeaderMap,
    Ask(ask): Ask<StreamAsk>,
) -> Result<Response, Fault> {
    let server = &app.service.config.server;
    let place = app.hub.place().ok_or_else(|| {
        let detail = format!("this server has as many streams as it takes ({})", server.max_streams);
        Fault::busy(detail, "try again, or raise server.max_streams")
    })?;
    let after = last_event_id(&headers)?.or(ask.after);
    let container_id = match &ask.container {
        // An id that has no row (any more) can still have events.
        Some(given) => Some(match app.service.resolve(given).await {
            Ok(id) => id.to_string(),
            Err(ServiceError::NotFound { .. }) if after.is_some() => given.clone(),
            Err(e) => return Err(e.into()),
        }),
        None => None,
    };
    let session_id = match &ask.session {
        Some(given) => Some(app.service.session_of_events(given).await?),
        None => None,
    };
    let at_least = words("severity", ask.severity.as_deref())?;
    if at_least.len() > 1 {
        return Err(Fault::unprocessable(
            "severity: one is enough",
            "the least serious that you want to hear of",
        ));
    }
    let interest = Interest {
        types: words("type", ask.event_type.as_deref())?,
        container_id,
        task_id: ask.task,
        session_id,
        workspace_id: ask.workspace,
        at_least: at_least.first().copied(),
    };
    let watcher = Watcher {
        place,
        token: shown.0,
        heartbeat: Duration::from_secs(server.sse_heartbeat_seconds),
        patience: Duration::from_secs(server.client_patience_seconds),
    };
    let follow = Follow { interest, after, snapshot: ask.snapshot };
    let words = app.hub.follow(&app.service, follow, watcher, move || hang_up.now()).await?;
    let body = futures::stream::unfold(words, |mut words| async {
        words.recv().await.map(|said| (Ok::<Bytes, Infallible>(said), words))
    });
    let mut response = Body::from_stream(body).into_response();
    let head = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // The connection has no other use, and its end is the stream's.
        (header::CONNECTION, "close"),
        // Proxies that gather answers (nginx) must not.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    for (name, value) in head {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// An empty one is none: that is how a client says that it has nothing yet.
fn last_event_id(headers: &HeaderMap) -> Result<Option<i64>, Fault> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let text = value.to_str().unwrap_or("?").trim();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        let shown: String = text.chars().take(40).collect();
        let fix = "send the id of the last event that you have, or none to begin now";
        Fault::unprocessable(format!("Last-Event-ID: '{shown}' is not the id of an event"), fix)
    })
}
