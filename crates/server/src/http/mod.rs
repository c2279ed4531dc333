//! The HTTP door. A handler parses, calls the service and renders; nothing else. Errors become
//! `application/problem+json` in `problem.rs` and nowhere else.

mod auth;
mod extract;
mod handlers;
mod listen;
mod problem;
mod routes;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::http::{Method, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use parhelia_core::access::Access;
use parhelia_core::api::ServerInfo;
use parhelia_core::cascade::parse::LONGEST_TEXT;
use tokio::sync::Notify;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::routes;

pub use auth::{Door, Gate};
pub use listen::{Limits, Listener, serve};
pub use problem::Fault;
pub use routes::ACCESS;

use self::handlers::{
    admin, alerts, containers, events, heartbeats, inbox, instances, jobs, mcp, reconciler, server,
    session_wishes, sessions, signals, stream, tokens, why, workers,
};
use self::routes::Routes;
use crate::metrics::{Metrics, RouteMeter};
use crate::relay::Hub;
use crate::service::Service;

/// What every handler sees. Each request takes a handle to it, which is one count and not one for each part.
#[derive(Debug, Clone)]
pub struct App(Arc<Shared>);

#[derive(Debug)]
pub struct Shared {
    pub service: Arc<Service>,
    pub hub: Arc<Hub>,
    pub metrics: Arc<Metrics>,
    pub info: ServerInfo,
    /// Rung by `POST /server/shutdown`.
    pub stop: Arc<Notify>,
    /// The OpenAPI document; `router` fills it in.
    pub document: OnceLock<Bytes>,
}

impl std::ops::Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl From<Shared> for App {
    fn from(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }
}

impl App {
    /// What this server is at this moment.
    pub(crate) fn server_info(&self) -> ServerInfo {
        let epoch = self.service.epoch();
        ServerInfo { leads: epoch.is_some(), epoch: epoch.unwrap_or(0), ..self.info.clone() }
    }
}

/// All routes, each with what it asks of its caller. The same for every door: a door only says who comes in.
#[rustfmt::skip]
pub fn router(app: App, gate: Gate, max_body_bytes: usize) -> Router {
    let (router, document) = Routes::new(app.clone(), gate, max_body_bytes)
        .add(Access::Public, routes!(server::livez))
        .add(Access::Public, routes!(server::readyz))
        .add(Access::Viewer, routes!(server::metrics))
        .add(Access::Public, routes!(server::openapi))
        .add(Access::Public, routes!(server::docs))
        .add(Access::Viewer, routes!(containers::containers))
        .add(Access::Operator, routes!(containers::run))
        .add(Access::Viewer, routes!(containers::stats))
        .add(Access::ViewerOrOwn, routes!(containers::container))
        .add(Access::ViewerOrOwn, routes!(events::container_events))
        .add(Access::ViewerOrOwn, routes!(heartbeats::heartbeat_history))
        .add(Access::OperatorOrOwn, routes!(heartbeats::heartbeat))
        .add(Access::OperatorOrOwn, routes!(heartbeats::heartbeats))
        .add(Access::Viewer, routes!(containers::logs))
        .add(Access::Operator, routes!(containers::stop))
        .add(Access::Operator, routes!(containers::terminate))
        .add(Access::Operator, routes!(containers::cleanup))
        .add(Access::Viewer, routes!(jobs::jobs))
        .add(Access::Operator, routes!(jobs::exec))
        .add(Access::Viewer, routes!(jobs::job))
        .add(Access::Operator, routes!(jobs::cancel))
        .add(Access::Operator, routes!(jobs::resume))
        .add(Access::Operator, routes!(jobs::cleanup))
        // A whole cascade, each character of which may take two in JSON.
        .add_with_room(Access::Operator, max_body_bytes + 2 * LONGEST_TEXT, routes!(session_wishes::start))
        .add(Access::Operator, routes!(session_wishes::cancel))
        .add(Access::Operator, routes!(session_wishes::resume))
        .add(Access::Operator, routes!(session_wishes::cleanup))
        .add(Access::OperatorOrOwn, routes!(workers::claim))
        .add(Access::OperatorOrOwn, routes!(workers::result))
        .add(Access::Viewer, routes!(sessions::sessions))
        .add(Access::Viewer, routes!(sessions::session))
        .add(Access::Viewer, routes!(sessions::tree))
        .add(Access::Viewer, routes!(sessions::tasks))
        .add(Access::Viewer, routes!(sessions::checkpoints))
        .add(Access::Viewer, routes!(sessions::output))
        .add(Access::Viewer, routes!(signals::signals))
        .add(Access::Operator, routes!(signals::fire))
        .add(Access::Viewer, routes!(inbox::inbox))
        .add(Access::Operator, routes!(inbox::answer))
        .add(Access::Viewer, routes!(events::events))
        .add(Access::Viewer, routes!(stream::stream))
        .add(Access::Viewer, routes!(alerts::alerts))
        .add(Access::Operator, routes!(alerts::test_alert))
        .add(Access::Viewer, routes!(reconciler::reconciler))
        .add(Access::Operator, routes!(reconciler::reconcile_now))
        .add(Access::Viewer, routes!(instances::instances))
        .add(Access::Admin, routes!(instances::adopt))
        .add(Access::ViewerOrOwn, routes!(why::why))
        .add(Access::Admin, routes!(admin::recovery_status))
        .add(Access::Admin, routes!(admin::sentinels))
        .add(Access::Admin, routes!(admin::heartbeats))
        .add(Access::Admin, routes!(admin::metrics))
        .add(Access::Admin, routes!(admin::failed))
        .add(Access::Admin, routes!(admin::stale))
        .add(Access::Admin, routes!(admin::resume))
        .add(Access::Admin, routes!(admin::health))
        .add(Access::Admin, routes!(admin::startup_log))
        .add(Access::Viewer, routes!(server::doctor))
        .add(Access::Viewer, routes!(server::server))
        .add(Access::Admin, routes!(server::shutdown))
        .add(Access::Admin, routes!(tokens::tokens))
        .add(Access::Admin, routes!(tokens::create_token))
        .add(Access::Admin, routes!(tokens::revoke_token))
        // Who may look may come in; each tool says what it asks beyond that.
        .add(Access::Viewer, routes!(mcp::mcp))
        .finish();
    let document = document.to_json().unwrap_or_default();
    let _ = app.document.set(Bytes::from(document));
    let lost = Arc::new(app.metrics.doors.route("(none)", ""));
    let misses = lost.clone();
    // Each layer is a box more on the way of every request, so there is only this one beside the entrance of each route.
    router
        .fallback(async move |uri: Uri| no_route(&lost, &uri))
        .method_not_allowed_fallback(async move |method: Method, uri: Uri| no_method(&misses, &method, &uri))
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| {
            Fault::internal("a request made the server stumble; its log says where").into_response()
        }))
        .with_state(app)
}

fn no_route(lost: &RouteMeter, uri: &Uri) -> Response {
    lost.answered(404);
    let path: String = uri.path().chars().take(200).collect();
    Fault::not_found(
        format!("there is nothing at {path}"),
        "the API is under /api/v1; GET /api/docs lists every route",
    )
    .into_response()
}

fn no_method(lost: &RouteMeter, method: &Method, uri: &Uri) -> Response {
    lost.answered(405);
    let path: String = uri.path().chars().take(200).collect();
    Fault::method(format!("{method} is not possible at {path}")).into_response()
}
