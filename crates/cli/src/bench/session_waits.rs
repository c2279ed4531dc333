//! How soon sessions do what they are told: begin, go on after a signal, end with everything that they started; and what
//! a server needs for those that only wait.

use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use parhelia_core::session::api::{SessionDetail, SessionList};
use parhelia_core::session::{Session, SessionStatus};
use serde_json::{Value, json};

use super::server::memory_mb;
use super::sessions::Api;
use super::{Row, millis, percentile, stopwatch};

/// How closely it is looked.
const LOOK: Duration = Duration::from_millis(1);

pub(super) async fn measure(api: &Api, quick: bool) -> Result<Vec<Row>, String> {
    let rounds = if quick { 2 } else { 50 };
    let mut rows = Vec::new();
    let mut add = |what: &str, mut waits: Vec<f64>, most: f64| {
        for (word, share) in [("p50", 0.5), ("p99", 0.99)] {
            let name = format!("{what}, {word}");
            let figure = percentile(&mut waits, share);
            rows.push(match most {
                0.0 => Row::plain(&name, figure, "ms"),
                most => Row::below(&name, figure, "ms", most),
            });
        }
    };
    add("session started to its first phase running", starts(api, rounds).await?, 0.0);
    add("signal to running again", signals(api, rounds).await?, 50.0);
    let meek = "sleep 600 & sleep 600 & wait";
    add("cancel to every process gone", cancels(api, rounds, meek, 10).await?, 1000.0);
    let stubborn = "trap '' TERM; sleep 600 & sleep 600 & wait; wait";
    let rounds = rounds.div_ceil(5);
    add(
        "the same, children that ignore SIGTERM, grace 1 s",
        cancels(api, rounds, stubborn, 1).await?,
        2000.0,
    );
    Ok(rows)
}

/// Looks until it is as wanted.
async fn until(
    api: &Api,
    id: &str,
    what: &str,
    wanted: impl Fn(&SessionDetail) -> bool,
) -> Result<(), String> {
    let began = stopwatch();
    while began.elapsed() < Duration::from_secs(60) {
        let detail = api.session(id).await?;
        if wanted(&detail) {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
    Err(format!("session {id} did not come to {what} in a minute"))
}

async fn starts(api: &Api, rounds: usize) -> Result<Vec<f64>, String> {
    let phases = [json!({ "name": "wait", "await": { "signal": "never" } })];
    let mut waits = Vec::new();
    for _ in 0..rounds {
        let began = stopwatch();
        let session = api.begin("starts", &phases).await?;
        let id = session.session_id.as_str();
        until(api, id, "begin", |s| s.phases.iter().any(|phase| phase.row.is_some())).await?;
        waits.push(millis(began));
        let _: Session = api.post(&format!("/api/v1/sessions/{id}/cancel"), &json!({})).await?;
    }
    Ok(waits)
}

async fn signals(api: &Api, rounds: usize) -> Result<Vec<f64>, String> {
    let phases: Vec<Value> = (0..rounds)
        .flat_map(|n| {
            [
                json!({ "name": format!("wait{n}"), "await": { "signal": format!("go{n}") } }),
                json!({ "name": format!("run{n}"), "run": ["true"] }),
            ]
        })
        .collect();
    let session = api.begin("signals", &phases).await?;
    let id = session.session_id.as_str();
    let mut waits = Vec::new();
    for n in 0..rounds {
        let name = format!("go{n}");
        until(api, id, "wait", |s| s.view.session.blocked_on.as_deref() == Some(&name)).await?;
        let began = stopwatch();
        let fire = json!({ "name": name, "session": id });
        let _: Value = api.post("/api/v1/signals", &fire).await?;
        until(api, id, "go on", |s| s.view.session.status != SessionStatus::Blocked).await?;
        waits.push(millis(began));
    }
    Ok(waits)
}

/// Until it says `cancelled`, which it says when everything is confirmed gone.
async fn cancels(api: &Api, rounds: usize, script: &str, grace_seconds: i64) -> Result<Vec<f64>, String> {
    let phases = [json!({ "name": "work", "run": ["sh", "-c", script] })];
    let mut waits = Vec::new();
    for _ in 0..rounds {
        let session = api.begin("cancels", &phases).await?;
        let id = session.session_id.as_str();
        let children = || processes_of(id);
        let began = stopwatch();
        // The shell and its two children.
        while children() < 3 {
            if began.elapsed() > Duration::from_secs(60) {
                return Err(format!("the processes of {id} did not start in a minute"));
            }
            tokio::time::sleep(LOOK).await;
        }
        let began = stopwatch();
        let cancel = json!({ "grace_seconds": grace_seconds, "reason": "measuring" });
        let _: Session = api.post(&format!("/api/v1/sessions/{id}/cancel"), &cancel).await?;
        until(api, id, "an end", |s| s.view.session.status == SessionStatus::Cancelled).await?;
        waits.push(millis(began));
        if children() > 0 {
            return Err(format!("session {id} is called cancelled, and something of it lives"));
        }
    }
    Ok(waits)
}

/// Live processes that run for a session, as the kernel shows them.
fn processes_of(session: &str) -> usize {
    let mark = format!("PARHELIA_SESSION_ID={session}");
    let Ok(all) = std::fs::read_dir("/proc") else { return 0 };
    all.flatten()
        .filter(|entry| {
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        })
        .count()
}

/// Resident memory of a server with sessions that only wait.
pub(super) async fn resident(home: &Path, quick: bool) -> Result<Row, String> {
    let count: usize = if quick { 100 } else { 10_000 };
    let api = Api::start(home, "").await?;
    let phases = [json!({ "name": "wait", "await": { "signal": "never" } })];
    let begun = futures::stream::iter(0..count).map(|_| api.begin("blocked", &phases)).buffer_unordered(64);
    for session in begun.collect::<Vec<_>>().await {
        session?;
    }
    let began = stopwatch();
    loop {
        let list: SessionList = api.get("/api/v1/sessions?status=blocked&limit=1").await?;
        if list.totals.by_status.get("blocked").copied().unwrap_or(0) == count as i64 {
            break;
        }
        if began.elapsed() > Duration::from_secs(120) {
            return Err(format!("not all of {count} sessions were blocked in two minutes"));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let resident = memory_mb(&api.server.proc_name(), "VmRSS");
    Ok(Row::plain(&format!("server with {count} blocked sessions, resident memory"), resident, "MB"))
}
