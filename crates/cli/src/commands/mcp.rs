//! `parhelia mcp`: the server's own MCP door on standard input and output. A bridge: it passes messages on and
//! understands no more of them than HTTP needs, so a new tool changes nothing here, and neither side can disagree.
//! The door keeps nothing between two messages, so a server that restarts, or leaves when idle and is started
//! again by the next message, is not noticed.

use std::cell::RefCell;
use std::rc::Rc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, LocalSet};

use crate::client::Client;
use crate::context::Context;
use crate::error::{CliError, Result};

/// The longest message. The server may take less, and then says so.
const LINE_BYTES: u64 = 64 << 20;
/// Questions under way at once; the next one waits unread.
const AT_ONCE: usize = 16;
const SERVER_ERROR: i64 = -32000;
const PARSE_ERROR: i64 = -32700;

/// Runs until its input ends; what was asked before that is still answered.
pub(super) async fn run(ctx: &Context) -> Result<()> {
    let bridge = Rc::new(Bridge { client: ctx.client()?, version: RefCell::default() });
    LocalSet::new().run_until(serve(bridge)).await
}

async fn serve(bridge: Rc<Bridge>) -> Result<()> {
    let (answers, written) = mpsc::channel(AT_ONCE);
    let writer = tokio::spawn(write(written));
    let mut input = BufReader::new(tokio::io::stdin());
    let mut under_way = JoinSet::new();
    let mut line = Vec::new();
    while !writer.is_finished() {
        line.clear();
        let read = (&mut input).take(LINE_BYTES).read_until(b'\n', &mut line).await;
        if read.map_err(|e| CliError::io("cannot read the standard input", &e))? == 0 {
            break;
        }
        if line.len() as u64 == LINE_BYTES {
            return Err(CliError::usage(format!("a message is longer than {LINE_BYTES} bytes")));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        while under_way.len() >= AT_ONCE {
            under_way.join_next().await;
        }
        let (bridge, answers, message) = (bridge.clone(), answers.clone(), line.trim_ascii().to_vec());
        under_way.spawn_local(async move {
            if let Some(answer) = bridge.pass(message).await {
                // Nobody reads any more: the loop ends by itself.
                let _ = answers.send(answer).await;
            }
        });
    }
    while under_way.join_next().await.is_some() {}
    drop(answers);
    writer.await.map_err(|e| CliError::failure("mcp", e.to_string()))?
}

/// One message a line, whole.
async fn write(mut answers: mpsc::Receiver<Vec<u8>>) -> Result<()> {
    let mut output = tokio::io::stdout();
    while let Some(mut answer) = answers.recv().await {
        // JSON has no line breaks of its own outside of strings, where they are escaped.
        answer.retain(|byte| !matches!(byte, b'\n' | b'\r'));
        answer.push(b'\n');
        output.write_all(&answer).await.map_err(CliError::output)?;
        output.flush().await.map_err(CliError::output)?;
    }
    Ok(())
}

struct Bridge {
    client: Client,
    /// What `initialize` agreed on; later messages name it.
    version: RefCell<Option<String>>,
}

impl Bridge {
    /// The answer to a message, if it gets one.
    async fn pass(&self, line: Vec<u8>) -> Option<Vec<u8>> {
        let message: Value = match serde_json::from_slice(&line) {
            Ok(message) => message,
            Err(e) => {
                let error = CliError::usage(format!("not JSON: {e}")).fix("send one JSON-RPC message a line");
                return Some(failure(&Value::Null, PARSE_ERROR, &error));
            }
        };
        let id = message.get("id").cloned();
        match self.ask(&message, line).await {
            Ok(answer) if answer.is_empty() => None,
            Ok(answer) => {
                if message["method"] == "initialize" {
                    self.agree(&answer);
                }
                Some(answer)
            }
            // A notification has nobody to tell.
            Err(error) => match id {
                Some(id) => Some(failure(&id, SERVER_ERROR, &error)),
                None => {
                    tracing::warn!(code = error.code, "a notification was not passed on: {}", error.message);
                    None
                }
            },
        }
    }

    async fn ask(&self, message: &Value, line: Vec<u8>) -> Result<Vec<u8>> {
        let agreed = self.version.borrow().clone();
        let headers = headers(message, agreed.as_deref());
        // A call may do something: it is sent twice only when it was certainly not heard the first time.
        let twice = message["method"] != "tools/call";
        self.client.mcp(headers, line, twice).await
    }

    fn agree(&self, answer: &[u8]) {
        let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
        let version = answer["result"]["protocolVersion"].as_str().map(str::to_owned);
        self.version.replace(version);
    }
}

/// What the protocol says in headers over HTTP, from the message itself.
fn headers(message: &Value, agreed: Option<&str>) -> HeaderMap {
    let params = &message["params"];
    let method = message["method"].as_str();
    let own = params["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str();
    let version = own.or(agreed.filter(|_| method != Some("initialize")));
    let name = match method {
        Some("tools/call" | "prompts/get") => params["name"].as_str(),
        Some("resources/read" | "resources/subscribe" | "resources/unsubscribe") => params["uri"].as_str(),
        Some("tasks/get" | "tasks/update" | "tasks/cancel") => params["taskId"].as_str(),
        _ => None,
    };
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    let all = [("mcp-protocol-version", version), ("mcp-method", method), ("mcp-name", name)];
    for (header, value) in all {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(&encoded(value)).ok()) {
            headers.insert(HeaderName::from_static(header), value);
        }
    }
    headers
}

/// A header holds plain characters; the protocol wraps all others.
fn encoded(value: &str) -> String {
    let plain = value.bytes().all(|b| (0x20..0x7f).contains(&b)) && value.trim() == value;
    if plain && !value.starts_with("=?base64?") {
        return value.to_owned();
    }
    format!("=?base64?{}?=", BASE64_STANDARD.encode(value))
}

fn failure(id: &Value, code: i64, error: &CliError) -> Vec<u8> {
    let message = match error.fix.as_str() {
        "" => error.message.clone(),
        fix => format!("{}. What to do: {fix}", error.message),
    };
    let data = json!({ "code": error.code, "message": error.message, "fix": error.fix });
    let error = json!({ "code": code, "message": message, "data": data });
    json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(message: Value, agreed: Option<&str>) -> Vec<(String, String)> {
        let headers = headers(&message, agreed);
        let text = |name: &str| headers.get(name).map(|v| v.to_str().unwrap().to_owned());
        ["mcp-protocol-version", "mcp-method", "mcp-name"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), text(name)?)))
            .collect()
    }

    #[test]
    fn headers_say_what_the_message_says() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let call = json!({"method": "tools/call", "params": {"name": "parhelia_health"}});
        assert_eq!(
            of(call, Some("2025-06-18")),
            [
                pair("mcp-protocol-version", "2025-06-18"),
                pair("mcp-method", "tools/call"),
                pair("mcp-name", "parhelia_health")
            ]
        );
        let first = json!({"method": "initialize", "params": {"protocolVersion": "2025-06-18"}});
        assert_eq!(of(first, Some("2024-11-05")), [pair("mcp-method", "initialize")]);
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
        let read = json!({"method": "resources/read", "params": {"uri": "parhelia://ü", "_meta": meta}});
        assert_eq!(
            of(read, None),
            [
                pair("mcp-protocol-version", "2026-07-28"),
                pair("mcp-method", "resources/read"),
                pair("mcp-name", "=?base64?cGFyaGVsaWE6Ly/DvA==?=")
            ]
        );
        assert_eq!(of(json!([]), None), []);
    }

    #[test]
    fn a_failure_keeps_the_id_and_says_what_to_do() {
        let error = CliError::failure("no_server", "nobody answers").fix("run 'parhelia up'");
        let said: Value = serde_json::from_slice(&failure(&json!("a"), SERVER_ERROR, &error)).unwrap();
        assert_eq!(said["id"], "a");
        assert_eq!(said["error"]["message"], "nobody answers. What to do: run 'parhelia up'");
        assert_eq!(said["error"]["data"]["code"], "no_server");
    }
}
