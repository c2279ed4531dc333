//! The history.

use axum::Json;
use axum::extract::State;
use parhelia_core::api::{EventList, Problem};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, App, Ask, Fault, Path, moment, wait, words};
use crate::service::{EventQuery, Service};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct EventsAsk {
    container: Option<String>,
    task: Option<String>,
    /// Its id, a unique prefix of it, or its name.
    session: Option<String>,
    /// One or several types, with commas between them.
    #[serde(rename = "type")]
    event_type: Option<String>,
    since: Option<String>,
    until: Option<String>,
    /// Only what came after this id.
    after: Option<i64>,
    limit: Option<i64>,
    /// `asc` or `desc`.
    order: Option<String>,
    /// Waits this long when there is nothing yet.
    #[serde(default)]
    #[param(required = false, maximum = 60)]
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
        session: ask.session,
        event_types: words("type", ask.event_type.as_deref())?,
        since: moment("since", ask.since.as_deref())?,
        until: moment("until", ask.until.as_deref())?,
        after: ask.after,
        limit: ask.limit,
        newest_first,
        wait_seconds: wait(ask.wait_seconds)?,
    };
    Ok(Json(service.events(query).await?))
}

/// The events, the newest first; in order when asked for what came `after` an id.
#[utoipa::path(
    get, path = "/api/v1/events", tag = "events", params(EventsAsk), responses(
        (status = 200, body = EventList),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such container"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "The container's id is not unique"),
    ),
)]
pub(in crate::http) async fn events(State(app): State<App>, Ask(ask): Ask<EventsAsk>) -> Answer<EventList> {
    ask_events(&app.service, ask, None).await
}

/// The events of one container.
#[utoipa::path(
    get, path = "/api/v1/containers/{id}/events", tag = "events",
    params(("id" = String, Path), EventsAsk), responses((status = 200, body = EventList)),
)]
pub(in crate::http) async fn container_events(
    State(app): State<App>,
    Path(id): Path<String>,
    Ask(ask): Ask<EventsAsk>,
) -> Answer<EventList> {
    ask_events(&app.service, ask, Some(id)).await
}
