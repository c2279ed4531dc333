//! The HTTP door. A handler parses, calls the service and renders; nothing else. Errors become
//! `application/problem+json` in `problem.rs` and nowhere else.

mod auth;
mod extract;
mod handlers;
mod problem;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, Uri};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use parhelia_core::api::ServerInfo;
use tokio::sync::Notify;
use tower_http::catch_panic::CatchPanicLayer;

pub use auth::{Door, TokenHash};
pub use problem::Fault;

use crate::service::Service;

/// What every handler sees.
#[derive(Debug, Clone)]
pub struct App {
    pub service: Arc<Service>,
    pub info: Arc<ServerInfo>,
    /// Rung by `POST /server/shutdown`.
    pub stop: Arc<Notify>,
}

/// All routes, behind one door: the unix socket trusts its file mode, TCP wants a bearer token.
pub fn router(app: App, door: Door, max_body_bytes: usize) -> Router {
    let v1 = Router::new()
        .route("/containers", get(handlers::containers).post(handlers::run))
        .route("/containers/stats", get(handlers::stats))
        .route("/containers/{id}", get(handlers::container))
        .route("/containers/{id}/events", get(handlers::container_events))
        .route("/containers/{id}/heartbeats", get(handlers::heartbeat_history).post(handlers::heartbeat))
        .route("/containers/{id}/logs", get(handlers::logs))
        .route("/containers/{id}/stop", post(handlers::stop))
        .route("/containers/{id}/terminate", post(handlers::terminate))
        .route("/heartbeats", post(handlers::heartbeats))
        .route("/events", get(handlers::events))
        .route("/cleanup", post(handlers::cleanup))
        .route("/reconciler", get(handlers::reconciler))
        .route("/reconciler/run", post(handlers::reconcile_now))
        .route("/instances", get(handlers::instances))
        .route("/instances/{id}/adopt", post(handlers::adopt))
        .route("/server", get(handlers::server))
        .route("/server/shutdown", post(handlers::shutdown))
        .layer(middleware::from_fn_with_state((app.clone(), door), auth::guard));
    Router::new()
        .route("/livez", get(handlers::livez))
        .route("/readyz", get(handlers::readyz))
        .nest("/api/v1", v1)
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(max_body_bytes))
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| {
            Fault::internal("a request made the server stumble; its log says where").into_response()
        }))
        .with_state(app)
}

/// What a container may reach through the socket that is mounted into it: heartbeats, and nothing else.
pub fn heartbeat_router(app: App, max_body_bytes: usize) -> Router {
    Router::new()
        .route("/api/v1/heartbeats", post(handlers::heartbeats))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(max_body_bytes))
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| {
            Fault::internal("a request made the server stumble; its log says where").into_response()
        }))
        .with_state(app)
}

async fn no_route(uri: Uri) -> Response {
    let path: String = uri.path().chars().take(200).collect();
    Fault::not_found(format!("there is nothing at {path}"), "the API is under /api/v1").into_response()
}

async fn no_method(method: Method, uri: Uri) -> Response {
    let path: String = uri.path().chars().take(200).collect();
    Fault::method(format!("{method} is not possible at {path}")).into_response()
}
