//! Heartbeats over HTTP with durable acknowledgement, beside a handler that only parses the same JSON.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::routing::post;
use axum::{Json, Router};
use parhelia_core::api::HeartbeatBatch;
use parhelia_store::Store;
use tokio::net::TcpListener;

use super::store::{intent, moment, sample};
use super::{Ground, Row, median, stopwatch};

const CLIENTS: u64 = 64;
const FLEET: u64 = 1000;

pub(super) async fn measure(ground: &Ground) -> Result<Vec<Row>, String> {
    let home = ground.dir.join("http");
    std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
    let store = Store::open_sqlite(&home.join("parhelia.sqlite3")).map_err(|e| e.to_string())?;
    for n in 0..FLEET {
        store.register(intent(n, "bench"), vec![], moment()).await.map_err(|e| e.to_string())?;
    }
    store.close().await.map_err(|e| e.to_string())?;
    let mut server = super::server::Child::start(&home, &["--listen", "127.0.0.1:0"]).await?;
    let (address, token) = server.tcp().await?;

    let parser = TcpListener::bind("127.0.0.1:0").await.map_err(|e| e.to_string())?;
    let parser_address = parser.local_addr().map_err(|e| e.to_string())?.to_string();
    let app = Router::new().route(
        "/api/v1/heartbeats",
        post(|Json(batch): Json<HeartbeatBatch>| async move {
            format!("{{\"accepted\":{},\"rejected\":[]}}", batch.heartbeats.len())
        }),
    );
    let parsing = tokio::spawn(async move { axum::serve(parser, app).await });

    let (mut parsed, mut durable, mut batched) = (vec![], vec![], vec![]);
    for _ in 0..ground.rounds {
        parsed.push(load(&parser_address, &token, ground, 1).await?);
        durable.push(load(&address, &token, ground, 1).await?);
        batched.push(load(&address, &token, ground, 100).await?);
    }
    parsing.abort();
    Ok(vec![
        Row::share(
            "heartbeats over HTTP, one per request, 64 clients",
            median(durable),
            "/s",
            median(parsed),
            "a handler that only parses",
            0.6,
        ),
        Row::plain("heartbeats over HTTP, 100 per request, 64 clients", median(batched), "/s"),
    ])
}

async fn load(address: &str, token: &str, ground: &Ground, per_request: u64) -> Result<f64, String> {
    let client = reqwest::Client::builder()
        .pool_max_idle_per_host(CLIENTS as usize)
        .build()
        .map_err(|e| e.to_string())?;
    let counted = Arc::new(AtomicU64::new(0));
    let (began, span) = (stopwatch(), ground.span);
    let url = format!("http://{address}/api/v1/heartbeats");
    let tasks: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let (client, counted, url, token) =
                (client.clone(), counted.clone(), url.clone(), token.to_owned());
            let heartbeats = (0..per_request).map(|i| sample((n * 13 + i) % FLEET)).collect();
            tokio::spawn(async move {
                let body = serde_json::to_vec(&HeartbeatBatch { heartbeats }).map_err(|e| e.to_string())?;
                while began.elapsed() < span {
                    let request = client
                        .post(&url)
                        .bearer_auth(&token)
                        .header("content-type", "application/json")
                        .body(body.clone());
                    let answer = request.send().await.map_err(|e| e.to_string())?;
                    if !answer.status().is_success() {
                        return Err(format!("the server answered {}", answer.status()));
                    }
                    answer.bytes().await.map_err(|e| e.to_string())?;
                    counted.fetch_add(per_request, Ordering::Relaxed);
                }
                Ok::<(), String>(())
            })
        })
        .collect();
    for task in tasks {
        task.await.map_err(|e| e.to_string())??;
    }
    Ok(counted.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64())
}
