//! The door itself: every route that takes a body, a query or an id, with whatever may come through it. No input makes
//! the server stumble (a status of 500 or more), and every refusal is a problem document that says what to do. Only the
//! live stream is left out: it does not end.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{Method, Request, StatusCode, Uri};
use parhelia_core::api::{Problem, ServerInfo};
use parhelia_core::config::Config;
use parhelia_core::time::Clock;
use parhelia_fuzz::{Verdict, fuzz};
use parhelia_providers::SystemClock;
use parhelia_providers::fake::{FakeProvider, World};
use parhelia_server::entropy::SystemEntropy;
use parhelia_server::http::{App, Door, Gate, Shared, router};
use parhelia_server::loops::driver;
use parhelia_server::loops::health::Observer;
use parhelia_server::relay::Hub;
use parhelia_server::service::{ProviderHandle, Service};
use parhelia_store::{Owner, Store};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, watch};
use tower::ServiceExt;

/// A server without loops: it records wishes, and nobody fulfils them.
struct House {
    runtime: Runtime,
    door: Router,
    /// A container, a job and a session that exist.
    id: String,
    job: String,
    session: String,
}

const RUN: &str =
    r#"{"provider": "fake", "command": ["sleep", "60"], "labels": {"team": "core"}, "task_id": "t"}"#;
const EXEC: &str = r#"{"provider": "fake", "command": ["sleep", "60"], "name": "one"}"#;
const SESSION: &str = r#"{"cascade": {"cascade_id": "c", "phases": [{"name": "a", "run": ["true"]}]}}"#;

impl House {
    fn new() -> Self {
        // Paused: whoever asks to wait a minute for news waits no real one.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (door, [id, job, session]) = runtime.block_on(async {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
            let store = Store::open_sqlite_inline(Path::new(":memory:")).unwrap();
            let instance = store.this_instance("house", clock.now()).await.unwrap();
            store.register_owner(&owner(clock.as_ref())).await.unwrap();
            let provider = FakeProvider::in_memory("fake", World::new("engine"), clock.clone());
            let (requests, _queue) = driver::requests();
            let handle = ProviderHandle { provider: Arc::new(provider), requests, shared: false };
            let (_lead, lead) = watch::channel(None);
            let (_stop, shutdown) = watch::channel(false);
            let metrics: Arc<parhelia_server::metrics::Metrics> = Arc::default();
            let (hub, _tail) = Hub::new(&store, 0, 8, metrics.history.clone());
            let service = Service::new(
                store,
                BTreeMap::from([("fake".to_owned(), handle)]),
                Arc::new(Config::default()),
                clock.clone(),
                Arc::new(SystemEntropy::default()),
                instance.clone(),
                Arc::new(Observer::new(clock.clone())),
                lead,
                Arc::default(),
                shutdown,
            );
            let service = Arc::new(service.owned_by("o"));
            let info = ServerInfo {
                version: "0".into(),
                instance_id: instance,
                home: "/h".into(),
                home_id: "h".into(),
                owner_id: "o".into(),
                epoch: 1,
                leads: true,
                started_at: clock.now(),
                listen: None,
                on_demand: false,
                providers: vec!["fake".into()],
            };
            let app = App::from(Shared {
                service,
                hub,
                metrics,
                info,
                stop: Arc::new(Notify::new()),
                document: OnceLock::new(),
            });
            let door = router(app, Gate::new("nobody's", 0), 1 << 20);
            let mut ids = [const { String::new() }; 3];
            let all = [
                ("/api/v1/containers", RUN, "id"),
                ("/api/v1/jobs", EXEC, "id"),
                ("/api/v1/sessions", SESSION, "session_id"),
            ];
            for (id, (path, body, name)) in ids.iter_mut().zip(all) {
                let answer = door.clone().oneshot(post(path, body.as_bytes())).await.unwrap();
                let made = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
                let made: Value = serde_json::from_slice(&made).unwrap();
                *id = made[name].as_str().unwrap_or_else(|| panic!("{path}: {made}")).to_owned();
            }
            (door, ids)
        });
        Self { runtime, door, id, job, session }
    }

    fn answer(&self, mut request: Request<Body>) -> (StatusCode, Vec<u8>) {
        request.extensions_mut().insert(Door::Socket);
        self.runtime.block_on(async {
            let answer = self.door.clone().oneshot(request).await.unwrap();
            let status = answer.status();
            let bytes = to_bytes(answer.into_body(), 64 << 20).await.unwrap();
            assert!(!status.is_server_error(), "{status}: {}", String::from_utf8_lossy(&bytes));
            (status, bytes.to_vec())
        })
    }

    fn ask(&self, request: Request<Body>) -> Verdict {
        let (status, bytes) = self.answer(request);
        if status.is_success() {
            return Verdict::Accepted;
        }
        let problem: Problem = serde_json::from_slice(&bytes).unwrap_or_else(|e| {
            panic!("{status} without a problem ({e}): {}", String::from_utf8_lossy(&bytes))
        });
        assert_eq!(problem.status, status.as_u16());
        assert!(!problem.detail.is_empty() && !problem.fix.is_empty(), "{problem:?}");
        assert!(problem.detail.len() < 4096, "{} bytes of detail", problem.detail.len());
        match status {
            // It was read and understood; what it speaks of is not there, or not so.
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => Verdict::Accepted,
            _ => Verdict::Refused,
        }
    }

    fn bodies(&self, path: &str, seeds: &[&str]) {
        let words = [&self.id, &self.job, &self.session, "orphans", "fake"];
        fuzz(seeds, &words, |body| self.ask(post(path, body)));
    }

    fn queries(&self, seeds: &[&str]) {
        self.targets(&Method::GET, seeds);
    }

    /// Whole targets: the path with its ids, and the query.
    fn targets(&self, method: &Method, seeds: &[&str]) {
        let words =
            [self.id.as_str(), "&", "=", "running", "label=a=b", "limit=", "%", "+", "before=c-", "since="];
        let known = [("{id}", &self.id), ("{job}", &self.job), ("{session}", &self.session)];
        let filled =
            |seed: &&str| known.iter().fold((*seed).to_owned(), |seed, (mark, id)| seed.replace(mark, id));
        let seeds: Vec<String> = seeds.iter().map(filled).collect();
        let seeds: Vec<&str> = seeds.iter().map(String::as_str).collect();
        fuzz(&seeds, &words, |target| match Uri::try_from(target) {
            Ok(uri) if uri.path().starts_with('/') => {
                self.ask(Request::builder().method(method).uri(uri).body(Body::empty()).unwrap())
            }
            // Not even a request: the HTTP library refuses it.
            _ => Verdict::Refused,
        });
    }
}

/// The server itself, as the owner of its sessions.
fn owner(clock: &dyn Clock) -> Owner {
    Owner {
        id: "o".into(),
        home_id: "h".into(),
        host: "host".into(),
        boot_id: "boot".into(),
        epoch: 1,
        started_at: clock.now(),
        lease_until: clock.now(),
        ended_at: None,
        version: "0".into(),
    }
}

fn post(path: &str, body: &[u8]) -> Request<Body> {
    let request = Request::post(path).header(CONTENT_TYPE, "application/json").header(HOST, "localhost");
    let mut request = request.body(Body::from(body.to_vec())).unwrap();
    request.extensions_mut().insert(Door::Socket);
    request
}

#[test]
fn a_body_that_asks_for_a_container() {
    House::new().bodies(
        "/api/v1/containers",
        &[
            r#"{"provider": "fake", "command": ["sleep", "60"]}"#,
            r#"{"provider": "fake", "name": "one", "command": ["sh", "-c", "true"], "env": {"A": "1"}, "workdir": "/w",
                "labels": {"team": "core"}, "resources": {"cpu_cores": 0.5, "memory_mb": 512}, "task_id": "t-1",
                "task_title": "Do it", "idle_timeout_seconds": 60, "keep": true, "tmux_session": "s"}"#,
        ],
    );
}

#[test]
fn a_body_of_heartbeats() {
    let house = House::new();
    let beat = format!(
        r#"{{"container_id": "{}", "timestamp": "2026-01-21T14:30:00Z", "cpu_percent": 12.5, "memory_mb": 512,
        "uptime_seconds": 60, "delayed_seconds": 2.5, "tmux_active": true, "metadata": {{"a": 1}}}}"#,
        house.id
    );
    house.bodies(
        "/api/v1/heartbeats",
        &[r#"{"heartbeats": []}"#, &format!(r#"{{"heartbeats": [{beat}, {beat}]}}"#)],
    );
    house.bodies(&format!("/api/v1/containers/{}/heartbeats", house.id), &["", "{}", &beat]);
}

#[test]
fn a_body_that_asks_for_an_end() {
    let house = House::new();
    let seeds = ["", "{}", r#"{"grace_seconds": 30, "reason": "no longer needed"}"#];
    house.bodies(&format!("/api/v1/containers/{}/stop", house.id), &seeds);
    house.bodies(&format!("/api/v1/containers/{}/terminate", house.id), &seeds);
}

#[test]
fn a_body_that_asks_to_clean_up() {
    let house = House::new();
    let some = format!(r#"{{"kind": "dead", "older_than_seconds": 60, "ids": ["{}"]}}"#, house.id);
    house.bodies("/api/v1/cleanup", &[r#"{"kind": "orphans"}"#, &some]);
}

#[test]
fn a_query_for_containers() {
    House::new().queries(&[
        "/api/v1/containers",
        "/api/v1/containers?state=running,created&health=unknown&provider=fake&task=t&label=team=core&limit=2",
        "/api/v1/containers?all=true&orphans=false&limit=1&before={id}",
        "/api/v1/containers/{id}",
    ]);
}

#[test]
fn a_query_for_history() {
    House::new().queries(&[
        "/api/v1/events?container={id}&type=container_created&since=2020-01-21T14:30:00Z&limit=5&order=asc&wait_seconds=1",
        "/api/v1/events?after=0&wait_seconds=60",
        "/api/v1/containers/{id}/events?limit=10",
        "/api/v1/containers/{id}/heartbeats?since=2020-01-21T14:30:00Z&limit=5",
        "/api/v1/containers/{id}/logs?offset=0&tail_bytes=10&max_bytes=100&wait_seconds=1",
    ]);
}

#[test]
fn a_body_that_asks_for_a_job() {
    let house = House::new();
    let full = r#"{"provider": "fake", "name": "two", "command": ["sh", "-c", "true"], "env": {"A": "1"}, "workdir": "/w",
        "labels": {"team": "core"}, "resources": {"memory_mb": 512}, "secrets": ["s"], "engine": "claude", "session": "x",
        "terminal": {"rows": 24, "cols": 80}, "stdin": true, "timeout_seconds": 60, "keep": true}"#;
    house.bodies("/api/v1/jobs", &[EXEC, full]);
}

#[test]
fn a_body_about_a_job() {
    let house = House::new();
    let (job, container) = (&house.job, &house.id);
    house.bodies(&format!("/api/v1/jobs/{job}/resume"), &["", "{}", r#"{"arguments": ["go", "on"]}"#]);
    let some = format!(r#"{{"older_than_seconds": 60, "statuses": ["dead", "failed"], "ids": ["{job}"]}}"#);
    house.bodies("/api/v1/jobs/cleanup", &["", "{}", &some]);
    let resume = |id: &str| format!(r#"{{"jobId": "{id}", "fromCheckpoint": false}}"#);
    house.bodies("/api/admin/recovery/jobs/resume", &[&resume(job), &resume(container)]);
    let seeds = ["", "{}", r#"{"grace_seconds": 30, "reason": "no longer needed"}"#];
    house.bodies(&format!("/api/v1/jobs/{job}/cancel"), &seeds);
}

#[test]
fn a_body_that_begins_a_session() {
    House::new().bodies(
        "/api/v1/sessions",
        &[
            SESSION,
            r#"{"text": "cascade_id: c\nphases: [{name: a, set: {n: 1}}]\n", "name": "n", "workdir": "/w", "env": {"A": "1"},
                "provider": "fake", "resumable": true, "auto_resume": false}"#,
            r#"{"cascade": {"cascade_id": "c", "inputs": {"n": {"type": "number", "default": 1}}, "phases": [
                {"name": "a", "tasks": [{"id": "t", "run": ["true"], "retry": {"max": 2}}]},
                {"name": "b", "needs": ["a"], "await": {"hitl": {"kind": "text", "question": "q"}}, "timeout": "2h"}]},
                "inputs": {"n": 2}, "input_texts": {}}"#,
        ],
    );
}

#[test]
fn a_body_about_a_session() {
    let house = House::new();
    let session = &house.session;
    house.bodies(&format!("/api/v1/sessions/{session}/resume"), &["", "{}", r#"{"from": "a"}"#]);
    house.bodies("/api/v1/sessions/cleanup", &["", "{}", r#"{"dry_run": true}"#]);
    let seeds = ["", "{}", r#"{"reason": "no longer needed", "force": true, "grace_seconds": 5}"#];
    house.bodies(&format!("/api/v1/sessions/{session}/cancel"), &seeds);
}

#[test]
fn a_body_of_a_signal_or_an_answer() {
    let house = House::new();
    let to_one =
        format!(r#"{{"name": "go", "session": "{}", "payload": {{"x": [1, null]}}}}"#, house.session);
    house.bodies("/api/v1/signals", &[r#"{"name": "go"}"#, &to_one]);
    let answers = [
        format!(r#"{{"ids": ["{}"], "verdict": "approve", "reason": "fine"}}"#, house.session),
        r#"{"ids": ["w-1", "w-2"], "verdict": "answer", "answer": {"a": 1}}"#.to_owned(),
        r#"{"ids": ["w-1"], "verdict": "answer", "text": "yes"}"#.to_owned(),
        r#"{"ids": ["w-1"], "verdict": "answer", "choices": ["a", "b"]}"#.to_owned(),
    ];
    house.bodies("/api/v1/inbox", &answers.each_ref().map(String::as_str));
}

#[test]
fn a_body_of_a_worker() {
    let house = House::new();
    house.bodies(&format!("/api/v1/sessions/{}/claims", house.session), &[r#"{"worker_id": "w-1"}"#]);
    house.bodies(
        "/api/v1/tasks/t-1/attempts/1/result",
        &[
            r#"{"worker_id": "w-1", "exit_code": 0}"#,
            r#"{"worker_id": "w-1", "exit_code": null, "verify_exit_code": 1, "timed_out": true, "output": "{}", "truncated": true}"#,
        ],
    );
}

#[test]
fn a_body_that_asks_for_a_token() {
    let house = House::new();
    let worker = format!(
        r#"{{"subject": "w", "role": "worker", "container": "{}", "expires_in_seconds": 60}}"#,
        house.id
    );
    house.bodies("/api/v1/tokens", &[r#"{"subject": "ann", "role": "viewer"}"#, &worker]);
}

#[test]
fn a_message_of_an_agent() {
    let house = House::new();
    let call = |tool: &str, arguments: &str| {
        format!(
            r#"{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {{"name": "parhelia_{tool}", "arguments": {arguments}}}}}"#
        )
    };
    let seeds = [
        r#"{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"}}}"#
            .to_owned(),
        r#"{"jsonrpc": "2.0", "id": "a", "method": "tools/list"}"#.to_owned(),
        r#"{"jsonrpc": "2.0", "method": "notifications/initialized"}"#.to_owned(),
        format!(
            r#"{{"jsonrpc": "2.0", "id": 2, "method": "resources/read", "params": {{"uri": "parhelia://containers/{}"}}}}"#,
            house.id
        ),
        call("containers", &format!(r#"{{"action": "show", "container_id": "{}"}}"#, house.id)),
        call("health", r#"{"include_containers": false}"#),
        call("events", r#"{"since_minutes": 5, "limit": 2, "event_type": "created"}"#),
        call("run", r#"{"text": "cascade_id: c\nphases: [{name: a, set: {n: 1}}]"}"#),
        call("sessions", r#"{"action": "list", "status_filter": "all"}"#),
        call("inbox", r#"{"action": "answer", "ids": ["w-1"], "text": "yes"}"#),
        call("signals", r#"{"action": "fire", "name": "go", "payload": {"x": 1}}"#),
    ];
    let seeds: Vec<&str> = seeds.iter().map(String::as_str).collect();
    fuzz(&seeds, &[&house.id, &house.session, "tools/call", "params", "arguments"], |body| {
        let (status, bytes) = house.answer(post("/mcp", body));
        // A notification gets no answer.
        if status == StatusCode::ACCEPTED {
            return Verdict::Accepted;
        }
        let said: Value = serde_json::from_slice(&bytes)
            .unwrap_or_else(|e| panic!("{status} without JSON ({e}): {}", String::from_utf8_lossy(&bytes)));
        let message = said["error"]["message"].as_str().or(said["detail"].as_str());
        match said.get("result") {
            Some(_) => Verdict::Accepted,
            None => {
                assert!(message.is_some_and(|text| !text.is_empty()), "{status}: {said}");
                Verdict::Refused
            }
        }
    });
}

/// Wishes that are an id and nothing more.
#[test]
fn an_id_in_a_wish() {
    House::new().targets(
        &Method::POST,
        &[
            "/api/v1/instances/{id}/adopt",
            "/api/v1/alerts/hook/test",
            "/api/v1/tokens/t-1/revoke",
            "/api/v1/jobs/{job}/cancel?x=%2F",
        ],
    );
}

#[test]
fn a_query_for_jobs_and_sessions() {
    House::new().queries(&[
        "/api/v1/jobs?status=fresh,dead&engine=claude&name=one&waiting=true&all=true&limit=2&before={job}",
        "/api/v1/jobs/{job}",
        "/api/v1/sessions?status=running,blocked&cascade=c&all=true&limit=2&before={session}",
        "/api/v1/sessions/{session}/tree",
        "/api/v1/sessions/{session}/tasks?phase=a&state=pending&after=0&limit=5",
        "/api/v1/sessions/{session}/checkpoints?after=cp-1&limit=5",
        "/api/v1/tasks/t-1/attempts/1/output",
        "/api/v1/signals?name=go&session={session}&pending=true&limit=2&before=sg-1",
        "/api/v1/tokens?all=true",
        "/api/v1/why/{id}",
        "/api/admin/jobs/{job}/health",
    ]);
}
