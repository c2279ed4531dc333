//! Each situation as the screen tells it.

use std::fmt::Write;

use insta::assert_snapshot;

use super::*;
use crate::api::{CycleView, ForeignView, ProviderStatus};
use crate::container::Container;
use crate::event::Source;
use crate::ids::ContainerId;
use crate::liveness::Ladder;
use crate::reconcile::{ProviderMemory, Waiting};
use crate::sandbox::Exit;
use crate::state::{ContainerState, Desired, Health, TerminationReason};
use crate::time::plus_seconds;

fn at(text: &str) -> Timestamp {
    format!("2026-01-21T{text}Z").parse().unwrap()
}

fn now() -> Timestamp {
    at("12:00:00")
}

fn row() -> Container {
    serde_json::from_value(serde_json::json!({
        "id": "c-0001", "provider": "fake", "instance_id": "i", "state": "running", "sandbox_id": "sb-1",
        "created_at": "2026-01-21T11:00:00Z", "started_at": "2026-01-21T11:00:10Z", "desired": "running",
        "stop_attempts": 0, "create_attempts": 1, "health_status": "healthy", "consecutive_failures": 0,
        "last_heartbeat_at": "2026-01-21T11:59:50Z", "create_attempted_at": "2026-01-21T11:00:05Z",
        "cost_accrued_usd": 0.0, "cost_source": "estimated", "command": ["agent", "--key", "s3cret-argument"],
        "labels": {}, "keep": false, "metadata": {}, "updated_at": "2026-01-21T11:00:10Z",
        "spec": {"container_id": "c-0001", "instance_id": "i", "command": ["agent"], "env": {"KEY": "s3cret"}},
    }))
    .unwrap()
}

fn cycle(why: Option<&str>) -> CycleView {
    let id = ContainerId::parse("c-0001").unwrap();
    CycleView {
        id: 1,
        provider: "fake".into(),
        trigger: "poll".into(),
        started_at: at("11:59:40"),
        finished_at: at("11:59:40"),
        duration_ms: 1.0,
        outcome: "ok".into(),
        error: None,
        provider_containers: 1,
        db_containers: 1,
        suspected: 0,
        orphans_detected: 0,
        adopted: 0,
        started: 0,
        terminated: 0,
        state_corrections: 0,
        foreign: 0,
        actions: 0,
        failures: 0,
        waiting: why.map(|why| Waiting { id: Some(id), why: why.to_owned() }).into_iter().collect(),
        next_at: Some(at("12:00:40")),
    }
}

fn facts(record: Container) -> ContainerFacts {
    ContainerFacts {
        record,
        provider: Word::Present(Phase::Running),
        shown: Vec::new(),
        memory: ProviderMemory::default(),
        cycle: Some(cycle(None)),
        silent_seconds: Some(10.0),
        watching_seconds: 1e6,
        ladder: Ladder::default(),
        settings: Default::default(),
        create_settles_seconds: 30,
        other_home: None,
        events: Vec::new(),
    }
}

fn screen(why: &Why) -> String {
    let json = serde_json::to_string(why).unwrap();
    assert!(!json.contains("s3cret"), "a secret is shown: {json}");
    let mut out = format!("{} {}: {}\n", why.kind, why.id, why.state);
    for one in &why.evidence {
        let _ = writeln!(out, "  {}: {}", one.from, one.says);
    }
    for wait in &why.waiting {
        let _ = write!(out, "  waits for {}", wait.what);
        let _ = wait.until.map(|until| write!(out, ", until {}", until.strftime("%H:%M:%S")));
        let _ = wait.said_at.map(|at| write!(out, " (said at {})", at.strftime("%H:%M:%S")));
        out.push('\n');
    }
    for one in &why.remedies {
        let _ = writeln!(out, "  {} {}: {}", one.who, one.what, one.command.as_deref().unwrap_or("-"));
    }
    for one in &why.events {
        let _ = writeln!(out, "  {} {}", one.event_type, one.message);
    }
    out
}

fn of(facts: &ContainerFacts) -> String {
    screen(&container(facts, now()))
}

fn intent(attempts: i64) -> Container {
    Container {
        state: ContainerState::Created,
        sandbox_id: None,
        started_at: None,
        last_heartbeat_at: None,
        health_status: Health::Unknown,
        create_attempts: attempts,
        create_attempted_at: (attempts > 0).then(|| at("11:59:45")),
        ..row()
    }
}

fn unwanted() -> Container {
    Container {
        desired: Desired::Terminated,
        desired_at: Some(at("11:59:30")),
        desired_by: Some("ann".into()),
        desired_reason: Some(TerminationReason::Manual),
        stop_grace_seconds: Some(60),
        ..row()
    }
}

#[test]
fn creating() {
    let facts = ContainerFacts { provider: Word::Absent, ..facts(intent(0)) };
    assert_snapshot!(of(&facts), @r#"
    container c-0001: It is to be created: fake has not been asked for it yet.
      provider fake now: it has nothing of that name
      heartbeats: none was ever received; health unknown
      create: 0 attempts; no sandbox yet
      waits for the next pass, which asks fake for it, until 12:00:40
      nobody needs to: it is tried until it is seen, refused or given up; a pass at once is: parhelia reconciler run
      an operator gives it up: parhelia containers terminate c-0001
    "#);
}

#[test]
fn created_or_not() {
    let facts = ContainerFacts {
        provider: Word::Unknown("no answer within 5s".into()),
        cycle: Some(cycle(Some("its creation may still arrive; decided in 30s"))),
        ..facts(intent(2))
    };
    assert_snapshot!(of(&facts), @r#"
    container c-0001: Nobody knows whether it was created: fake was asked twice, the last time 15s ago, and has not confirmed it.
      provider fake now: unknown: no answer within 5s
      heartbeats: none was ever received; health unknown
      create: 2 attempts, the last 15s ago; no sandbox yet
      waits for its creation may still arrive; decided in 30s (said at 11:59:40)
      waits for its creation to arrive; from then on a missing one counts as lost, until 12:00:15
      nobody needs to: it is tried until it is seen, refused or given up; a pass at once is: parhelia reconciler run
      an operator gives it up: parhelia containers terminate c-0001
    "#);
}

#[test]
fn taken_and_not_seen_yet() {
    let facts = ContainerFacts {
        provider: Word::Present(Phase::Starting),
        ..facts(Container { sandbox_id: Some("sb-1".into()), ..intent(1) })
    };
    assert_snapshot!(of(&facts), @r#"
    container c-0001: fake has taken it, and it was not seen running yet.
      provider fake now: it is made, and its command does not run yet
      heartbeats: none was ever received; health unknown
      create: 1 attempts, the last 15s ago; sandbox sb-1
      waits for a pass that sees it running, until 12:00:40
      nobody needs to: it is tried until it is seen, refused or given up; a pass at once is: parhelia reconciler run
      an operator gives it up: parhelia containers terminate c-0001
    "#);
}

#[test]
fn running_and_healthy() {
    let mut facts = facts(row());
    facts.shown = vec![Evidence::new("lock", "held: its supervisor lives")];
    facts.events = vec![Event {
        id: 1,
        timestamp: at("11:00:10"),
        event_type: EventType::ContainerStarted,
        container_id: Some("c-0001".into()),
        worker_id: None,
        task_id: None,
        session_id: None,
        old_value: None,
        new_value: None,
        message: Some("Sandbox sb-1 started at fake".into()),
        details: serde_json::json!({}),
        source: Source::Reconciler,
        owner_id: None,
        epoch: None,
    }];
    assert_snapshot!(of(&facts), @r#"
    container c-0001: It runs and is healthy.
      provider fake now: it is running
      lock: held: its supervisor lives
      heartbeats: the last 10s ago; by this server's own clock 10s of silence; health healthy
      an operator ends it: parhelia containers stop c-0001
      container_started Sandbox sb-1 started at fake
    "#);
}

#[test]
fn degraded_with_the_time_to_its_death() {
    let silent =
        Container { health_status: Health::Degraded, last_heartbeat_at: Some(at("11:57:00")), ..row() };
    let facts = ContainerFacts { silent_seconds: Some(180.0), ..facts(silent) };
    assert_snapshot!(of(&facts), @r#"
    container c-0001: It runs by its provider's word, and is silent: degraded.
      provider fake now: it is running
      heartbeats: the last 3m ago; by this server's own clock 3m of silence; health degraded
      waits for a heartbeat; without one it is called unhealthy, until 12:02:00
      waits for a heartbeat; without one it is called dead, until 12:07:00
      waits for a heartbeat; after 4 h without one that was kept, a dead one is ended, until 15:57:00
      an operator sees what it last said: parhelia containers logs c-0001 --tail 50
      an operator ends it: parhelia containers terminate c-0001
    "#);
}

#[test]
fn nobody_is_called_dead_before_the_resumption_window_is_over() {
    let silent = Container { health_status: Health::Unhealthy, ..row() };
    let facts = ContainerFacts { silent_seconds: Some(590.0), watching_seconds: 100.0, ..facts(silent) };
    let why = container(&facts, now());
    let dead = why.waiting.iter().find(|wait| wait.what.contains("called dead")).unwrap();
    assert_eq!(dead.until, Some(plus_seconds(now(), 200)));
}

#[test]
fn dead_and_to_be_ended_by_policy() {
    let dead = Container { health_status: Health::Dead, last_heartbeat_at: Some(at("11:30:00")), ..row() };
    let mut facts = ContainerFacts { silent_seconds: Some(1800.0), ..facts(dead) };
    facts.settings.auto_terminate_stale = true;
    assert_snapshot!(of(&facts), @r#"
    container c-0001: It runs by its provider's word, and was silent for so long that it is called dead.
      provider fake now: it is running
      heartbeats: the last 30m ago; by this server's own clock 30m of silence; health dead
      waits for a heartbeat; after 4 h without one that was kept, a dead one is ended, until 15:30:00
      waits for the next pass, which ends it (auto_terminate_stale is on), until 12:00:40
      an operator sees what it last said: parhelia containers logs c-0001 --tail 50
      an operator ends every dead one, after showing them: parhelia cleanup --dead
      an operator ends it: parhelia containers terminate c-0001
    "#);
}

#[test]
fn an_orphan_in_its_grace() {
    let suspect = Container {
        state: ContainerState::Unknown,
        suspected_at: Some(at("11:59:30")),
        created_at: at("11:59:00"),
        started_at: Some(at("11:59:00")),
        last_heartbeat_at: None,
        health_status: Health::Unknown,
        ..row()
    };
    let why = "suspected: an orphan in 80s unless something claims it";
    assert_snapshot!(of(&ContainerFacts { cycle: Some(cycle(Some(why))), ..facts(suspect) }), @r#"
    container c-0001: It runs with our tag and nobody here asked for it: suspected of being an orphan.
      provider fake now: it is running
      heartbeats: none was ever received; health unknown
      waits for suspected: an orphan in 80s unless something claims it (said at 11:59:40)
      waits for its grace; then it is called an orphan, unless something claims it, until 12:01:00
      an operator ends it now: parhelia containers terminate c-0001
    "#);
}

#[test]
fn an_orphan() {
    let orphan = Container { state: ContainerState::Orphaned, suspected_at: Some(at("11:00:00")), ..row() };
    assert_snapshot!(of(&facts(orphan.clone())), @r#"
    container c-0001: It is an orphan: it runs with our tag, costs, and nobody here asked for it.
      provider fake now: it is running
      heartbeats: the last 10s ago; by this server's own clock 10s of silence; health healthy
      waits for somebody's decision: orphans are not ended by themselves (auto_terminate_orphans is off)
      waits for a heartbeat; after 4 h without one that was kept, a dead one is ended, until 15:59:50
      an operator ends every orphan, after showing them: parhelia cleanup --orphans
      an operator ends this one: parhelia containers terminate c-0001
    "#);
    let mut automatic = facts(orphan);
    automatic.settings.auto_terminate_orphans = true;
    let first = &container(&automatic, now()).waiting[0];
    assert!(first.what.contains("auto_terminate_orphans is on"), "{first:?}");
}

#[test]
fn stopping_receipt_by_receipt() {
    let seen = Container { stop_seen_at: Some(at("11:59:31")), stop_attempts: 1, ..unwanted() };
    let sent = Container { stopping_at: Some(at("11:59:32")), ..seen.clone() };
    let told = "told to stop; force in 42s if it is still there";
    let gone = Container {
        state: ContainerState::Stopped,
        stop_confirmed_at: Some(at("11:59:58")),
        terminated_at: Some(at("11:59:57")),
        termination_reason: Some(TerminationReason::Manual),
        ..sent.clone()
    };
    let exited = Word::Present(Phase::Exited(Exit {
        code: None,
        reason: TerminationReason::Manual,
        at: None,
        message: Some("SIGTERM".into()),
    }));
    let screens = [
        of(&facts(unwanted())),
        of(&facts(seen)),
        of(&ContainerFacts { cycle: Some(cycle(Some(told))), ..facts(sent) }),
        of(&ContainerFacts { provider: exited, ..facts(gone) }),
    ];
    assert_snapshot!(screens.join("\n"), @r#"
    container c-0001: It is being ended: ann has asked for its end (manual) 30s ago.
      provider fake now: it is running
      heartbeats: the last 10s ago; by this server's own clock 10s of silence; health healthy
      stop receipts: requested 30s ago, seen not yet, sent not yet, confirmed gone not yet
      waits for the reconciler to see the request, until 12:00:40
      nobody needs to: it is repeated, with growing pauses, until its end is seen: -
      an operator ends it without further grace: parhelia containers terminate c-0001 --force

    container c-0001: It is being ended: ann has asked for its end (manual) 30s ago.
      provider fake now: it is running
      heartbeats: the last 10s ago; by this server's own clock 10s of silence; health healthy
      stop receipts: requested 30s ago, seen 29s ago, sent not yet, confirmed gone not yet
      waits for fake to take the request
      nobody needs to: it is repeated, with growing pauses, until its end is seen: -
      an operator ends it without further grace: parhelia containers terminate c-0001 --force

    container c-0001: It is being ended: ann has asked for its end (manual) 30s ago.
      provider fake now: it is running
      heartbeats: the last 10s ago; by this server's own clock 10s of silence; health healthy
      stop receipts: requested 30s ago, seen 29s ago, sent 28s ago, confirmed gone not yet
      waits for told to stop; force in 42s if it is still there (said at 11:59:40)
      waits for its own end; then force, until 12:00:32
      nobody needs to: it is repeated, with growing pauses, until its end is seen: -
      an operator ends it without further grace: parhelia containers terminate c-0001 --force

    container c-0001: It has ended (manual), and its end is being recorded.
      provider fake now: it has ended: manual (SIGTERM)
      heartbeats: the last 10s ago; by this server's own clock 10s of silence; health healthy
      stop receipts: requested 30s ago, seen 29s ago, sent 28s ago, confirmed gone 2s ago
      waits for the next pass, which records it as terminated, until 12:00:40
      an operator has that pass made now: parhelia reconciler run
    "#);
}

#[test]
fn a_stop_that_fails() {
    let failing = Container {
        stop_seen_at: Some(at("11:59:31")),
        stop_attempts: 3,
        stop_error: Some("permission denied".into()),
        ..unwanted()
    };
    let why = "the provider refused to stop it (permission denied); asked again in 8s";
    assert_snapshot!(of(&ContainerFacts { cycle: Some(cycle(Some(why))), ..facts(failing) }), @r#"
    container c-0001: It still runs although ann has asked for its end (manual): fake refuses to end it.
      provider fake now: it is running
      heartbeats: the last 10s ago; by this server's own clock 10s of silence; health healthy
      stop receipts: requested 30s ago, seen 29s ago, sent not yet, confirmed gone not yet
      last stop: attempt 3 failed: permission denied
      waits for the provider refused to stop it (permission denied); asked again in 8s (said at 11:59:40)
      waits for the next attempt; 3 times so far, until 12:00:40
      nobody needs to: it is repeated, with growing pauses, until its end is seen: -
      whoever runs the server sees to it that fake can end it; what is wrong is said by: parhelia doctor
    "#);
}

#[test]
fn a_home_without_a_server() {
    let mut facts = facts(row());
    facts.record.desired = Desired::Terminated;
    facts.provider = Word::Unasked("this server has no provider process:a4690580; another server may".into());
    let home = |is_served| Some(OtherHome { id: "a4690580".into(), host: Some("box-2".into()), is_served });
    facts.other_home = home(true);
    assert!(of(&facts).contains("waits for the reconciler to see the request"), "{}", of(&facts));
    facts.other_home = home(false);
    assert_snapshot!(of(&facts), @"
    container c-0001: It is being ended: somebody has asked for its end 0s ago.
      provider fake now: not asked: this server has no provider process:a4690580; another server may
      heartbeats: the last 10s ago; by this server's own clock 10s of silence; health healthy
      stop receipts: requested not yet, seen not yet, sent not yet, confirmed gone not yet
      waits for the next server of its home a4690580 on box-2: no other can see or end it
      whoever runs the server starts the server of the home a4690580 on box-2: parhelia up
    ");
}

#[test]
fn a_provider_that_does_not_answer() {
    let mut facts = facts(row());
    facts.provider = Word::Unknown("no answer within 5s".into());
    facts.memory.unreachable_since = Some(at("11:58:00"));
    assert_snapshot!(of(&facts), @r#"
    container c-0001: By its record it runs (healthy). fake does not answer now, and nothing is concluded from that.
      provider fake now: unknown: no answer within 5s
      heartbeats: the last 10s ago; by this server's own clock 10s of silence; health healthy
      reconciler: fake has not answered since 2026-01-21T11:58:00Z; nothing is concluded from that
      waits for fake to answer again; it is asked at every pass, until 12:00:40
      whoever runs the server brings fake back; what is wrong is said by: parhelia doctor
      an operator ends it: parhelia containers stop c-0001
    "#);
}

#[test]
fn the_breaker_is_open() {
    let mut facts = facts(row());
    facts.provider = Word::Absent;
    facts.memory.breaker_since = Some(at("11:59:40"));
    facts.memory.breaker_agreed = 1;
    facts.memory.breaker_agreed_at = Some(at("11:59:55"));
    facts.cycle = Some(cycle(Some(
        "too many vanished at once; waiting until three listings and the inspections agree",
    )));
    assert_snapshot!(of(&facts), @r#"
    container c-0001: By its record it runs. It vanished from fake together with too many others, and that is not believed yet.
      provider fake now: it has nothing of that name
      heartbeats: the last 10s ago; by this server's own clock 10s of silence; health healthy
      reconciler: too many vanished from fake at once; the breaker is open since 2026-01-21T11:59:40Z
      waits for the next pass: the record does not say yet what the provider just said, until 12:00:40
      waits for three complete listings that agree with the inspections (1 so far), until 12:00:05
      waits for too many vanished at once; waiting until three listings and the inspections agree (said at 11:59:40)
      nobody needs to: it closes when they are there again, or are agreed to be gone: parhelia reconciler status
      an operator ends it: parhelia containers stop c-0001
    "#);
}

#[test]
fn terminated_with_its_reason() {
    let over = Container {
        state: ContainerState::Terminated,
        terminated_at: Some(at("11:50:00")),
        exit_code: Some(137),
        termination_reason: Some(TerminationReason::Oom),
        ..row()
    };
    let exit = Exit { code: Some(137), reason: TerminationReason::Oom, at: None, message: None };
    let facts = ContainerFacts { provider: Word::Present(Phase::Exited(exit)), ..facts(over) };
    assert_snapshot!(of(&facts), @r#"
    container c-0001: It has ended 10m ago: oom, exit code 137. It took more memory than it may.
      provider fake now: it has ended: oom, exit code 137
      heartbeats: the last 10s ago; by this server's own clock 10s of silence; health healthy
      an operator reads what it left: parhelia containers logs c-0001
    "#);
}

#[test]
fn every_reason_has_a_meaning() {
    for reason in TerminationReason::ALL {
        let over =
            Container { state: ContainerState::Terminated, termination_reason: Some(*reason), ..row() };
        let state = container(&facts(over), now()).state;
        assert!(state.matches('.').count() >= 2 && state.len() > 40, "{reason}: {state}");
    }
}

#[test]
fn a_row_that_cannot_be_read() {
    let id = ContainerId::parse("c-0001").unwrap();
    assert_snapshot!(screen(&unreadable(&id, "container: column 16 holds something that this program cannot read: 'both'", &[], now())), @r#"
    container c-0001: Its record cannot be read, so nothing is decided about it.
      store: container: column 16 holds something that this program cannot read: 'both'
      waits for somebody who repairs its row: until then no pass sees it, and nothing of it is ended
      whoever runs the server repairs that column of its row in 'containers', or puts a backup back: parhelia doctor
    "#);
}

#[test]
fn a_sandbox_of_somebody_else() {
    let view = ForeignView {
        provider: "fake".into(),
        sandbox: "sb-9".into(),
        container_id: "c-0009".into(),
        task: None,
        name: None,
        age: 7200,
        cost: 1.0,
        cost_per_hour_usd: 0.5,
        first_seen_at: at("11:00:00"),
        last_seen_at: at("11:59:40"),
    };
    assert_snapshot!(screen(&foreign(&view, "2222", now())), @r#"
    foreign c-0009: It belongs to another instance (2222): it is shown with its cost, and left alone.
      provider fake: sandbox sb-9 was last seen 20s ago
      age: 2h 0m; first seen here 1h 0m ago
      cost: $1.0000 so far, $0.5000 an hour
      waits for its own control plane; nothing here touches it until that instance is adopted
      an admin takes the whole instance over, for example when its data is lost: parhelia instances adopt 2222
    "#);
}

#[test]
fn a_provider_itself() {
    let status = ProviderStatus {
        name: "docker".into(),
        identity: Some("engine-1".into()),
        unreachable_since: Some(at("11:58:00")),
        breaker_since: None,
        breaker_agreed: 0,
        last_cycle: Some(cycle(None)),
    };
    let facts = ProviderFacts {
        status,
        answer: Err("the engine at unix:///var/run/docker.sock does not answer".into()),
        answered_in_ms: 1.0,
        containers: 3,
        events: Vec::new(),
    };
    assert_snapshot!(screen(&provider(&facts, now())), @r#"
    provider docker: docker does not answer: its containers are left as they are.
      now: unknown: the engine at unix:///var/run/docker.sock does not answer
      containers: 3 that are not over
      last pass: 20s ago (poll), ok: 0 actions, 0 failures
      waits for an answer; there was none since 2026-01-21T11:58:00Z, and it is asked at every pass, until 12:00:40
      whoever runs the server finds out what is wrong with it: parhelia doctor
      an operator has it looked at now: parhelia reconciler run
    "#);
}
