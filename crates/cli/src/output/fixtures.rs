//! The seed's example data, for the tests of the screens.

use jiff::Timestamp;
use parhelia_core::api::{ContainerView, CycleView, ProviderStatus, ReconcilerStatus};
use parhelia_core::container::Container;
use parhelia_core::event::{Event, EventType, Source};
use parhelia_core::ids::ContainerId;
use parhelia_core::state::{ContainerState, CostSource, Desired, Health};

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(crate) fn plain(screen: &str) -> String {
    anstream::adapter::strip_str(screen).to_string()
}

/// The container of the seed's `containers show`.
pub(crate) fn seed_container() -> ContainerView {
    let record = Container {
        id: ContainerId::parse("c-abc123").unwrap(),
        provider: "modal".into(),
        provider_identity: None,
        sandbox_id: Some("sb-xyz789".into()),
        instance_id: "i".into(),
        name: None,
        worker_id: Some("w-mno345".into()),
        task_id: Some("ta-def456".into()),
        session_id: Some("sess-pqr678".into()),
        state: ContainerState::Running,
        created_at: at("2026-01-21T14:30:00Z"),
        started_at: Some(at("2026-01-21T14:30:15Z")),
        terminated_at: None,
        exit_code: None,
        termination_reason: None,
        suspected_at: None,
        desired: Desired::Running,
        desired_at: None,
        desired_by: None,
        desired_reason: None,
        stop_grace_seconds: None,
        stop_seen_at: None,
        stopping_at: None,
        stop_confirmed_at: None,
        stop_attempts: 0,
        stop_attempted_at: None,
        stop_error: None,
        create_attempts: 1,
        create_attempted_at: None,
        last_heartbeat_at: Some(at("2026-01-21T16:44:45Z")),
        health_status: Health::Healthy,
        consecutive_failures: 0,
        cpu_percent: Some(45.0),
        memory_percent: Some(62.0),
        memory_used_mb: Some(5079),
        disk_percent: None,
        uptime_seconds: Some(8100),
        cpu_cores: Some(4.0),
        memory_mb: Some(8192),
        gpu_type: None,
        region: Some("us-east".into()),
        cost_accrued_usd: 1.23,
        cost_rate_per_hour: Some(0.54),
        cost_source: CostSource::Estimated,
        image: None,
        command: vec![],
        labels: Default::default(),
        keep: false,
        spec: None,
        metadata: serde_json::json!({}),
        updated_at: at("2026-01-21T16:44:45Z"),
    };
    ContainerView {
        sandbox: record.sandbox_id.clone(),
        health: record.health_status,
        task: record.task_id.clone(),
        task_title: Some("Run tests for auth module".into()),
        age: 8115,
        cost: 1.23,
        suspected: false,
        record,
    }
}

/// A row of the seed's list.
pub(crate) fn seed_row(
    (id, sandbox): (&str, &str),
    (state, health): (ContainerState, Health),
    task: Option<&str>,
    (age, cost): (i64, f64),
) -> ContainerView {
    let mut view = seed_container();
    view.record.id = ContainerId::parse(id).unwrap();
    view.record.state = state;
    view.sandbox = Some(sandbox.into());
    view.health = health;
    view.task = task.map(str::to_owned);
    view.age = age;
    view.cost = cost;
    view
}

pub(crate) fn event(id: i64, timestamp: &str, event_type: EventType, message: &str) -> Event {
    Event {
        id,
        timestamp: at(timestamp),
        event_type,
        container_id: Some("c-abc123".into()),
        worker_id: None,
        task_id: None,
        session_id: None,
        old_value: None,
        new_value: None,
        message: Some(message.into()),
        details: serde_json::json!({}),
        source: Source::Reconciler,
        owner_id: None,
        epoch: None,
    }
}

/// The seed's `reconciler status`, asked at 14:31:00.
pub(crate) fn reconciler() -> ReconcilerStatus {
    let cycle = CycleView {
        id: 1,
        provider: "modal".into(),
        trigger: "poll".into(),
        started_at: at("2026-01-21T14:30:29Z"),
        finished_at: at("2026-01-21T14:30:30Z"),
        duration_ms: 1000.0,
        outcome: "ok".into(),
        error: None,
        provider_containers: 5,
        db_containers: 4,
        suspected: 0,
        orphans_detected: 1,
        adopted: 0,
        started: 0,
        terminated: 0,
        state_corrections: 0,
        foreign: 0,
        actions: 1,
        failures: 0,
        waiting: vec![],
        next_at: None,
    };
    let provider = ProviderStatus {
        name: "modal".into(),
        identity: None,
        unreachable_since: None,
        breaker_since: None,
        breaker_agreed: 0,
        last_cycle: Some(cycle),
    };
    ReconcilerStatus {
        running: true,
        last_run_at: Some(at("2026-01-21T14:30:30Z")),
        next_run_at: Some(at("2026-01-21T14:31:30Z")),
        poll_interval_seconds: 60,
        auto_terminate_orphans: false,
        auto_terminate_stale: false,
        providers: vec![provider],
    }
}
