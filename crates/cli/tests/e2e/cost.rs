//! What is spent: by the price that held at the time, over restarts, and never after the end.

use serde_json::Value;

use crate::harness::{FakeWorld, Home, eventually, moment, stored_moment, text};

fn price(provider: &str, from: &str, sandbox_hour: f64) -> String {
    format!("[[prices]]\nprovider = '{provider}'\neffective_from = '{from}'\nsandbox_hour = {sandbox_hour}\n")
}

fn figure(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("{field} is no number in {value}"))
}

fn near(value: f64, expected: f64, least_more: f64) {
    assert!((expected..expected + least_more).contains(&value), "{value} is not just above {expected}");
}

#[test]
fn each_stretch_costs_what_it_cost_then_and_a_restart_changes_nothing() {
    let raised = moment(-1800).to_string();
    let config = [price("process", &raised, 3.0), price("process", "2020-01-01T00:00:00Z", 1.0)].concat();
    let home = Home::with_config(&config);
    let server = home.up(&[]);
    let old = home.start(&[], &["sleep", "600"]);
    let young = home.start(&[], &["sleep", "600"]);
    home.sqlite()
        .execute("UPDATE containers SET started_at = ?1 WHERE id = ?2", [stored_moment(-7200), old.clone()])
        .unwrap();
    // An hour and a half at a dollar, half an hour at three.
    let check = || {
        let seen = home.container(&old);
        near(figure(&seen, "cost"), 3.0, 0.2);
        assert_eq!(figure(&seen, "cost"), figure(&seen, "cost_accrued_usd"));
        assert_eq!((figure(&seen, "cost_rate_per_hour"), text(&seen, "cost_source")), (3.0, "estimated"));
        near(figure(&home.container(&young), "cost"), 0.0, 0.2);
        let (_, list) = home.api("GET", "/api/v1/containers", None);
        assert_eq!(figure(&list["totals"], "cost_per_hour_usd"), 6.0);
        near(figure(&list["totals"], "cost_accrued_usd"), 3.0, 0.4);
        let screen = home.ok(&["containers"]);
        let total = screen.lines().last().unwrap();
        assert!(total.contains("| Cost: $3.") && total.ends_with(" accrued, $6.00/hr"), "{total}");
        figure(&seen, "cost")
    };
    let before = check();
    server.kill();
    let server = home.up(&[]);
    let after = check();
    assert!(after >= before, "it goes on where it was");
    home.ok(&["containers", "terminate", "--force", "--yes", &old]);
    let ended = home.container(&old);
    let spent = figure(&ended, "cost");
    near(spent, 3.0, 0.3);
    drop(server);
    let _server = home.up(&[]);
    home.reconcile();
    assert_eq!(figure(&home.container(&old), "cost"), spent, "and not a cent after the end");
    let (_, list) = home.api("GET", "/api/v1/containers", None);
    assert_eq!(figure(&list["totals"], "cost_per_hour_usd"), 3.0, "what has ended costs nothing per hour");
}

#[test]
fn what_ended_during_an_outage_cost_until_its_true_end() {
    // A dollar a second: whatever is counted too long shows.
    let home = Home::with_config(&price("process", "2020-01-01T00:00:00Z", 3600.0));
    let server = home.up(&[]);
    let gate = home.path().join("gate");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done; exit 3", gate.display());
    let id = home.start(&[], &["sh", "-c", &script]);
    let overcharged = home.start(&[], &["sh", "-c", &script]);
    let dirs = [&id, &overcharged].map(|id| home.job_dir(&home.seen(id)));
    server.kill();
    std::fs::write(&gate, "").unwrap();
    for dir in &dirs {
        eventually("it has ended without us", || dir.join("result.json").exists().then_some(()));
    }
    home.sqlite()
        .execute("UPDATE containers SET cost_accrued_usd = 999 WHERE id = ?1", [overcharged.as_str()])
        .unwrap();
    // The outage goes on: by at least two dollars.
    let missed: jiff::Timestamp = moment(0);
    eventually("two seconds have passed", || {
        (parhelia_core::time::seconds_between(missed, moment(0)) > 2.0).then_some(())
    });
    let _server = home.up(&[]);
    for id in [&id, &overcharged] {
        let ended = home.until_seen(id, "state", "terminated");
        assert_eq!((ended["exit_code"].as_i64(), text(&ended, "termination_reason")), (Some(3), "failed"));
        let at = |field: &str| -> jiff::Timestamp { text(&ended, field).parse().unwrap() };
        assert!(at("terminated_at") <= missed, "the true end, not when we saw it: {ended}");
        let ran = parhelia_core::time::seconds_between(at("started_at"), at("terminated_at"));
        let cost = figure(&ended, "cost");
        assert!((cost - ran).abs() < 0.002, "{cost} for {ran} s: {ended}");
        home.reconcile();
        assert_eq!(figure(&home.seen(id), "cost"), cost, "it does not grow");
    }
    let corrected = home.told("cost_corrected");
    assert_eq!(corrected.len(), 1, "{corrected:?}");
    assert_eq!(text(&corrected[0], "container_id"), overcharged);
    assert_eq!(text(&corrected[0], "old_value"), "999");
    let new: f64 = text(&corrected[0], "new_value").parse().unwrap();
    assert!((new - figure(&home.seen(&overcharged), "cost")).abs() < 0.002, "{corrected:?}");
    assert!(text(&corrected[0], "message").contains("earlier than was counted"), "{corrected:?}");
}

#[test]
fn local_processes_cost_nothing_unless_a_price_says_so() {
    let world = FakeWorld::new();
    let fake = "[[prices]]\nprovider = 'fake'\neffective_from = '2020-01-01T00:00:00Z'\ncpu_core_second = 0.0001\n\
                memory_gib_second = 0.00001\ngpu_second = { H100 = 0.001 }\ndefault_cpu_cores = 0.5\n\
                default_memory_mb = 2048\n";
    let home = Home::with_config(&format!("{}{fake}", world.line()));
    let _server = home.up(&[]);
    let local = home.start(&["--cpu", "4", "--memory", "8g"], &["sleep", "600"]);
    let seen = home.container(&local);
    assert_eq!((figure(&seen, "cost"), figure(&seen, "cost_rate_per_hour")), (0.0, 0.0));
    assert!(home.ok(&["containers"]).ends_with("| Cost: $0.00 accrued, $0.00/hr\n"));
    let sized =
        home.start(&["--provider", "fake", "--cpu", "2", "--memory", "4g", "--gpu", "h100"], &["agent"]);
    let rate = figure(&home.container(&sized), "cost_rate_per_hour");
    assert!((rate - 3600.0 * (2.0 * 0.0001 + 4.0 * 0.00001 + 0.001)).abs() < 1e-9, "{rate}");
    let plain = home.start(&["--provider", "fake"], &["agent"]);
    let rate = figure(&home.container(&plain), "cost_rate_per_hour");
    assert!(
        (rate - 3600.0 * (0.5 * 0.0001 + 2.0 * 0.00001)).abs() < 1e-9,
        "what it is billed for by default: {rate}"
    );
}
