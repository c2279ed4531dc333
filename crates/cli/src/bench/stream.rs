//! How soon an event is told on a live stream, and how long an answer takes at a steady rate: each with the built
//! binary as a server of its own, over loopback.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::routing::get;
use axum::{Json, Router};
use parhelia_core::access::NewToken;
use parhelia_core::api::HeartbeatBatch;
use parhelia_store::Store;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::server::Child;
use super::store::{id, intent, moment, sample};
use super::{Ground, Row, millis, percentile, stopwatch};

/// The steady rate: one request in each of these.
const PACE: Duration = Duration::from_millis(1);
const FLEET: u64 = 100;

pub(super) async fn measure(ground: &Ground, quick: bool) -> Result<Vec<Row>, String> {
    let home = ground.dir.join("stream");
    std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
    let store = Store::open_sqlite(&home.join("parhelia.sqlite3")).map_err(|e| e.to_string())?;
    for n in 0..FLEET {
        store.register(intent(n, "bench"), vec![], moment()).await.map_err(|e| e.to_string())?;
    }
    store.close().await.map_err(|e| e.to_string())?;
    let mut server = Child::start(&home, &["--listen", "127.0.0.1:0"]).await?;
    let (address, token) = server.tcp().await?;
    let mut rows = stream_rows(&address, &token, if quick { 50 } else { 1000 }).await?;
    rows.extend(steady_rows(&address, &token, if quick { 500 } else { 5000 }).await?);
    Ok(rows)
}

fn beside(name: &str, measured: f64, limit: f64, limit_is: &'static str) -> Row {
    Row { limit: Some(limit), limit_is, ..Row::plain(name, measured, "ms") }
}

/// Each event is caused by a request. Its durable answer is the limit: the commit is on the way of both, and more
/// often than not the stream is the first to tell of it.
async fn stream_rows(address: &str, token: &str, count: usize) -> Result<Vec<Row>, String> {
    let (heard, mut hears) = mpsc::channel(1024);
    let listening = tokio::spawn(listen(address.to_owned(), token.to_owned(), heard));
    // The first message is that the stream is open.
    hears.recv().await.ok_or("the stream did not open")?;
    let client = reqwest::Client::new();
    let url = format!("http://{address}/api/v1/tokens");
    let (mut answers, mut events) = (vec![], vec![]);
    for _ in 0..count {
        let began = stopwatch();
        let request = client.post(&url).bearer_auth(token).header("content-type", "application/json");
        let answer = request.body(r#"{"subject":"bench","role":"viewer"}"#).send().await;
        let answer = answer.and_then(|a| a.error_for_status()).map_err(|e| e.to_string())?;
        answers.push(millis(began));
        let made: NewToken = answer.json().await.map_err(|e| e.to_string())?;
        loop {
            let (text, at) = hears.recv().await.ok_or("the stream ended")?;
            if text.contains(made.token.id.as_str()) {
                events.push(at.saturating_duration_since(began).as_secs_f64() * 1000.0);
                break;
            }
        }
    }
    listening.abort();
    let limit_is = "its own durable answer";
    let mut row = |name: &str, share: f64| {
        beside(name, percentile(&mut events, share), percentile(&mut answers, share), limit_is)
    };
    Ok(vec![
        row("event → SSE from the request that causes it, p50", 0.5),
        row("event → SSE from the request that causes it, p99", 0.99),
    ])
}

/// Whole blocks of the stream, with the moment at which each was there.
async fn listen(
    address: String,
    token: String,
    heard: mpsc::Sender<(String, Instant)>,
) -> Result<(), String> {
    let url = format!("http://{address}/api/v1/events/stream");
    let request = reqwest::Client::new().get(url).bearer_auth(token);
    let mut answer = request.send().await.map_err(|e| e.to_string())?;
    let mut waiting = String::new();
    while let Some(piece) = answer.chunk().await.map_err(|e| e.to_string())? {
        let at = stopwatch();
        waiting.push_str(&String::from_utf8_lossy(&piece));
        while let Some((block, rest)) = waiting.split_once("\n\n") {
            let block = block.to_owned();
            waiting = rest.to_owned();
            heard.send((block, at)).await.map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

async fn steady_rows(address: &str, token: &str, count: usize) -> Result<Vec<Row>, String> {
    let bare = TcpListener::bind("127.0.0.1:0").await.map_err(|e| e.to_string())?;
    let bare_address = bare.local_addr().map_err(|e| e.to_string())?;
    let app = Router::new().route("/", get(|| async { Json(serde_json::json!({ "state": "running" })) }));
    let serving = tokio::spawn(async move { axum::serve(bare, app).await });
    let client = reqwest::Client::new();
    let auth = |request: reqwest::RequestBuilder| request.bearer_auth(token);
    let of_nothing = client.get(format!("http://{bare_address}/"));
    let reading = auth(client.get(format!("http://{address}/api/v1/containers/{}", id(7))));
    let body =
        serde_json::to_vec(&HeartbeatBatch { heartbeats: vec![sample(7)] }).map_err(|e| e.to_string())?;
    let writing = auth(client.post(format!("http://{address}/api/v1/heartbeats")))
        .header("content-type", "application/json")
        .body(body);
    let limit = steady(of_nothing, count).await?;
    let read = steady(reading, count).await?;
    let written = steady(writing, count).await?;
    serving.abort();
    let bare = "a handler that only answers";
    Ok(vec![
        beside("HTTP p99 at a steady 1,000/s, one container", read, limit, bare),
        beside("HTTP p99 at a steady 1,000/s, durable heartbeats", written, limit, bare),
    ])
}

/// The p99 of answers to requests at a fixed rate, however long they take: counted from when each was due.
async fn steady(request: reqwest::RequestBuilder, count: usize) -> Result<f64, String> {
    let request = Arc::new(request);
    let mut answers = JoinSet::new();
    let mut pace = tokio::time::interval(PACE);
    let began = stopwatch();
    for n in 0..count {
        pace.tick().await;
        let request = request.try_clone().ok_or("a request that cannot be repeated")?;
        let due = began + PACE * n as u32;
        answers.spawn(async move {
            let answer =
                request.send().await.and_then(|a| a.error_for_status()).map_err(|e| e.to_string())?;
            answer.bytes().await.map_err(|e| e.to_string())?;
            Ok::<f64, String>(millis(due))
        });
    }
    let mut took = Vec::with_capacity(count);
    while let Some(answer) = answers.join_next().await {
        took.push(answer.map_err(|e| e.to_string())??);
    }
    Ok(percentile(&mut took, 0.99))
}
