use super::*;
use crate::event::Source;
use crate::ids::ContainerId;

fn at(text: &str) -> Timestamp {
    format!("2026-01-21T{text}Z").parse().unwrap()
}

fn id() -> ContainerId {
    ContainerId::parse("c-0001").unwrap()
}

fn row() -> Container {
    serde_json::from_value(serde_json::json!({
        "id": "c-0001", "provider": "fake", "instance_id": "i", "state": "running",
        "created_at": "2026-01-21T10:00:00Z", "started_at": "2026-01-21T10:00:10Z", "desired": "running",
        "stop_attempts": 0, "create_attempts": 1, "health_status": "healthy", "consecutive_failures": 0,
        "cost_accrued_usd": 0.0, "cost_rate_per_hour": 3.6, "cost_source": "estimated", "command": ["agent"],
        "labels": {}, "keep": false, "metadata": {}, "updated_at": "2026-01-21T10:00:10Z",
    }))
    .unwrap()
}

fn kept(id_of_event: i64, time: &str, event: NewEvent) -> Event {
    Event {
        id: id_of_event,
        timestamp: at(time),
        event_type: event.event_type,
        container_id: event.container_id,
        worker_id: None,
        task_id: None,
        session_id: None,
        old_value: event.old_value,
        new_value: event.new_value,
        message: Some(event.message),
        details: event.details,
        source: event.source,
        owner_id: None,
        epoch: None,
    }
}

fn event(kind: EventType, old: &str, new: &str) -> NewEvent {
    NewEvent::new(kind, Source::Reconciler, "").container(&id()).change(old, new)
}

fn running() -> Recorded {
    Recorded {
        started_at: Some(at("10:00:10")),
        cost_usd: 0.01,
        ..Recorded::intent(Some(3.6), at("10:00:20"))
    }
}

fn life() -> Vec<Event> {
    let ended = Recorded { terminated_at: Some(at("11:00:10")), cost_usd: 3.6, ..running() };
    let wish = NewEvent::new(EventType::StopRequested, Source::User, "")
        .container(&id())
        .details(serde_json::json!({ "by": "ann", "reason": "manual", "grace_seconds": 30 }));
    vec![
        kept(
            1,
            "10:00:00",
            event(EventType::ContainerCreated, "none", "created")
                .recording(&Recorded::intent(Some(3.6), at("10:00:00"))),
        ),
        kept(2, "10:00:20", event(EventType::ContainerStarted, "created", "running").recording(&running())),
        kept(3, "10:00:40", event(EventType::ContainerHealthy, "unknown", "healthy")),
        kept(4, "10:30:00", event(EventType::ContainerDegraded, "healthy", "degraded")),
        kept(5, "11:00:00", wish),
        kept(6, "11:00:12", event(EventType::ContainerTerminated, "running", "terminated").recording(&ended)),
    ]
}

fn then(events: &[Event], row: Container, time: &str) -> String {
    let prices = Prices::new(Vec::new());
    match &rebuild(vec![row], events, at(time), &prices)[..] {
        [] => "nothing".to_owned(),
        [one] => format!(
            "{} {} {} {:.2}",
            one.record.state,
            one.health,
            one.record.desired,
            (one.cost * 100.0).round() / 100.0
        ),
        more => panic!("{} rows of one", more.len()),
    }
}

#[test]
fn a_life_is_read_off_at_any_moment() {
    let events = life();
    let ended = Container { state: ContainerState::Terminated, desired: Desired::Terminated, ..row() };
    for (time, expected) in [
        ("09:59:59", "nothing"),
        ("10:00:00", "created unknown running 0.00"),
        ("10:00:20", "running unknown running 0.01"),
        ("10:10:10", "running healthy running 0.60"),
        ("10:30:00", "running degraded running 1.79"),
        ("11:00:00", "running degraded terminated 3.59"),
        ("11:30:00", "terminated degraded terminated 3.60"),
    ] {
        assert_eq!(then(&events, ended.clone(), time), expected, "{time}");
    }
}

#[test]
fn what_is_older_than_the_history_is_told_by_what_came_later() {
    // Retention has taken everything before the degradation.
    let events = life().split_off(3);
    let ended = Container {
        state: ContainerState::Terminated,
        desired: Desired::Terminated,
        health_status: Health::Degraded,
        ..row()
    };
    assert_eq!(then(&events, ended.clone(), "10:20:00"), "running healthy running 0.00");
    assert_eq!(then(&events, ended, "10:40:00"), "running degraded running 0.00");
    assert_eq!(then(&[], row(), "10:40:00"), "running healthy running 0.00", "nothing has changed since");
}

#[test]
fn a_clock_that_was_set_back_turns_no_history_round() {
    let mut events = life();
    events[3].timestamp = at("12:00:00");
    // 10:30 came twice; the second time it was degraded already.
    events[4].timestamp = at("10:20:00");
    let ended = Container { state: ContainerState::Terminated, desired: Desired::Terminated, ..row() };
    assert_eq!(then(&events, ended.clone(), "10:10:00"), "running healthy running 0.59");
    assert_eq!(then(&events, ended, "10:30:00"), "running degraded terminated 1.79");
}

#[test]
fn nothing_is_spent_before_the_start() {
    let record =
        Recorded { started_at: Some(at("10:00:00")), cost_at: at("09:00:00"), cost_usd: 0.0, ..running() };
    assert_eq!(record.cost_at(at("09:30:00"), true), 0.0);
    assert!((record.cost_at(at("10:00:10"), true) - 0.01).abs() < 1e-9);
    assert_eq!(record.cost_at(at("11:00:00"), false), 0.0, "it no longer counts");
    let billed = Recorded { cost_source: CostSource::Reported, cost_usd: 7.0, ..record };
    assert_eq!(billed.cost_at(at("12:00:00"), true), 7.0, "the provider's own figure stands until its next");
}
