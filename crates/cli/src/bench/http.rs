//! Heartbeats over HTTP with durable acknowledgement, beside a handler that only parses the same JSON.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::routing::post;
use axum::{Json, Router};
use parhelia_core::api::{HeartbeatBatch, HeartbeatReceipt};
use parhelia_store::Store;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;

use super::server::{cpu_seconds, proc_name};
use super::store::{intent, moment, sample};
use super::{Ground, Row, median, stopwatch};

/// A commit to the disk is shared by all who wait for it, so the share rises with them until the processors are busy: with
/// 256 they still wait for the disk at times, and on a machine that others use the share changes from run to run.
const FEW: u64 = 64;
const SOME: u64 = 256;
const MANY: u64 = 512;
const FLEET: u64 = 1000;

pub(super) async fn measure(ground: &Ground) -> Result<Vec<Row>, String> {
    let home = ground.dir.join("http");
    std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
    // One subject, and far faster than any that should be let in.
    std::fs::write(home.join("parhelia.toml"), "[server]\nmax_requests_per_second = 1000000\n")
        .map_err(|e| e.to_string())?;
    let store = Store::open_sqlite(&home.join("parhelia.sqlite3")).map_err(|e| e.to_string())?;
    for n in 0..FLEET {
        store.register(intent(n, "bench"), vec![], moment()).await.map_err(|e| e.to_string())?;
    }
    store.close().await.map_err(|e| e.to_string())?;
    let mut server = super::server::Child::start(&home, &["--listen", "127.0.0.1:0"]).await?;
    let (address, token) = server.tcp().await?;

    let (parser, parser_address) = Parser::start().await?;

    let mut rows = vec![];
    for clients in [MANY, SOME, FEW] {
        let (mut parsed, mut durable, mut synced) = (vec![], vec![], vec![]);
        let (mut parsing, mut serving, mut writing) = (vec![], vec![], vec![]);
        for _ in 0..ground.rounds {
            // The load goes on for about one span.
            let requests = |rate: f64| (rate * ground.span.as_secs_f64()).max(1.0);
            let micros = |before: f64, after: f64, rate: f64| (after - before) * 1e6 / requests(rate);
            let before = parser.cpu_seconds();
            let rate = load(&parser_address, &token, ground, clients, 1).await?;
            parsing.push(micros(before, parser.cpu_seconds(), rate));
            parsed.push(rate);
            let (bytes, cpu, writer) =
                (server.written_bytes(), server.cpu_seconds(), server.writer_cpu_seconds());
            let rate = load(&address, &token, ground, clients, 1).await?;
            serving.push(micros(cpu, server.cpu_seconds(), rate));
            writing.push(micros(writer, server.writer_cpu_seconds(), rate));
            let each = (server.written_bytes() - bytes) / requests(rate);
            durable.push(rate);
            synced.push((each, disk_alone(&ground.dir, ground, clients, each).map_err(|e| e.to_string())?));
        }
        let each = median(synced.iter().map(|(each, _)| *each).collect());
        let disk = median(synced.iter().map(|(_, rate)| *rate).collect());
        let reason = format!(
            "the disk alone, {each:.0} bytes each and {clients} to a sync, allows {disk:.0} /s; of the processors \
             each takes {:.0} µs in the server, {:.0} of them in the thread that writes, and {:.0} µs where it is only parsed",
            median(serving),
            median(writing),
            median(parsing)
        );
        let name = format!("heartbeats over HTTP, one per request, {clients} clients");
        let limit = (median(parsed), "a handler that only parses");
        rows.push(match clients {
            MANY | SOME => Row::share(&name, median(durable), "/s", limit.0, limit.1, 0.6).because(reason),
            _ => Row::beside(&name, median(durable), "/s", limit.0, limit.1).because(reason),
        });
    }
    let (mut parsed, mut durable) = (vec![], vec![]);
    for _ in 0..ground.rounds {
        parsed.push(load(&parser_address, &token, ground, FEW, 100).await?);
        durable.push(load(&address, &token, ground, FEW, 100).await?);
    }
    let name = format!("heartbeats over HTTP, 100 per request, {FEW} clients");
    rows.push(Row::beside(&name, median(durable), "/s", median(parsed), "a handler that only parses"));
    Ok(rows)
}

/// How many a second the disk would take if nothing else cost anything: as many bytes as the server wrote for
/// each, appended and synced for all clients together.
fn disk_alone(dir: &Path, ground: &Ground, clients: u64, each: f64) -> std::io::Result<f64> {
    let mut file = File::create(dir.join("disk-alone"))?;
    let block = vec![7_u8; (each * clients as f64) as usize];
    let (began, mut done) = (stopwatch(), 0_u64);
    while began.elapsed() < ground.span {
        file.write_all(&block)?;
        file.sync_data()?;
        done += clients;
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

/// The limit: a server process like ours, on the same runtime, whose handler only parses the same JSON.
struct Parser {
    /// Ended with this.
    process: tokio::process::Child,
}

impl Parser {
    async fn start() -> Result<(Self, String), String> {
        let mut command = tokio::process::Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
        command.args(["bench", "--parse-only"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.kill_on_drop(true).spawn().map_err(|e| e.to_string())?;
        let output = process.stdout.take().ok_or("the handler that only parses has no output")?;
        let line = BufReader::new(output).lines().next_line().await.map_err(|e| e.to_string())?;
        let address = line.ok_or("the handler that only parses did not start")?;
        Ok((Self { process }, address))
    }

    fn cpu_seconds(&self) -> f64 {
        cpu_seconds(Path::new("/proc").join(proc_name(&self.process)))
    }
}

/// Says its address and serves until its standard input ends.
pub(super) async fn parse_only() -> Result<(), String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|e| e.to_string())?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    writeln!(std::io::stdout(), "{address}").map_err(|e| e.to_string())?;
    let parse = |Json(batch): Json<HeartbeatBatch>| async move {
        Json(HeartbeatReceipt { accepted: batch.heartbeats.len(), rejected: vec![] })
    };
    let app = Router::new().route("/api/v1/heartbeats", post(parse));
    // Whoever wanted it holds its standard input, and lets go of it by any kind of end.
    let let_go = async {
        drop(tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0])).await);
    };
    let serving = axum::serve(listener, app).with_graceful_shutdown(let_go);
    serving.await.map_err(|e| e.to_string())
}

async fn load(
    address: &str,
    token: &str,
    ground: &Ground,
    clients: u64,
    per_request: u64,
) -> Result<f64, String> {
    let client = reqwest::Client::builder()
        .pool_max_idle_per_host(clients as usize)
        .build()
        .map_err(|e| e.to_string())?;
    let counted = Arc::new(AtomicU64::new(0));
    let (began, span) = (stopwatch(), ground.span);
    let url = format!("http://{address}/api/v1/heartbeats");
    let tasks: Vec<_> = (0..clients)
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
