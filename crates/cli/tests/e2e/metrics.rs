//! What `/metrics` says, read by Prometheus' own parser: every family, with a value that fits what was done.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{FakeWorld, Home, eventually, exchange, moment, python, text};

/// One scrape, parsed.
#[derive(Debug)]
pub(crate) struct Scrape(BTreeMap<String, Value>);

pub(crate) fn scraped(home: &Home) -> Scrape {
    let (status, body) = home.http("GET", "/metrics", None);
    assert_eq!(status, 200, "{body}");
    parse(&body)
}

fn parse(body: &str) -> Scrape {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/openmetrics.py");
    let mut parser = Command::new(python().canonicalize().unwrap().join("python"))
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    parser.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    let output = parser.wait_with_output().unwrap();
    assert!(output.status.success(), "it cannot be parsed: {body}");
    let families: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    Scrape(families.into_iter().map(|f| (text(&f, "name").to_owned(), f)).collect())
}

impl Scrape {
    /// The sum over all series of a family that have these labels; `None` where there is no such series.
    pub(crate) fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let family = self.0.get(&format!("parhelia_{}", name.trim_end_matches("_total")))?;
        let wanted: &[&str] = match text(family, "type") {
            "counter" => &["_total"],
            "histogram" => &["_count"],
            "info" => &["_info"],
            _ => &[""],
        };
        let full = format!("{}{}", text(family, "name"), wanted[0]);
        let fits = |sample: &&Value| {
            sample[0] == full.as_str() && labels.iter().all(|(label, value)| sample[1][*label] == *value)
        };
        let found: Vec<f64> = family["samples"]
            .as_array()
            .unwrap()
            .iter()
            .filter(fits)
            .map(|sample| sample[2].as_f64().unwrap())
            .collect();
        (!found.is_empty()).then(|| found.iter().sum())
    }
}

/// The families that the program registers, by their names in its source.
fn registered() -> BTreeSet<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/src/metrics");
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let source = std::fs::read_to_string(entry.path()).unwrap();
        for call in ["names.add(", "names.0.register("] {
            for (_, rest) in source.match_indices(call).map(|(at, _)| source.split_at(at + call.len())) {
                let name = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
                names.insert(name.expect("a name is written where it is registered").to_owned());
            }
        }
    }
    names
}

/// Families that other tests observe, because it takes more to move them: file, and what stands there.
const ELSEWHERE: [(&str, &str); 6] = [
    ("clickhouse_failures", include_str!("clickhouse.rs")),
    ("clickhouse_lag_seconds", include_str!("clickhouse.rs")),
    ("clickhouse_rows", include_str!("clickhouse.rs")),
    ("heartbeat_write_failures", include_str!("disk.rs")),
    ("store_write_failures", include_str!("disk.rs")),
    ("streams_told_to_resume", include_str!("stream.rs")),
];

#[test]
fn every_family_has_a_value_that_fits_what_was_done() {
    let world = FakeWorld::new();
    let home = Home::with_config(&format!(
        "{}[server]\nmax_connections = 12\n[reconciler]\npoll_interval_seconds = 1\norphan_grace_period_seconds = 300\n\
         [health]\ncheck_interval_seconds = 1\n[retention]\ninterval_seconds = 1\n\
         [[prices]]\nprovider = 'fake'\neffective_from = '2026-01-01T00:00:00Z'\nsandbox_hour = 0.5\n",
        world.line()
    ));
    let _server = home.up(&["--listen", "127.0.0.1:0"]);
    let instance = home.instance_id();
    let running = home.start(&[], &["sleep", "600"]);
    home.until_seen(&running, "health", "healthy");
    let over = home.start(&[], &["true"]);
    home.until_seen(&over, "state", "terminated");
    world.add("sb-lost", &instance, "c-lost0001", 3600);
    world.add("sb-young", &instance, "c-young001", 1);
    world.add("sb-other", "another-instance", "c-other001", 60);
    eventually("the lost one is found", || home.told("orphan_detected").pop());
    eventually("the young one is suspected", || home.told("container_suspected").pop());
    let strange = json!({ "heartbeats": [{ "container_id": "c-none0000" }] });
    assert_eq!(home.api("POST", "/api/v1/heartbeats", Some(strange)).0, 404);
    let odd = json!({ "heartbeats": [{ "container_id": running, "cpu_percent": -1.0 }, { "container_id": running }] });
    assert_eq!(home.api("POST", "/api/v1/heartbeats", Some(odd)).0, 200);
    assert_eq!(home.http("GET", "/nowhere", None).0, 404);
    // A pass that cannot be decided, until it can again.
    let set = "UPDATE providers SET unreachable_since = ?1 WHERE name = 'process'";
    eventually("the failure is told", || {
        // A pass that is under way writes it anew.
        home.sqlite().execute(set, ["both"]).unwrap();
        home.told("reconcile_failed").pop()
    });
    home.sqlite().execute(set, [None::<&str>]).unwrap();
    // More connections than there are places.
    let crowd: Vec<UnixStream> =
        (0..20).map(|_| UnixStream::connect(home.path().join("parhelia.sock")).unwrap()).collect();
    eventually("one is turned away", || {
        home.try_http("GET", "/livez", None).filter(|(status, _)| *status == 503)
    });
    drop(crowd);
    let _stream = eventually("there is a place", || Some(home.listen("", None)).filter(|s| s.status == 200));
    // A provider that does not answer.
    world.change(|world| world["faults"] = json!({ "list": "error" }));
    eventually("it is missed", || home.told("provider_unreachable").pop());

    let now = moment(0).as_second() as f64;
    let lately = move |value: f64| (now - 120.0..now + 120.0).contains(&value);
    type Fits = Box<dyn Fn(f64) -> bool>;
    let one = || Box::new(|v: f64| v == 1.0) as Fits;
    let some = || Box::new(|v: f64| v >= 1.0) as Fits;
    let at_least_0 = || Box::new(|v: f64| v >= 0.0) as Fits;
    let recent = || Box::new(lately) as Fits;
    type Expected = (&'static str, Vec<(&'static str, &'static str)>, Fits);
    let expected: Vec<Expected> = vec![
        ("containers", vec![("provider", "process"), ("state", "running"), ("health", "healthy")], one()),
        ("containers", vec![("provider", "fake")], Box::new(|v| v == 2.0)),
        ("containers_terminated", vec![], one()),
        ("orphans", vec![], one()),
        ("suspects", vec![], one()),
        ("foreign_sandboxes", vec![], one()),
        ("cost_rate_usd_per_hour", vec![("provider", "fake")], Box::new(|v| (0.5..=1.0).contains(&v))),
        ("cost_accrued_usd", vec![], Box::new(|v| (0.5..1.5).contains(&v))),
        ("jobs", vec![("status", "finished")], one()),
        ("jobs_waiting", vec![], Box::new(|v| v == 0.0)),
        ("store_up", vec![], one()),
        ("store_writes", vec![], some()),
        ("store_queue_depth", vec![], at_least_0()),
        ("refusal_queue_depth", vec![], at_least_0()),
        ("loop_pass_duration_seconds", vec![("loop", "reconciler"), ("provider", "fake")], some()),
        ("loop_last_pass_duration_seconds", vec![("loop", "reconciler")], Box::new(|v| v > 0.0 && v < 60.0)),
        ("loop_failures", vec![("loop", "reconciler"), ("provider", "process")], some()),
        (
            "loop_last_success_timestamp_seconds",
            vec![("loop", "reconciler"), ("provider", "process")],
            recent(),
        ),
        ("loop_last_success_timestamp_seconds", vec![("loop", "jobs"), ("provider", "process")], recent()),
        ("loop_last_success_timestamp_seconds", vec![("loop", "health")], recent()),
        ("loop_last_success_timestamp_seconds", vec![("loop", "retention")], recent()),
        ("loop_last_success_timestamp_seconds", vec![("loop", "vitals")], recent()),
        ("loop_last_success_timestamp_seconds", vec![("loop", "guests")], recent()),
        ("loop_last_success_timestamp_seconds", vec![("loop", "lease")], at_least_0()),
        ("provider_reachable", vec![("provider", "process")], one()),
        ("provider_reachable", vec![("provider", "fake")], Box::new(|v| v == 0.0)),
        ("heartbeats_accepted", vec![], some()),
        ("heartbeats_rejected", vec![("code", "unknown_container")], one()),
        ("heartbeats_rejected", vec![("code", "out_of_range")], one()),
        (
            "http_requests",
            vec![("route", "/api/v1/heartbeats"), ("method", "POST"), ("status", "4xx")],
            one(),
        ),
        ("http_requests", vec![("route", "/api/v1/heartbeats"), ("status", "2xx")], some()),
        ("http_requests", vec![("route", "(none)"), ("status", "4xx")], one()),
        (
            "http_request_duration_seconds",
            vec![("route", "/api/v1/containers/{id}"), ("method", "GET")],
            some(),
        ),
        ("connections_open", vec![("door", "socket")], Box::new(|v| (1.0..=12.0).contains(&v))),
        ("connections_open", vec![("door", "tcp")], Box::new(|v| v == 0.0)),
        ("connections_turned_away", vec![("door", "socket")], some()),
        ("streams_open", vec![], one()),
        ("events", vec![("type", "orphan_detected")], one()),
        ("events", vec![("type", "container_created")], Box::new(|v| v == 2.0)),
        ("leader", vec![], one()),
        ("leader_epoch", vec![], one()),
        ("process_resident_memory_bytes", vec![], Box::new(|v| v > 1e6)),
        ("process_cpu_seconds", vec![], Box::new(|v| v > 0.0 && v < 600.0)),
        ("process_open_fds", vec![], Box::new(|v| v > 5.0)),
        ("process_start_time_seconds", vec![], recent()),
        ("build", vec![("version", env!("CARGO_PKG_VERSION"))], one()),
    ];
    // What is read from the store may be a little old.
    eventually("every family fits", || {
        let scrape = scraped(&home);
        let wrong: Vec<_> = expected
            .iter()
            .map(|(name, labels, fits)| (name, labels, scrape.get(name, labels), fits))
            .filter(|(_, _, value, fits)| !value.is_some_and(fits))
            .map(|(name, labels, value, _)| format!("{name}{labels:?} = {value:?}"))
            .collect();
        // Shown when this test fails, and only then.
        println!("{wrong:?}");
        wrong.is_empty().then_some(())
    });

    let documented = include_str!("../../../../docs/metrics.md");
    for name in registered() {
        let here = expected.iter().any(|(seen, ..)| *seen == name);
        let there = ELSEWHERE.iter().any(|(seen, test)| *seen == name && test.contains(&name));
        assert!(here || there, "{name} is registered, and no end-to-end test looks at it");
        assert!(documented.contains(&format!("`parhelia_{name}")), "docs/metrics.md does not know {name}");
    }

    // Beyond the home's own socket a viewer may scrape, and nobody else.
    let address = home.api("GET", "/api/v1/server", None).1["listen"].as_str().unwrap().to_owned();
    let token = home.ok(&["tokens", "create", "prometheus", "--role", "viewer"]).trim().to_owned();
    let ask = |headers: &[&str]| {
        exchange(TcpStream::connect(&address).unwrap(), "GET", "/metrics", None, headers).unwrap()
    };
    assert_eq!(ask(&[]).0, 401);
    // The one before it is let go of a moment after it was answered.
    let body = eventually("it is the only one", || {
        let (status, body) = ask(&[&format!("Authorization: Bearer {token}")]);
        assert_eq!(status, 200);
        (parse(&body).get("connections_open", &[("door", "tcp")]) == Some(1.0)).then_some(body)
    });
    assert!(!body.contains(&token), "a scrape shows no secret");
}

#[test]
fn a_loop_that_is_stuck_fails_the_liveness_probe_and_nothing_else() {
    let world = FakeWorld::new();
    let home = Home::with_config(&format!(
        "{}[server]\nstuck_after_seconds = 2\n[reconciler]\npoll_interval_seconds = 1\nprovider_timeout_seconds = 8\n",
        world.line()
    ));
    let _server = home.up(&[]);
    eventually("it lives", || (home.http("GET", "/livez", None) == (200, "ok\n".to_owned())).then_some(()));
    world.change(|world| world["faults"] = json!({ "list": "hang" }));
    let problem = eventually("the pass is called stuck", || {
        let (status, problem) = home.api("GET", "/livez", None);
        (status == 503).then_some(problem)
    });
    assert!(text(&problem, "detail").contains("reconciler of fake"), "{problem}");
    assert_eq!(home.http("GET", "/readyz", None).0, 200, "the store is well");
    world.change(|world| world["faults"] = json!({}));
    eventually("it goes on", || (home.http("GET", "/livez", None).0 == 200).then_some(()));
}
