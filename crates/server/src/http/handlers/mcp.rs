//! The door for agents, as a route like any other: its guard, its limits and its place in the document are those of
//! every route. What is said through it is in `crate::mcp`.

use axum::Extension;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use parhelia_core::api::Problem;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{App, Fault, Who, whole_body};
use crate::http::Door;
use crate::mcp;
use crate::service::Refusal;

/// A request or a notification of JSON-RPC 2.0. Its methods are those of the Model Context Protocol.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "only its shape is looked at here; the SDK reads what it says")]
pub(in crate::http) struct McpMessage {
    jsonrpc: McpVersion,
    /// A notification has none, and gets no answer.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    id: Option<McpId>,
    method: String,
    #[schema(value_type = Option<Object>)]
    params: Option<serde_json::Map<String, Value>>,
}

#[derive(Debug, Deserialize, ToSchema)]
enum McpVersion {
    #[serde(rename = "2.0")]
    Two,
}

#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
enum McpId {
    Number(i64),
    Text(String),
}

/// A request whose id is `null` is neither a request nor a notification.
fn not_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// The Model Context Protocol (streamable HTTP). Each request stands for itself: there are no sessions.
#[utoipa::path(
    post, path = "/mcp", tag = "mcp",
    request_body(content = McpMessage, content_type = "application/json"),
    responses(
        (status = 200, body = inline(Object), content_type = "application/json", description = "The answer, or a JSON-RPC error"),
        (status = 202, description = "A notification was taken"),
        (status = 400, description = "Not a message of this protocol", content(
            (inline(Object) = "application/json"), (Problem = "application/problem+json"),
        )),
        (status = 404, description = "No such method", content(
            (inline(Object) = "application/json"), (Problem = "application/problem+json"),
        )),
    ),
)]
pub(in crate::http) async fn mcp(
    State(app): State<App>,
    Extension(who): Who,
    Extension(door): Extension<Door>,
    request: Request,
) -> Result<Response, Fault> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    if !kind.to_ascii_lowercase().starts_with("application/json") {
        return Err(Fault::media_type());
    }
    let (mut parts, body) = request.into_parts();
    let bytes = whole_body(Request::from_parts(parts.clone(), body)).await?;
    if let Err((code, why)) = check(&bytes) {
        return Ok(unreadable(&bytes, code, &why));
    }
    // Every answer is one JSON document, so whoever takes JSON is served, streams or not.
    parts.headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    let request = Request::from_parts(parts, Body::from(bytes));
    let answer = mcp::answer(app.clone(), hosts(&app), request).await;
    match plain_error(answer).await {
        Ok(answer) => Ok(answer),
        Err(fault) => {
            if fault.is_refusal() {
                app.service.refused(Refusal {
                    reason: fault.detail().to_owned(),
                    subject: Some(who.subject),
                    role: Some(who.role),
                    method: "POST".to_owned(),
                    path: "/mcp".to_owned(),
                    from: door.to_string(),
                });
            }
            Err(fault)
        }
    }
}

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;

fn check(bytes: &Bytes) -> Result<(), (i64, String)> {
    match serde_json::from_slice::<McpMessage>(bytes) {
        // The SDK names what it does not know, and here that would say nothing.
        Ok(message) if message.method.is_empty() => {
            Err((INVALID_REQUEST, "not a JSON-RPC request: its method has no name".to_owned()))
        }
        Ok(_) => Ok(()),
        Err(e) if e.is_data() => Err((INVALID_REQUEST, format!("not a JSON-RPC request: {e}"))),
        Err(e) => Err((PARSE_ERROR, format!("not JSON: {e}"))),
    }
}

fn unreadable(bytes: &Bytes, code: i64, why: &str) -> Response {
    #[derive(Deserialize)]
    struct Numbered {
        id: McpId,
    }
    let id = serde_json::from_slice::<Numbered>(bytes).ok().map(|message| message.id);
    let fix = "send one JSON-RPC 2.0 request or notification: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}";
    let data = json!({ "code": "bad_request", "message": why, "fix": fix });
    let error =
        json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": why, "data": data } });
    (StatusCode::BAD_REQUEST, axum::Json(error)).into_response()
}

/// The names that this server answers to: others are of a page in a browser that was led here by a false name.
fn hosts(app: &App) -> Vec<String> {
    let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    let listen = app.info.listen.as_deref().and_then(|a| a.parse::<std::net::SocketAddr>().ok());
    hosts.extend(listen.map(|address| address.ip().to_string()));
    hosts.extend(app.service.config.server.allowed_hosts.iter().cloned());
    hosts
}

/// What the SDK says as plain text is said as at every other route.
async fn plain_error(answer: Response) -> Result<Response, Fault> {
    let status = answer.status();
    let is_json = answer
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .is_some_and(|kind| kind.starts_with("application/json"));
    if is_json || !(status.is_client_error() || status.is_server_error()) {
        return Ok(answer);
    }
    let bytes = to_bytes(answer.into_body(), 1 << 16).await.unwrap_or_default();
    let why = String::from_utf8_lossy(&bytes).into_owned();
    Err(match status {
        StatusCode::FORBIDDEN => Fault::foreign_host(why),
        status if status.is_server_error() => Fault::internal(why),
        _ => Fault::bad_request(why, "speak a version of the protocol that 'server/discover' lists"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_or_a_notification_passes() {
        let code = |text: &str| check(&Bytes::copy_from_slice(text.as_bytes())).err().map(|(code, _)| code);
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), None);
        assert_eq!(code(r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}"#), None);
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), Some(INVALID_REQUEST));
        assert_eq!(code(r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#), Some(INVALID_REQUEST));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#), Some(INVALID_REQUEST));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":null}"#), None);
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"method":""}"#), Some(INVALID_REQUEST));
        assert_eq!(code("[]"), Some(INVALID_REQUEST));
        assert_eq!(code("{"), Some(PARSE_ERROR));
        assert_eq!(code(""), Some(PARSE_ERROR));
    }
}
