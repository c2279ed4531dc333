//! Text worlds: one line a job, and what is made of it. `beat` is the wall-clock age of its sentinel's heartbeat,
//! `silent` how long the observer has seen no new one.

use insta::assert_snapshot;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::job::job_id;
use crate::job::recovery::{Fate, RecoveryView, plan_recovery};

fn now() -> Timestamp {
    "2026-01-21T12:00:00Z".parse().unwrap()
}

fn back(seconds: f64) -> Timestamp {
    now().saturating_sub(SignedDuration::from_secs_f64(seconds)).unwrap()
}

/// `STATUS [waiting] [lock=held|free|rebooted|unknown] [beat=SECONDS|missing|empty|corrupt] [silent=SECONDS] [heard]
/// [result=REASON[:CODE]] [container=STATE] [health=HEALTH] [codes=3,4] [nofiles] [asks=REASON]`
fn evidence(line: &str) -> Evidence {
    let mut words = line.split_whitespace();
    let id = ContainerId::parse("c-01k9z3q8xw4f7m2a").unwrap();
    let status: JobStatus = words.next().unwrap().parse().unwrap();
    let job = Job {
        id: job_id(&id),
        container_id: id.clone(),
        name: Some("j".into()),
        engine: "sh".into(),
        origin_id: None,
        timeout_seconds: None,
        interactive: false,
        created_at: back(3600.0),
        created_by: "me".into(),
        status,
        status_at: back(1800.0),
        status_reason: None,
        activity: JobActivity::Running,
        waiting_reason: None,
        waiting_since: None,
        agent_session: None,
        heartbeat_at: (status != JobStatus::Pending).then(|| back(30.0)),
        reattached_at: None,
        reattached_count: 0,
        reattach_ms: None,
        ended_at: (status == JobStatus::Dead).then(|| back(30.0)),
        exit_code: None,
        cleanup_at: (status == JobStatus::Dead).then(now),
        cleaned_at: None,
    };
    let container = ContainerSeen {
        id,
        provider: "process".into(),
        last_heartbeat_at: None,
        task_id: None,
        state: ContainerState::Running,
        health: Health::Unknown,
        exit_code: None,
        reason: None,
        terminated_at: None,
        desired_by: None,
        refusal: None,
    };
    let beat = Beat {
        heartbeat_at: back(30.0),
        started_at: back(3600.0),
        activity: JobActivity::Running,
        waiting_reason: None,
        session: None,
    };
    let files = JobFacts {
        sentinel: SentinelSeen::Read(beat.clone()),
        lock: LockSeen::Held,
        result: ResultSeen::Missing,
    };
    let mut all = Evidence {
        job,
        container,
        files: Some(files),
        silent_seconds: 0.0,
        heard: false,
        waiting_codes: vec![],
    };
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let files = all.files.as_mut().unwrap();
        match key {
            "why" => all.job.status_reason = Some(value.into()),
            "waiting" => {
                all.job.activity = JobActivity::Waiting;
                all.job.waiting_reason = Some("which branch?".into());
            }
            "lock" => {
                files.lock = match value {
                    "held" => LockSeen::Held,
                    "free" => LockSeen::Free { rebooted: false },
                    "rebooted" => LockSeen::Free { rebooted: true },
                    _ => LockSeen::Unknown { why: "its lock is elsewhere".into() },
                }
            }
            "beat" => {
                files.sentinel = match value {
                    "missing" => SentinelSeen::Missing,
                    "empty" => SentinelSeen::Empty,
                    "corrupt" => SentinelSeen::Corrupt { why: "expected value at line 1".into() },
                    age => {
                        SentinelSeen::Read(Beat { heartbeat_at: back(age.parse().unwrap()), ..beat.clone() })
                    }
                }
            }
            "asks" => {
                files.sentinel = SentinelSeen::Read(Beat {
                    activity: JobActivity::Waiting,
                    waiting_reason: Some(value.replace('_', " ")),
                    ..beat.clone()
                })
            }
            "silent" => all.silent_seconds = value.parse().unwrap(),
            "heard" => all.heard = true,
            "result" => {
                let (reason, code) = value.split_once(':').unwrap_or((value, ""));
                files.result = ResultSeen::Read(Ending {
                    exit_code: code.parse().ok(),
                    reason: reason.parse().unwrap(),
                    message: None,
                    at: back(10.0),
                    waiting_reason: None,
                    session: None,
                })
            }
            "container" => {
                all.container.state = value.parse().unwrap();
                all.container.terminated_at = Some(back(5.0));
            }
            "reason" => all.container.reason = Some(value.parse().unwrap()),
            "refusal" => all.container.refusal = Some(value.replace('_', " ")),
            "by" => all.container.desired_by = Some(value.into()),
            "health" => all.container.health = value.parse().unwrap(),
            "codes" => all.waiting_codes = value.split(',').map(|code| code.parse().unwrap()).collect(),
            "nofiles" => {}
            other => panic!("{other}?"),
        }
        if key == "nofiles" {
            all.files = None;
            break;
        }
    }
    all
}

fn shown(judged: &Judgement) -> String {
    let note = &judged.note;
    let told: Vec<_> = judged.events.iter().map(|event| event.event_type.as_str()).collect();
    let code = note.exit_code.map(|code| format!(" code={code}")).unwrap_or_default();
    let waits = note.waiting_reason.as_ref().map(|reason| format!(" waits={reason:?}")).unwrap_or_default();
    let reason = note.status_reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{}{reason}{code}{waits} [{}]", note.status, told.join(" "))
}

/// What the ordinary check makes of each line.
fn judged(world: &str, settled: bool) -> String {
    let lines = world.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let judged = judge(&evidence(line), &Rules::default(), settled, now());
            let said = judged.map_or_else(|| "nothing new".to_owned(), |judged| shown(&judged));
            format!("{line}\n  {said}\n")
        })
        .collect()
}

/// What a start makes of each line, `since` seconds after it.
fn recovered(world: &str, since: f64) -> String {
    let lines = world.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let view = RecoveryView {
                jobs: &[evidence(line)],
                rules: &Rules::default(),
                since_seconds: since,
                started_ms: 250,
            };
            let plan = plan_recovery(&view, now());
            let said = match &plan.fates[0].1 {
                Fate::Finished(judged) => format!("finished: {}", shown(judged)),
                Fate::Reattached(judged) => {
                    format!("reattached after {:?} ms: {}", judged.note.reattach_ms, shown(judged))
                }
                Fate::Watch { until, why } => format!("watch until {until}: {why}"),
                Fate::Dead(judged) => format!("dead: {}", shown(judged)),
                Fate::Pending => "pending".to_owned(),
            };
            assert_eq!(plan.waiting.is_empty(), plan.wake_at.is_none());
            format!("{line}\n  {said}\n")
        })
        .collect()
}

#[test]
fn the_boundaries_of_silence_where_the_lock_says_nothing() {
    let world = "
        fresh lock=unknown silent=119 heard
        fresh lock=unknown silent=120 heard
        stale lock=unknown silent=599 heard
        fresh lock=unknown silent=600 heard
        stale lock=unknown silent=601 heard
        dead lock=unknown silent=5 heard
        dead lock=unknown silent=5
    ";
    assert_snapshot!(judged(world, true), @"
    fresh lock=unknown silent=119 heard
      nothing new
    fresh lock=unknown silent=120 heard
      stale (there was no heartbeat for 2m or more) [job_stale]
    stale lock=unknown silent=599 heard
      stale (there was no heartbeat for 2m or more) []
    fresh lock=unknown silent=600 heard
      stale (there was no heartbeat for 2m or more) [job_stale]
    stale lock=unknown silent=601 heard
      dead (no heartbeat for more than 10m) [job_dead]
    dead lock=unknown silent=5 heard
      fresh [job_recovered]
    dead lock=unknown silent=5
      nothing new
    ");
}

#[test]
fn a_held_lock_is_stale_at_worst_and_a_free_one_is_the_end_at_once() {
    let world = "
        fresh lock=held silent=100000
        reattached lock=held silent=119
        reattached lock=held silent=120
        stale lock=held silent=1 heard
        fresh lock=free silent=1
        fresh lock=rebooted silent=1
        fresh lock=free silent=1 container=terminated reason=external
        pending lock=free beat=missing
        pending lock=free beat=30
    ";
    assert_snapshot!(judged(world, true), @"
    fresh lock=held silent=100000
      stale (there was no heartbeat for 2m or more; its lock is held, so it lives) [job_stale]
    reattached lock=held silent=119
      nothing new
    reattached lock=held silent=120
      stale (there was no heartbeat for 2m or more; its lock is held, so it lives) [job_stale]
    stale lock=held silent=1 heard
      fresh [job_recovered]
    fresh lock=free silent=1
      failed (its supervisor died without a result) [job_failed]
    fresh lock=rebooted silent=1
      failed (its machine was restarted) [job_failed]
    fresh lock=free silent=1 container=terminated reason=external
      failed (it disappeared, and nobody asked for that) [job_failed]
    pending lock=free beat=missing
      nothing new
    pending lock=free beat=30
      failed (its supervisor died without a result) [job_failed]
    ");
}

#[test]
fn a_sentinel_that_says_nothing_leaves_it_to_the_lock() {
    let world = "
        pending lock=held beat=missing silent=119
        pending lock=held beat=missing silent=120
        fresh lock=held beat=missing silent=60
        fresh lock=held beat=empty silent=60
        fresh lock=held beat=corrupt silent=60
        fresh lock=held beat=corrupt silent=120
        fresh lock=free beat=corrupt silent=1
        fresh lock=unknown beat=empty silent=601
        fresh lock=held beat=-3600 silent=1 heard
        fresh lock=unknown beat=-3600 silent=601 heard
    ";
    assert_snapshot!(judged(world, true), @"
    pending lock=held beat=missing silent=119
      nothing new
    pending lock=held beat=missing silent=120
      stale (it has no sentinel, and there was no heartbeat for 2m or more; its lock is held, so it lives) [job_stale]
    fresh lock=held beat=missing silent=60
      nothing new
    fresh lock=held beat=empty silent=60
      nothing new
    fresh lock=held beat=corrupt silent=60
      nothing new
    fresh lock=held beat=corrupt silent=120
      stale (its sentinel cannot be read, and there was no heartbeat for 2m or more; its lock is held, so it lives) [job_stale]
    fresh lock=free beat=corrupt silent=1
      failed (its supervisor died without a result) [job_failed]
    fresh lock=unknown beat=empty silent=601
      dead (no heartbeat for more than 10m) [job_dead]
    fresh lock=held beat=-3600 silent=1 heard
      fresh (its heartbeat is from the future: compare the clock of its machine) []
    fresh lock=unknown beat=-3600 silent=601 heard
      dead (no heartbeat for more than 10m) [job_dead]
    ");
}

#[test]
fn a_result_is_the_truth_whatever_else_is_there() {
    let world = "
        fresh result=completed:0
        stale lock=free beat=missing result=failed:7
        fresh lock=free result=crash
        fresh result=manual:143 by=local
        fresh result=failed:3 codes=3,4
        fresh waiting result=failed:4 codes=3,4
        fresh result=failed:5 codes=3,4
        dead lock=unknown result=completed:0
        pending lock=free beat=missing result=start_failed:127
    ";
    assert_snapshot!(judged(world, true), @r#"
    fresh result=completed:0
      finished (it ended by itself with code 0) code=0 [job_finished]
    stale lock=free beat=missing result=failed:7
      failed (it ended by itself with code 7) code=7 [job_failed]
    fresh lock=free result=crash
      failed (a signal ended it) [job_failed]
    fresh result=manual:143 by=local
      failed (cancelled by local) code=143 [job_cancelled]
    fresh result=failed:3 codes=3,4
      finished (it ended with code 3, which means that it needs a person) code=3 waits="it ended with code 3, which means that it needs a person" [job_finished job_waiting]
    fresh waiting result=failed:4 codes=3,4
      finished (it ended with code 4 and needs a person: which branch?) code=4 waits="which branch?" [job_finished]
    fresh result=failed:5 codes=3,4
      failed (it ended by itself with code 5) code=5 [job_failed]
    dead lock=unknown result=completed:0
      finished (it ended by itself with code 0) code=0 [job_finished]
    pending lock=free beat=missing result=start_failed:127
      failed (it could not be started) code=127 [job_failed]
    "#);
}

#[test]
fn whoever_needs_a_person_is_told_of_once_and_again_when_it_goes_on() {
    let world = "
        fresh asks=which_branch?
        fresh waiting asks=which_branch?
        fresh waiting asks=really?
        fresh waiting beat=5
        fresh waiting beat=corrupt
        pending beat=5
    ";
    assert_snapshot!(judged(world, true), @r#"
    fresh asks=which_branch?
      fresh waits="which branch?" [job_waiting]
    fresh waiting asks=which_branch?
      nothing new
    fresh waiting asks=really?
      fresh waits="really?" [job_waiting]
    fresh waiting beat=5
      fresh [job_working]
    fresh waiting beat=corrupt
      nothing new
    pending beat=5
      fresh [job_started]
    "#);
}

#[test]
fn without_files_the_container_tells() {
    let world = "
        pending container=created nofiles
        pending health=unknown nofiles
        pending health=healthy nofiles
        fresh health=degraded nofiles
        fresh health=dead nofiles
        fresh container=terminated reason=completed nofiles
        fresh container=terminated reason=oom nofiles
        pending container=terminated reason=create_failed refusal=no_such_directory nofiles
    ";
    assert_snapshot!(judged(world, true), @"
    pending container=created nofiles
      nothing new
    pending health=unknown nofiles
      fresh [job_started]
    pending health=healthy nofiles
      fresh [job_started]
    fresh health=degraded nofiles
      stale (its container is degraded) [job_stale]
    fresh health=dead nofiles
      dead (its container is dead) [job_dead]
    fresh container=terminated reason=completed nofiles
      finished (it ended by itself with code 0) [job_finished]
    fresh container=terminated reason=oom nofiles
      failed (it had no memory left) [job_failed]
    pending container=terminated reason=create_failed refusal=no_such_directory nofiles
      failed (it could not be started: no such directory) [job_failed]
    ");
}

#[test]
fn until_the_recovery_is_over_silence_kills_and_ages_nobody() {
    let world = "
        fresh lock=unknown silent=601
        dead lock=unknown silent=1 why=gone
        fresh lock=free silent=1
        fresh result=completed:0
    ";
    assert_snapshot!(judged(world, false), @"
    fresh lock=unknown silent=601
      nothing new
    dead lock=unknown silent=1 why=gone
      nothing new
    fresh lock=free silent=1
      failed (its supervisor died without a result) [job_failed]
    fresh result=completed:0
      finished (it ended by itself with code 0) code=0 [job_finished]
    ");
}

#[test]
fn a_start_finds_out_about_everybody() {
    let world = "
        fresh lock=held beat=20
        reattached lock=held beat=7200
        pending lock=held beat=5
        pending lock=free beat=missing
        stale lock=free beat=missing result=completed:0
        fresh lock=free beat=40
        fresh lock=rebooted beat=400
        fresh lock=unknown beat=59
        fresh lock=unknown beat=60
        fresh lock=unknown beat=1800
        fresh lock=unknown beat=1801
        fresh lock=unknown beat=900 heard
        fresh lock=unknown beat=-3600
        fresh lock=unknown beat=corrupt
        fresh lock=held beat=empty
        fresh health=healthy nofiles
    ";
    assert_snapshot!(recovered(world, 1.0), @"
    fresh lock=held beat=20
      reattached after Some(250) ms: reattached [job_reattached]
    reattached lock=held beat=7200
      reattached after Some(250) ms: reattached [job_reattached]
    pending lock=held beat=5
      reattached after Some(250) ms: reattached [job_reattached]
    pending lock=free beat=missing
      pending
    stale lock=free beat=missing result=completed:0
      finished: finished (it ended by itself with code 0) code=0 [job_finished]
    fresh lock=free beat=40
      dead: failed (its supervisor died without a result) [job_failed]
    fresh lock=rebooted beat=400
      dead: failed (its machine was restarted) [job_failed]
    fresh lock=unknown beat=59
      reattached after Some(250) ms: reattached [job_reattached]
    fresh lock=unknown beat=60
      watch until 2026-01-21T12:04:59Z: its lock is elsewhere
    fresh lock=unknown beat=1800
      watch until 2026-01-21T12:04:59Z: its lock is elsewhere
    fresh lock=unknown beat=1801
      dead: dead (its last heartbeat was 30m before this start, and its lock is elsewhere) [job_dead]
    fresh lock=unknown beat=900 heard
      reattached after Some(250) ms: reattached [job_reattached]
    fresh lock=unknown beat=-3600
      reattached after Some(250) ms: reattached [job_reattached]
    fresh lock=unknown beat=corrupt
      watch until 2026-01-21T12:04:59Z: its lock is elsewhere
    fresh lock=held beat=empty
      reattached after Some(250) ms: reattached [job_reattached]
    fresh health=healthy nofiles
      pending
    ");
}

#[test]
fn the_watch_ends_after_five_minutes() {
    let world = "
        fresh lock=unknown beat=900
        fresh lock=unknown beat=900 heard
        fresh lock=unknown beat=missing
    ";
    assert_snapshot!(recovered(world, 300.0), @"
    fresh lock=unknown beat=900
      dead: dead (no heartbeat within 5m of this start, and its lock is elsewhere) [job_dead]
    fresh lock=unknown beat=900 heard
      reattached after Some(250) ms: reattached [job_reattached]
    fresh lock=unknown beat=missing
      dead: dead (no heartbeat within 5m of this start, and its lock is elsewhere) [job_dead]
    ");
}

fn any_evidence() -> impl Strategy<Value = Evidence> {
    evidence_of(JobStatus::ALL.to_vec())
}

fn evidence_of_the_living() -> impl Strategy<Value = Evidence> {
    evidence_of(JobStatus::ALL.iter().copied().filter(|status| !status.is_over()).collect())
}

prop_compose! {
    fn evidence_of(statuses: Vec<JobStatus>)(
        status in prop::sample::select(statuses),
        lock in prop::sample::select(vec!["held", "free", "rebooted", "unknown"]),
        beat in prop::sample::select(vec!["missing", "empty", "corrupt", "-3600", "0", "59", "61", "1799", "1801"]),
        silent in prop::sample::select(vec![0, 119, 120, 599, 600, 601, 100_000]),
        heard in any::<bool>(),
        result in prop::sample::select(vec!["", "completed:0", "failed:3", "crash", "manual:1"]),
        container in prop::sample::select(ContainerState::ALL),
        waiting in any::<bool>(),
    ) -> Evidence {
        let mut line = format!("{status} lock={lock} beat={beat} silent={silent} container={container} codes=3");
        if heard { line.push_str(" heard") }
        if waiting { line.push_str(" waiting") }
        if !result.is_empty() { line.push_str(&format!(" result={result}")) }
        evidence(&line)
    }
}

/// The job as it is read again after the note was written.
fn noted(evidence: &Evidence, note: &JobNote) -> Evidence {
    let mut next = evidence.clone();
    let JobNote { status, status_at, status_reason, activity, waiting_reason, waiting_since, .. } =
        note.clone();
    next.job = Job {
        status,
        status_at,
        status_reason,
        activity,
        waiting_reason,
        waiting_since,
        agent_session: note.agent_session.clone(),
        heartbeat_at: note.heartbeat_at,
        reattached_at: note.reattached_at,
        reattached_count: note.reattached_count,
        reattach_ms: note.reattach_ms,
        ended_at: note.ended_at,
        exit_code: note.exit_code,
        cleanup_at: note.cleanup_at,
        ..next.job
    };
    next
}

proptest! {
    #[test]
    fn a_held_lock_without_a_result_never_ends_anybody(mut evidence in evidence_of_the_living(), settled in any::<bool>()) {
        let files = evidence.files.as_mut().unwrap();
        (files.lock, files.result) = (LockSeen::Held, ResultSeen::Missing);
        if let Some(judged) = judge(&evidence, &Rules::default(), settled, now()) {
            prop_assert!(!judged.note.status.is_over(), "{:?}", judged.note);
        }
        let view = RecoveryView { jobs: &[evidence], rules: &Rules::default(), since_seconds: 1e6, started_ms: 1 };
        prop_assert!(matches!(plan_recovery(&view, now()).fates[0].1, Fate::Reattached(_)));
    }

    #[test]
    fn what_is_written_down_is_nothing_new_afterwards(evidence in any_evidence(), settled in any::<bool>()) {
        if let Some(judged) = judge(&evidence, &Rules::default(), settled, now()) {
            let again = judge(&noted(&evidence, &judged.note), &Rules::default(), settled, now());
            prop_assert_eq!(again.map(|again| shown(&again)), None);
        }
    }

    #[test]
    fn a_recovery_that_was_cut_off_comes_to_the_same(evidence in evidence_of_the_living(), since in 0.0..400.0f64) {
        let fate = |evidence: &Evidence| {
            let view = RecoveryView { jobs: std::slice::from_ref(evidence), rules: &Rules::default(), since_seconds: since, started_ms: 1 };
            plan_recovery(&view, now()).fates.remove(0).1
        };
        if let Fate::Reattached(judged) = fate(&evidence) {
            let again = fate(&noted(&evidence, &judged.note));
            prop_assert!(matches!(again, Fate::Reattached(again) if again.note.status == judged.note.status));
        }
    }

    #[test]
    fn every_change_of_status_is_told_once(evidence in any_evidence()) {
        if let Some(judged) = judge(&evidence, &Rules::default(), true, now()) {
            let told = judged.events.iter().filter(|e| e.event_type != EventType::JobWaiting && e.event_type != EventType::JobWorking).count();
            prop_assert_eq!(told, usize::from(judged.note.status != evidence.job.status));
        }
    }
}
