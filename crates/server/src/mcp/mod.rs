//! The door for agents: the Model Context Protocol. It has no use case of its own; a tool parses, calls the
//! service and renders. It keeps nothing between two requests: there are no sessions to bound, to end or to lose in
//! a restart, any server on the same database can answer, and each request shows its token anew. The standard
//! input of `parhelia mcp` is a bridge to this same door.

mod containers;
mod events;
mod health;
mod inbox;
mod resources;
mod run;
mod schema;
mod sessions;
mod signals;
mod text;
mod tool;
mod trouble;
mod wording;

use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorCode, ErrorData, Implementation,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;

use self::tool::{Asking, Entry};
use crate::http::{App, Door};
use crate::service::Caller;

/// Every tool. A new one is a file and a line here.
static TOOLS: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    vec![
        Entry::of::<containers::Containers>(),
        Entry::of::<health::Health>(),
        Entry::of::<events::Events>(),
        Entry::of::<run::Run>(),
        Entry::of::<sessions::Sessions>(),
        Entry::of::<inbox::InboxTool>(),
        Entry::of::<signals::Signals>(),
    ]
});

const INSTRUCTIONS: &str = "Parhelia knows what is really running, what it costs and whether it is alive. Begin with \
    parhelia_health; parhelia_containers lists, shows and ends containers; parhelia_events tells what happened. parhelia_run runs a cascade as a durable \
    session, parhelia_sessions shows how far sessions are and why they are not done, parhelia_inbox what waits for a \
    person, and parhelia_signals says something to whoever waits for it. Ids \
    may be shortened to a unique prefix. An error says what to do next.";

/// Answers one request, which has passed the guard and the limit of a body.
pub(crate) async fn answer(app: App, hosts: Vec<String>, request: Request) -> Response {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(usize::MAX)
        .with_allowed_hosts(hosts)
        // No page in a browser has business here.
        .enforce_origin_validation();
    let door = StreamableHttpService::new(
        move || Ok(Mcp { app: app.clone() }),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    door.handle(request).await.map(Body::new)
}

#[derive(Debug, Clone)]
struct Mcp {
    app: App,
}

impl Mcp {
    /// The guard has put the caller beside the request.
    fn asking(&self, context: &RequestContext<RoleServer>) -> Result<Asking, ErrorData> {
        let parts = context.extensions.get::<axum::http::request::Parts>();
        let caller = parts.and_then(|parts| parts.extensions.get::<Caller>()).cloned();
        let door = parts.and_then(|parts| parts.extensions.get::<Door>()).cloned();
        match (caller, door) {
            (Some(caller), Some(door)) => Ok(Asking { app: self.app.clone(), caller, door }),
            _ => Err(ErrorData::internal_error("nobody has said who asks", None)),
        }
    }
}

impl ServerHandler for Mcp {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("parhelia", parhelia_core::VERSION))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(TOOLS.iter().map(|tool| tool.definition.clone()).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let asking = self.asking(&context)?;
        let Some(tool) = TOOLS.iter().find(|tool| tool.definition.name == request.name) else {
            let known: Vec<&str> = TOOLS.iter().map(|tool| tool.definition.name.as_ref()).collect();
            let shown: String = request.name.chars().take(100).collect();
            let fix = format!("use one of: {}", known.join(", "));
            let data =
                json!({ "code": "not_found", "message": format!("there is no tool '{shown}'"), "fix": fix });
            let message = format!("there is no tool '{shown}'; {fix}");
            return Err(ErrorData::new(ErrorCode::INVALID_PARAMS, message, Some(data)));
        };
        Ok((tool.call)(asking, request.arguments.unwrap_or_default()).await.into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|r| r.cursor);
        Ok(resources::list(&self.asking(&context)?, cursor.as_deref()).await?)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(resources::read(&self.asking(&context)?, &request.uri).await?.into())
    }
}
