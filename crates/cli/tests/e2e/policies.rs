//! What may end a container although nobody asked, and what never may.

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{FakeWorld, Home, alive_with, eventually, signal_supervisor, text};

const QUICK: &str = "[health]\nheartbeat_interval_seconds = 1\ncheck_interval_seconds = 1\n\
                     degraded_after_seconds = 2\ndead_after_seconds = 600\nresumption_window_seconds = 0\n";

fn ended_for(home: &Home, id: &str, reason: &str) -> Value {
    let ended = home.until_seen(id, "state", "terminated");
    assert_eq!(
        (text(&ended, "termination_reason"), text(&ended, "desired_by")),
        (reason, "reconciler"),
        "{ended}"
    );
    ended
}

#[test]
fn the_stale_are_ended_only_when_configured_and_never_the_kept() {
    let world = FakeWorld::new();
    let config = |on: bool| {
        let reconciler = "[reconciler]\npoll_interval_seconds = 1\nstale_threshold_seconds = 6\n";
        format!("{}{QUICK}{reconciler}auto_terminate_stale = {on}\n", world.line())
    };
    let home = Home::with_config(&config(false));
    let server = home.up(&[]);
    // Nothing at the fake provider ever beats.
    let stale = home.start(&["--provider", "fake"], &["agent"]);
    let kept = home.start(&["--provider", "fake", "--keep"], &["agent"]);
    let alive = home.start(&[], &["sleep", "600"]);
    home.until_seen(&stale, "health", "unhealthy");
    home.until_seen(&kept, "health", "unhealthy");
    home.reconcile();
    assert_eq!(home.seen(&stale)["state"], "running", "off by default");
    assert!(home.told("stop_requested").is_empty());
    assert_eq!(home.json(&["reconciler", "status"])["auto_terminate_stale"], false);
    drop(server);

    home.configure(&config(true));
    let _server = home.up(&[]);
    assert_eq!(home.json(&["reconciler", "status"])["auto_terminate_stale"], true);
    ended_for(&home, &stale, "stale");
    let told = home.told("stop_requested");
    assert!(text(&told[0], "message").contains("auto_terminate_stale is on"), "{told:?}");
    home.reconcile();
    let spared = home.seen(&kept);
    assert_eq!((text(&spared, "state"), text(&spared, "desired")), ("running", "running"));
    let living = home.seen(&alive);
    assert_ne!(living["health"], "dead");
    assert_eq!(living["state"], "running", "whoever beats is not stale");
}

#[test]
fn orphans_are_ended_by_themselves_only_when_configured() {
    let world = FakeWorld::new();
    let config = |on: bool| {
        format!(
            "{}[reconciler]\norphan_grace_period_seconds = 2\nauto_terminate_orphans = {on}\n",
            world.line()
        )
    };
    let home = Home::with_config(&config(false));
    let server = home.up(&[]);
    world.add("sb-young", &home.instance_id(), "c-0rphan0000000001", 0);
    home.reconcile();
    let seen = home.seen("c-0rphan0000000001");
    assert!(matches!(text(&seen, "state"), "unknown" | "orphaned"), "seen at first sight: {seen}");
    home.until_seen("c-0rphan0000000001", "state", "orphaned");
    assert_eq!(home.told("container_suspected").len(), 1);
    assert_eq!(home.told("orphan_detected").len(), 1);
    home.reconcile();
    assert_eq!(home.seen("c-0rphan0000000001")["desired"], "running", "off by default");
    drop(server);
    home.configure(&config(true));
    let _server = home.up(&[]);
    ended_for(&home, "c-0rphan0000000001", "orphan_cleanup");
    world.add("sb-late", &home.instance_id(), "c-0rphan0000000002", 0);
    home.reconcile();
    ended_for(&home, "c-0rphan0000000002", "orphan_cleanup");
    let stopped = world.read()["stops"].as_object().unwrap().len();
    assert_eq!(stopped, 2);
}

#[test]
fn hours_of_silence_are_alerted_and_ended() {
    // 0.002 h are 7 s.
    // Ended for it is only whom the ladder calls dead too: the persisted times alone are a wall clock's.
    let quick = QUICK.replace("dead_after_seconds = 600", "dead_after_seconds = 6");
    let reconciler = "poll_interval_seconds = 1\nstale_threshold_seconds = 4\nmax_silent_hours = 0.002\n";
    let config = format!("{quick}[reconciler]\n{reconciler}");
    let home = Home::with_config(&config);
    let _server = home.up(&[]);
    let silent = home.start(&[], &["sleep", "600"]);
    let kept = home.start(&["--keep"], &["sleep", "600"]);
    let alive = home.start(&[], &["sleep", "600"]);
    for id in [&silent, &kept] {
        home.until_seen(id, "health", "healthy");
        signal_supervisor(text(&home.seen(id), "sandbox_id"), Signal::STOP);
    }
    ended_for(&home, &silent, "silent");
    assert_eq!(alive_with(&format!("PARHELIA_CONTAINER_ID={silent}")), 0);
    let told =
        eventually("both were alerted", || Some(home.told("container_silent")).filter(|t| t.len() >= 2));
    assert_eq!(told.len(), 2, "once each, however often it is looked at: {told:?}");
    let of = |id: &str| told.iter().find(|e| e["container_id"] == *id).unwrap();
    assert!(text(of(&silent), "message").contains("it will be terminated"), "{told:?}");
    assert!(text(of(&kept), "message").contains("kept"), "{told:?}");
    home.reconcile();
    let spared = home.seen(&kept);
    assert_eq!((text(&spared, "state"), text(&spared, "desired")), ("running", "running"));
    assert_eq!(home.seen(&alive)["state"], "running");
    assert_eq!(alive_with(&format!("PARHELIA_CONTAINER_ID={kept}")), 1);
    signal_supervisor(text(&spared, "sandbox_id"), Signal::CONT);
    home.until_seen(&kept, "health", "healthy");
}

#[test]
fn the_idle_are_stopped_after_their_own_timeout() {
    let home = Home::new();
    let _server = home.up(&[]);
    let idle = home.start(&["--idle-timeout", "2s"], &["sleep", "600"]);
    let busy = home.start(&["--idle-timeout", "5s"], &["sh", "-c", "while :; do echo x; sleep 0.1; done"]);
    let ended = home.until_seen(&idle, "state", "terminated");
    assert_eq!(text(&ended, "termination_reason"), "idle_timeout");
    // What is told of its job comes in between.
    let told: Vec<_> = home.events_of(&idle).into_iter().filter(|kind| !kind.starts_with("job_")).collect();
    let stopped = told.iter().position(|e| e == "container_stopped").expect("stopped first");
    assert_eq!(told[stopped + 1], "container_terminated", "{told:?}");
    let message = &home.told("container_stopped")[0]["message"];
    assert!(message.as_str().unwrap().contains("idle timeout"), "{message}");
    assert_eq!(home.seen(&busy)["state"], "running", "output is not idleness");
    assert_eq!(alive_with(&format!("PARHELIA_CONTAINER_ID={idle}")), 0);
}

#[test]
fn a_batch_limits_one_pass_and_all_are_ended_all_the_same() {
    let world = FakeWorld::new();
    let home = Home::with_config(&format!("{}[reconciler]\nmax_reconcile_batch = 2\n", world.line()));
    let _server = home.up(&[]);
    let run = serde_json::json!({ "provider": "fake", "command": ["agent"] });
    let ids: Vec<String> = (0..7)
        .map(|_| text(&home.api("POST", "/api/v1/containers", Some(run.clone())).1, "id").to_owned())
        .collect();
    for id in &ids {
        home.until_seen(id, "state", "running");
    }
    // Each answer takes a while, so that the wishes come together.
    world.change(|world| world["faults"]["slow_millis"] = 300.into());
    for id in &ids {
        let (status, _) = home.api("POST", &format!("/api/v1/containers/{id}/stop"), None);
        assert_eq!(status, 200);
    }
    for id in &ids {
        home.until_seen(id, "state", "terminated");
    }
    let stops = world.read()["stops"].as_object().unwrap().clone();
    assert_eq!(stops.len(), 7, "{stops:?}");
    assert!(stops.values().all(|n| n == 1), "each once: {stops:?}");
    let db = home.sqlite();
    let mut cycles = db.prepare("SELECT waiting FROM reconcile_cycles WHERE provider = 'fake'").unwrap();
    let waiting: Vec<String> = cycles.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(waiting.iter().any(|w| w.contains("max_reconcile_batch (2)")), "{waiting:?}");
    assert_eq!(home.told("stop_sent").len(), 7);
}

#[test]
fn a_provider_that_does_not_answer_in_time_has_not_answered() {
    let world = FakeWorld::new();
    let settings = "[reconciler]\npoll_interval_seconds = 1\nprovider_timeout_seconds = 1\n";
    let home = Home::with_config(&format!("{}{settings}", world.line()));
    let _server = home.up(&[]);
    let id = home.start(&["--provider", "fake"], &["agent"]);
    world.change(|world| world["faults"]["list"] = "hang".into());
    let told = eventually("it is called unreachable", || home.told("provider_unreachable").pop());
    assert!(text(&told, "message").contains("no answer within 1s"), "{told}");
    assert_eq!(home.seen(&id)["state"], "running");
    let said = home.run(&["reconciler", "run"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("fake IS UNREACHABLE since"), "{said:?}");
    assert!(said.err.contains("no answer from fake"), "{said:?}");
    world.change(|world| world["faults"]["list"] = "none".into());
    eventually("it answers again", || home.told("provider_recovered").pop());
    assert_eq!(home.seen(&id)["state"], "running");
}
