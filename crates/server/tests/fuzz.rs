//! The door itself: every route that takes a body or a query, with whatever may come through it. No input makes
//! the server stumble (a status of 500 or more), and every refusal is a problem document that says what to do.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Uri, header::CONTENT_TYPE};
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
use parhelia_store::Store;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, watch};
use tower::ServiceExt;

/// A server without loops: it records wishes, and nobody fulfils them.
struct House {
    runtime: Runtime,
    door: Router,
    /// A container that exists.
    id: String,
}

impl House {
    fn new() -> Self {
        // Paused: whoever asks to wait a minute for news waits no real one.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (door, id) = runtime.block_on(async {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
            let store = Store::open_sqlite_inline(Path::new(":memory:")).unwrap();
            let instance = store.this_instance("house", clock.now()).await.unwrap();
            let provider = FakeProvider::in_memory("fake", World::new("engine"), clock.clone());
            let (requests, _queue) = driver::requests();
            let handle = ProviderHandle { provider: Arc::new(provider), requests, shared: false };
            let (_lead, lead) = watch::channel(None);
            let (_stop, shutdown) = watch::channel(false);
            let metrics: Arc<parhelia_server::metrics::Metrics> = Arc::default();
            let (hub, _tail) = Hub::new(&store, 8, metrics.history.clone()).await.unwrap();
            let service = Arc::new(Service::new(
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
            ));
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
            let body = r#"{"provider": "fake", "command": ["sleep", "60"], "labels": {"team": "core"}, "task_id": "t"}"#;
            let answer = door.clone().oneshot(post("/api/v1/containers", body.as_bytes())).await.unwrap();
            let made = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
            let made: serde_json::Value = serde_json::from_slice(&made).unwrap();
            (door, made["id"].as_str().unwrap().to_owned())
        });
        Self { runtime, door, id }
    }

    fn ask(&self, mut request: Request<Body>) -> Verdict {
        request.extensions_mut().insert(Door::Socket);
        self.runtime.block_on(async {
            let answer = self.door.clone().oneshot(request).await.unwrap();
            let status = answer.status();
            let bytes = to_bytes(answer.into_body(), 64 << 20).await.unwrap();
            assert!(!status.is_server_error(), "{status}: {}", String::from_utf8_lossy(&bytes));
            if status.is_success() {
                return Verdict::Accepted;
            }
            let problem: Problem = serde_json::from_slice(&bytes).unwrap_or_else(|e| {
                panic!("{status} without a problem ({e}): {}", String::from_utf8_lossy(&bytes))
            });
            assert_eq!(problem.status, status.as_u16());
            assert!(!problem.detail.is_empty() && !problem.fix.is_empty(), "{problem:?}");
            assert!(problem.detail.len() < 4096, "{} bytes of detail", problem.detail.len());
            Verdict::Refused
        })
    }

    fn bodies(&self, path: &str, seeds: &[&str]) {
        fuzz(seeds, &[&self.id, "orphans", "fake"], |body| self.ask(post(path, body)));
    }

    fn queries(&self, seeds: &[&str]) {
        let words =
            [self.id.as_str(), "&", "=", "running", "label=a=b", "limit=", "%", "+", "before=c-", "since="];
        let seeds: Vec<String> = seeds.iter().map(|seed| seed.replace("{id}", &self.id)).collect();
        let seeds: Vec<&str> = seeds.iter().map(String::as_str).collect();
        fuzz(&seeds, &words, |target| match Uri::try_from(target) {
            Ok(uri) if uri.path().starts_with('/') => {
                self.ask(Request::get(uri).body(Body::empty()).unwrap())
            }
            // Not even a request: the HTTP library refuses it.
            _ => Verdict::Refused,
        });
    }
}

fn post(path: &str, body: &[u8]) -> Request<Body> {
    let request = Request::post(path).header(CONTENT_TYPE, "application/json");
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
