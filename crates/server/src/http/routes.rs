//! The one way to add a route: with what it asks of its caller. The OpenAPI document and the guard come from the
//! same line, so a route without a role, or one that the document does not know, cannot be written.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use parhelia_core::access::Access;
use parhelia_core::api::Problem;
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::path::{Operation, PathItem, Paths};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, ResponseBuilder,
};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use super::App;
use super::auth::{self, Gate};
use super::extract::Room;
use crate::metrics::RouteMeter;

/// In the document: what a route asks for.
pub const ACCESS: &str = "x-parhelia-access";

pub(super) struct Routes {
    app: App,
    gate: Gate,
    max_body_bytes: usize,
    router: OpenApiRouter<App>,
}

/// What stands before a route: it measures, lets in or turns away, and says how large a body may be.
struct Entrance {
    app: App,
    gate: Gate,
    access: Access,
    room: Room,
    meter: RouteMeter,
}

async fn enter(State(entrance): State<Arc<Entrance>>, request: Request, next: Next) -> Response {
    let Entrance { app, gate, access, room, meter } = entrance.as_ref();
    let answer = async {
        let (mut head, body) = request.into_parts();
        head.extensions.insert(*room);
        if *access != Access::Public
            && let Err(refusal) = auth::guard(app, gate, *access, &mut head).await
        {
            return *refusal;
        }
        next.run(Request::from_parts(head, body)).await
    };
    meter.measure(app.service.clock.as_ref(), answer).await
}

impl Routes {
    pub(super) fn new(app: App, gate: Gate, max_body_bytes: usize) -> Self {
        let info = InfoBuilder::new()
            .title("Parhelia")
            .version(parhelia_core::VERSION)
            .description(Some(
                "What is really running, what it costs and what it waits for. Every error is \
                 `application/problem+json` with a `code` for programs and a `fix` for people.",
            ))
            .build();
        let components = ComponentsBuilder::new()
            .security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)))
            .schema(Problem::name(), Problem::schema())
            .build();
        let document = OpenApiBuilder::new().info(info).components(Some(components)).build();
        Self { app, gate, max_body_bytes, router: OpenApiRouter::with_openapi(document) }
    }

    pub(super) fn add(self, access: Access, routes: UtoipaMethodRouter<App>) -> Self {
        let bytes = self.max_body_bytes;
        self.add_with_room(access, bytes, routes)
    }

    /// For what may be longer than other bodies.
    pub(super) fn add_with_room(
        mut self,
        access: Access,
        bytes: usize,
        routes: UtoipaMethodRouter<App>,
    ) -> Self {
        let (schemas, mut paths, handlers) = routes;
        let meter = self.meter(&paths);
        for (path, item) in &mut paths.paths {
            for operation in operations(item) {
                describe(operation, path, access);
            }
        }
        let (app, gate, room) = (self.app.clone(), self.gate.clone(), Room(bytes));
        let entrance = Arc::new(Entrance { app, gate, access, room, meter });
        let guarded = handlers.route_layer(middleware::from_fn_with_state(entrance, enter));
        self.router = self.router.routes((schemas, paths, guarded));
        self
    }

    /// `routes!` takes one handler at a time here, so there is one path and one method.
    fn meter(&self, paths: &Paths) -> RouteMeter {
        let (path, method) = paths.paths.iter().next().map_or(("", ""), |(path, item)| {
            let methods =
                [(&item.get, "GET"), (&item.post, "POST"), (&item.put, "PUT"), (&item.delete, "DELETE")];
            let method = methods.into_iter().find(|(operation, _)| operation.is_some());
            (path.as_str(), method.map_or("", |(_, name)| name))
        });
        self.app.metrics.doors.route(path, method)
    }

    pub(super) fn finish(self) -> (Router<App>, OpenApi) {
        self.router.split_for_parts()
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.post, &mut item.put, &mut item.delete, &mut item.patch].into_iter().flatten()
}

/// In the description of a body of which nothing is needed.
const OPTIONAL: &str = "may be left out";

/// What every operation has in common: who may call it, and the errors that come before its handler.
fn describe(operation: &mut Operation, path: &str, access: Access) {
    let mut extensions = operation.extensions.take().unwrap_or_default();
    extensions.merge(Extensions::from_iter([(ACCESS, access.as_str())]));
    operation.extensions = Some(extensions);
    let mut errors = Vec::new();
    if access != Access::Public {
        operation.security = Some(vec![SecurityRequirement::new::<_, [&str; 0], &str>("token", [])]);
        errors.extend([
            ("401", "No token, or one that does not hold"),
            ("403", "A token that does not reach this far"),
            ("429", "Too many requests; 'retry-after' says when to come again"),
            ("503", "The store cannot be reached; 'retry-after' says when to come again"),
        ]);
    }
    if operation.parameters.as_ref().is_some_and(|all| !all.is_empty()) {
        errors.push(("422", "A value that does not fit; the detail names it"));
    }
    if path.contains('{') {
        errors.extend([
            ("400", "A path that is not UTF-8, or a body that is not JSON"),
            ("404", "There is no such thing"),
            ("409", "The id is not unique, or it was changed by somebody else"),
        ]);
    }
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        // A bare POST is `{}` (see `Body`): the body is needed only where something in it is.
        if body.description.as_deref().is_some_and(|text| text.contains(OPTIONAL)) {
            body.required = Some(utoipa::openapi::Required::False);
        }
        errors.extend([
            ("400", "A body that is not JSON"),
            ("404", "It names something that does not exist"),
            ("408", "The body took too long to arrive"),
            ("409", "It was changed by somebody else at the same moment"),
            ("413", "Larger than this server takes"),
            ("415", "The content type is not JSON"),
            ("422", "A value that does not fit; the detail names it"),
        ]);
    }
    for (status, meaning) in errors {
        let known = &mut operation.responses.responses;
        known.entry(status.to_owned()).or_insert_with(|| RefOr::T(problem(meaning)));
    }
}

fn problem(meaning: &str) -> utoipa::openapi::Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build();
    ResponseBuilder::new().description(meaning).content("application/problem+json", content).build()
}
