//! Sessions through a whole server: how many phases a second it makes durable, with and without a process in each, for
//! one session and for a hundred at once; beside the same rows written in a bare loop, and bare processes.

use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use parhelia_core::Timestamp;
use parhelia_core::session::api::{SessionDetail, SessionList};
use parhelia_core::session::{Session, SessionStatus};
use serde_json::{Value, json};

use super::postgres::Place;
use super::server::Child;
use super::{Ground, Row, percentile, session_limits, session_waits};

/// What the issue of sessions asks of SQLite: one session, and a hundred.
const TARGETS: [(usize, f64); 2] = [(1, 2000.0), (100, 10_000.0)];
/// Whose phases are looked at one by one.
const LOOKED_AT: usize = 20;

/// A server to measure on, and one client for all questions.
pub(super) struct Api {
    pub(super) server: Child,
    client: reqwest::Client,
}

impl Api {
    pub(super) async fn start(home: &Path, config: &str) -> Result<Self, String> {
        std::fs::create_dir_all(home).map_err(|e| e.to_string())?;
        std::fs::write(home.join("parhelia.toml"), config).map_err(|e| e.to_string())?;
        let server = Child::start(home, &[]).await?;
        Ok(Self { client: server.client()?, server })
    }

    pub(super) async fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        let answer =
            self.client.get(format!("http://localhost{path}")).send().await.map_err(|e| e.to_string())?;
        answer.error_for_status().map_err(|e| e.to_string())?.json().await.map_err(|e| e.to_string())
    }

    pub(super) async fn post<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, String> {
        let request = self.client.post(format!("http://localhost{path}")).json(body);
        let answer = request.send().await.map_err(|e| e.to_string())?;
        let status = answer.status();
        if !status.is_success() {
            return Err(format!("{path}: {status}: {}", answer.text().await.unwrap_or_default()));
        }
        answer.json().await.map_err(|e| e.to_string())
    }

    /// Transactions that this server has made durable.
    async fn writes(&self) -> Result<f64, String> {
        let answer = self.client.get("http://localhost/metrics").send().await.map_err(|e| e.to_string())?;
        let text = answer.text().await.map_err(|e| e.to_string())?;
        let line = text.lines().find_map(|line| line.strip_prefix("parhelia_store_writes_total "));
        line.and_then(|figure| figure.trim().parse().ok()).ok_or_else(|| "no count of writes".to_owned())
    }

    pub(super) async fn begin(&self, cascade_id: &str, phases: &[Value]) -> Result<Session, String> {
        let cascade = json!({ "cascade": { "cascade_id": cascade_id, "phases": phases } });
        self.post("/api/v1/sessions", &cascade).await
    }

    pub(super) async fn session(&self, id: &str) -> Result<SessionDetail, String> {
        self.get(&format!("/api/v1/sessions/{id}")).await
    }
}

pub(super) async fn measure(
    ground: &Ground,
    postgres: Option<&str>,
    quick: bool,
) -> Result<Vec<Row>, String> {
    let api = Api::start(&ground.dir.join("sessions"), "").await?;
    let mut rows = Vec::new();
    for (sessions, least) in TARGETS {
        let figures = sets(&api, sessions, quick).await?;
        let limit = session_limits::sqlite(ground, sessions, figures.together).await?;
        let reason = format!("{} to a transaction, here and in the limit", figures.together);
        let mut more = figures.rows("SQLite (FULL)", "set phases", sessions, limit).into_iter();
        rows.extend(more.next().map(|rate| Row::at_least(least, rate).because(reason)));
        rows.extend(more);
    }
    rows.extend(processes(&api, "SQLite (FULL)", quick).await?);
    rows.extend(session_waits::measure(&api, quick).await?);
    drop(api);
    rows.push(session_waits::resident(&ground.dir.join("blocked"), quick).await?);
    match Place::begin(ground, postgres, "sessions_postgres").await? {
        Err(unmeasured) => rows.push(unmeasured),
        Ok(place) => {
            let more = on_postgres(ground, &place.url, quick).await;
            place.end().await?;
            rows.extend(more?);
        }
    }
    Ok(rows)
}

async fn on_postgres(ground: &Ground, url: &str, quick: bool) -> Result<Vec<Row>, String> {
    let config = format!("[server]\ndatabase_url = {}\n", Value::from(url));
    let api = Api::start(&ground.dir.join("sessions-on-postgres"), &config).await?;
    let mut rows = Vec::new();
    for (sessions, _) in TARGETS {
        let figures = sets(&api, sessions, quick).await?;
        let limit = session_limits::postgres(ground, url, sessions, figures.together).await?;
        rows.extend(figures.rows("PostgreSQL", "set phases", sessions, limit));
    }
    rows.extend(processes(&api, "PostgreSQL", quick).await?);
    Ok(rows)
}

async fn sets(api: &Api, sessions: usize, quick: bool) -> Result<Figures, String> {
    let each = match (sessions, quick) {
        (1, false) => 3000,
        (_, false) => 300,
        (1, true) => 50,
        (_, true) => 5,
    };
    let phases: Vec<Value> =
        (0..each).map(|n| json!({ "name": format!("p{n}"), "set": { "n": n } })).collect();
    run(api, &format!("sets-{sessions}"), sessions, &phases).await
}

async fn processes(api: &Api, database: &str, quick: bool) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (sessions, each) in [(1, if quick { 3 } else { 50 }), (100, if quick { 1 } else { 5 })] {
        let sessions = if quick { sessions.min(5) } else { sessions };
        let phases: Vec<Value> =
            (0..each).map(|n| json!({ "name": format!("p{n}"), "run": ["true"] })).collect();
        let figures = run(api, &format!("processes-{sessions}"), sessions, &phases).await?;
        let limit = (session_limits::processes(sessions, each).await?, "bare 'true'");
        rows.extend(figures.rows(database, "phases with a process", sessions, limit));
    }
    Ok(rows)
}

/// What a number of equal sessions took.
struct Figures {
    per_second: f64,
    /// From the end of one phase to the end of the next, in milliseconds; times are kept in whole ones.
    each_ms: Vec<f64>,
    /// Phases in one transaction: those that start nothing and follow each other are made durable together.
    together: usize,
}

impl Figures {
    fn rows(mut self, database: &str, what: &str, sessions: usize, limit: (f64, &'static str)) -> Vec<Row> {
        let many = if sessions == 1 { "1 session".to_owned() } else { format!("{sessions} sessions") };
        let name = format!("{what}, {many}, {database}");
        let at = |figures: &mut Vec<f64>, word: &str, share| {
            Row::plain(&format!("{name}, {word} of a phase"), percentile(figures, share), "ms")
        };
        let rate = Row::beside(&name, self.per_second, "/s", limit.0, limit.1);
        let mut rows = vec![rate, at(&mut self.each_ms, "p50", 0.5), at(&mut self.each_ms, "p99", 0.99)];
        if self.together > 1 {
            rows.push(Row::plain(&format!("{name}, made durable together"), self.together as f64, "phases"));
        }
        rows
    }
}

async fn run(api: &Api, cascade: &str, sessions: usize, phases: &[Value]) -> Result<Figures, String> {
    let before = api.writes().await?;
    let begun = join_all((0..sessions).map(|_| api.begin(cascade, phases))).await;
    let begun: Vec<Session> = begun.into_iter().collect::<Result<_, _>>()?;
    let ended = ended(api, cascade, sessions).await?;
    // Each session is one write more, when it is begun.
    let writes = (api.writes().await? - before - sessions as f64).max(1.0);
    let first = begun.iter().map(|session| session.started_at).min().unwrap_or_default();
    let last = ended.iter().filter_map(|session| session.completed_at).max().unwrap_or_default();
    let done = (sessions * phases.len()) as f64;
    let per_second = done / (millis_between(first, last) / 1000.0).max(0.001);
    let mut each_ms = Vec::new();
    for session in begun.iter().take(LOOKED_AT) {
        let detail = api.session(session.session_id.as_str()).await?;
        let mut before = session.started_at;
        for at in detail.phases.iter().filter_map(|phase| phase.row.as_ref()?.completed_at) {
            each_ms.push(millis_between(before, at));
            before = at;
        }
    }
    let together = (done / writes).round().max(1.0) as usize;
    Ok(Figures { per_second, each_ms, together })
}

/// Waits for the end of all; asked seldom, because asking is work too.
async fn ended(api: &Api, cascade: &str, sessions: usize) -> Result<Vec<Session>, String> {
    let path = format!("/api/v1/sessions?cascade={cascade}&all=true&limit=1000");
    for _ in 0..1500 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let list: SessionList = api.get(&path).await?;
        let all: Vec<Session> = list.sessions.into_iter().map(|view| view.session).collect();
        if let Some(bad) =
            all.iter().find(|s| matches!(s.status, SessionStatus::Error | SessionStatus::Cancelled))
        {
            return Err(format!(
                "session {} ended as {}: {:?}",
                bad.session_id, bad.status, bad.error_message
            ));
        }
        if all.len() == sessions && all.iter().all(|session| session.status == SessionStatus::Completed) {
            return Ok(all);
        }
    }
    Err(format!("{sessions} sessions of {cascade} did not end in five minutes"))
}

fn millis_between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1000.0
}
