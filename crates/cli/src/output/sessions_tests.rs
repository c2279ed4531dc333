use super::*;
use crate::output::fixtures::{at, plain};
use crate::output::session_list::list;
use crate::output::{session_lines, session_tree};
use parhelia_core::session::api::{SessionTotals, SessionTree};
use serde_json::json;

/// A release that has built and tested, with a retry, and waits for an approval; its server may be dead.
fn detail() -> SessionDetail {
    let mut detail: SessionDetail = serde_json::from_str(r#"{
        "session_id": "sess-01k9z3q8", "cascade_id": "release", "name": "nightly", "status": "blocked",
        "current_phase": "approve", "depth": 0, "blocked_type": "approval", "blocked_on": "deploy?",
        "blocked_description": "deploy?", "blocked_since": "2026-01-21T14:30:00Z",
        "heartbeat_at": "2026-01-21T14:34:50Z", "heartbeat_lease_seconds": 60, "cancel_requested": false,
        "cancel_force": false, "resumable": true, "auto_resume": true, "started_at": "2026-01-21T14:25:00Z",
        "updated_at": "2026-01-21T14:30:00Z", "created_by": "ann", "metadata": {}, "owner_id": "o-1", "owner_epoch": 1,
        "age": 600, "owner_alive": true,
        "progress": {"phases": 4, "phases_done": 2, "tasks": 3, "tasks_done": 3, "tasks_running": 0, "tasks_failed": 0},
        "inputs": {"version": "1.2"}, "outputs": null,
        "phases": [
            {"name": "build", "kind": "run", "needs": [], "tasks_left_out": 0, "tasks_by_state": {"completed": 1},
             "row": {"position": 0, "name": "build", "status": "completed", "started_at": "2026-01-21T14:25:00Z",
                     "completed_at": "2026-01-21T14:26:00Z", "outputs": {}},
             "tasks": [{"id": "ta-0001", "session_id": "sess-01k9z3q8", "phase": "build", "position": 0, "key": "build",
                        "title": "", "state": "completed", "attempt": 1, "retry_count": 0, "crash_count": 0, "exit_code": 0,
                        "outputs": {}, "attempts": []}]},
            {"name": "test", "kind": "tasks", "needs": ["build"], "tasks_left_out": 7,
             "tasks_by_state": {"completed": 9},
             "row": {"position": 1, "name": "test", "status": "completed", "started_at": "2026-01-21T14:26:00Z",
                     "completed_at": "2026-01-21T14:30:00Z", "outputs": {}},
             "tasks": [{"id": "ta-0002", "session_id": "sess-01k9z3q8", "phase": "test", "position": 0, "key": "unit",
                        "title": "", "state": "completed", "attempt": 2, "retry_count": 1, "crash_count": 0, "exit_code": 0,
                        "outputs": {}, "started_at": "2026-01-21T14:26:00Z", "completed_at": "2026-01-21T14:27:00Z",
                        "attempts": []}]},
            {"name": "approve", "kind": "await", "needs": ["test"], "tasks": [], "tasks_left_out": 0, "tasks_by_state": {},
             "row": {"position": 2, "name": "approve", "status": "running", "started_at": "2026-01-21T14:30:00Z",
                     "outputs": {}}},
            {"name": "deploy", "kind": "run", "needs": ["approve"], "tasks": [], "tasks_left_out": 0, "tasks_by_state": {},
             "row": null, "description": "ships it"}
        ],
        "waits": [
            {"id": "wait-01k9z3q8", "session_id": "sess-01k9z3q8", "phase": "approve", "wait_type": "approval",
             "wait_on": "deploy?", "description": "deploy?", "question": {}, "on_timeout": "fail",
             "since": "2026-01-21T14:30:00Z", "deadline": "2026-01-21T15:30:00Z", "status": "open"}
        ],
        "children": [], "last_checkpoint": {"id": "cp-0001", "session_id": "sess-01k9z3q8", "phase": "test",
                                            "task_id": null, "at": "2026-01-21T14:30:00Z"},
        "waiting": []
    }"#)
    .unwrap();
    detail.waiting = explain::not_done(&detail, now());
    detail
}

fn now() -> Timestamp {
    at("2026-01-21T14:35:00Z")
}

#[test]
fn one_screen_says_how_far_it_is_what_it_waits_for_and_the_command_that_answers() {
    let screen = show(&detail(), now());
    assert_eq!(
        plain(&screen),
        "\
Session: sess-01k9z3q8
  Name:         nightly
  Cascade:      release
  Status:       blocked for 5m
  Phase:        approve
  Progress:     2 of 4 phases, 3 of 3 tasks
  Started:      2026-01-21 14:25:00 UTC by ann
  Owner:        o-1 (alive, heartbeat 10s ago, epoch 1)
  Checkpoint:   cp-0001 (test, 5m ago)
  Resumable:    yes, by itself
  Inputs:       {\"version\":\"1.2\"}

  Phases:
    build            run     completed   1m     exit 0
    test             tasks   completed   4m     9/9 tasks
      unit                   completed   1m     attempt 2, exit 0
      … and 7 more
    approve          await   running     5m
    deploy           run     -           -      ships it

  Not done because:
    approve: waits for an approval, for 5m: deploy?; in 55m it fails because nobody answered in time
      parhelia inbox approve wait-01k9z3q8
"
    );
    assert_ne!(plain(&screen), screen, "in colour");
}

#[test]
fn each_receipt_of_a_cancel_is_shown_and_answers_stay_visible() {
    let mut detail = detail();
    let session = &mut detail.view.session;
    session.cancel_requested = true;
    session.cancel_requested_at = Some(at("2026-01-21T14:34:00Z"));
    session.cancel_requested_by = Some("bob".into());
    session.cancel_reason = Some("off".into());
    session.cancel_grace_seconds = Some(10);
    session.cancel_seen_at = Some(at("2026-01-21T14:34:01Z"));
    let wait = &mut detail.waits[0];
    wait.status = WaitStatus::Answered;
    wait.answer = Some(json!(false));
    wait.answered_by = Some("ann".into());
    wait.answer_reason = Some("not on a Friday".into());
    wait.answered_at = Some(at("2026-01-21T14:33:00Z"));
    detail.waiting = explain::not_done(&detail, now());
    let screen = plain(&show(&detail, now()));
    for part in [
        "Requested:  2026-01-21 14:34:00 UTC by bob (off)",
        "Grace:      10s",
        "Seen:       2026-01-21 14:34:01 UTC",
        "Gone:       not yet",
        "approve: an approval: false by ann (not on a Friday), 2m ago",
        "bob asked to cancel it 1m ago; everything of it was told to end",
    ] {
        assert!(screen.contains(part), "{part}\n{screen}");
    }
}

#[test]
fn the_list_says_what_each_waits_for_and_whose_server_is_silent() {
    let blocked = detail().view;
    let mut dead = blocked.clone();
    dead.session.status = SessionStatus::Running;
    dead.session.current_phase = Some("build".into());
    dead.owner_alive = false;
    let mut failed = blocked.clone();
    failed.session.status = SessionStatus::Error;
    failed.session.error_message = Some("exit code 1".into());
    let by_status = [("blocked".to_owned(), 1), ("running".to_owned(), 1), ("error".to_owned(), 1)].into();
    let sums = SessionTotals { total: 3, by_status, inbox: 1 };
    let all = [blocked, dead, failed];
    let screen = list(&all, &sums, now(), false, None);
    assert_eq!(
        plain(&screen),
        "\
SESSION         NAME      CASCADE   STATUS      PHASE     PROGRESS          AGE     HEARTBEAT   WAITS FOR
sess-01k9z3q8   nightly   release   blocked     approve   2/4 (3/3 tasks)   10m     10s ago     approval: deploy?
sess-01k9z3q8   nightly   release   running     build     2/4 (3/3 tasks)   10m     10s ago     -
sess-01k9z3q8   nightly   release   error       approve   2/4 (3/3 tasks)   10m     -           exit code 1

Total: 3 sessions | Running: 1 | Blocked: 1 | Error: 1 | Waiting for a person: 1
"
    );

    // A line each on a terminal: first without the heartbeat and the tasks, then name and cascade in one.
    let mut all = all;
    all[1].session.name = None;
    all[1].session.error_message = Some("x".repeat(200));
    all[1].session.status = SessionStatus::Error;
    let screen = plain(&list(&all, &sums, now(), false, Some(90)));
    assert!(
        screen.starts_with("SESSION        NAME     CASCADE  STATUS   PHASE    PROGRESS  AGE  WAITS FOR\n"),
        "{screen}"
    );
    let screen = plain(&list(&all, &sums, now(), false, Some(75)));
    let table: Vec<&str> = screen.lines().take(4).collect();
    assert_eq!(
        table,
        [
            "SESSION        NAME     STATUS   PHASE    PROGRESS  AGE  WAITS FOR",
            "sess-01k9z3q8  nightly  blocked  approve  2/4       10m  approval: deploy?",
            "sess-01k9z3q8  release  error    build    2/4       10m  xxxxxxxxxxxxxxxxx…",
            "sess-01k9z3q8  nightly  error    approve  2/4       10m  exit code 1",
        ]
    );
    let screen = plain(&list(&all, &sums, now(), false, Some(40)));
    assert!(screen.lines().take(4).all(|line| line.chars().count() <= 40), "{screen}");
}

#[test]
fn a_tree_shows_phases_tasks_and_the_sessions_below() {
    let mut parent = detail();
    let mut child = detail();
    child.view.session.session_id = parhelia_core::ids::SessionId::parse("sess-child").unwrap();
    child.view.session.name = None;
    child.view.session.status = SessionStatus::Completed;
    child.view.session.completed_at = Some(at("2026-01-21T14:26:00Z"));
    child.phases.truncate(1);
    child.waiting.clear();
    parent.phases[3].row = Some(parhelia_core::session::PhaseRow {
        position: 3,
        name: "deploy".into(),
        status: PhaseStatus::Running,
        started_at: at("2026-01-21T14:34:00Z"),
        completed_at: None,
        outputs: json!({}),
        error: None,
        child_session_id: Some(child.view.session.session_id.clone()),
    });
    let tree = SessionTree { detail: parent, below: vec![SessionTree { detail: child, below: Vec::new() }] };
    assert_eq!(
        plain(&session_tree::screen(&tree, now(), None)),
        "\
sess-01k9z3q8 release nightly blocked 2/4 (3/3 tasks) 10m
├─ build    run      completed  1m     exit 0
├─ test     tasks    completed  4m     9/9 tasks
│  ├─ unit  completed  1m     attempt 2, exit 0
│  └─ … and 7 more
├─ approve  await    running    5m
├─ deploy   run      running    1m     sess-child
│  └─ sess-child release completed 2/4 (3/3 tasks) 1m
│     └─ build  run      completed  1m     exit 0
└─ approve: waits for an approval, for 5m: deploy?; in 55m it fails because nobody answered in time
     parhelia inbox approve wait-01k9z3q8
"
    );
    let narrow = plain(&session_tree::screen(&tree, now(), Some(60)));
    let wanted = "
└─ approve: waits for an approval, for 5m: deploy?; in 55m
   it fails because nobody answered in time
     parhelia inbox approve wait-01k9z3q8
";
    assert!(narrow.ends_with(wanted), "{narrow}");
    // On a low terminal the tree is cut, and not the answer.
    let low = session_tree::fitted(&tree, now(), Some(60), 6);
    let low: Vec<String> = low.iter().map(|line| plain(line)).collect();
    assert_eq!(low.len(), 6, "{low:?}");
    assert_eq!(low[2], "… and 7 more lines");
    assert!(low[5].contains("parhelia inbox approve wait-01k9z3q8"), "{low:?}");
}

#[test]
fn the_lines_tell_every_retry_and_what_came_of_each_wait_in_their_order() {
    let mut detail = detail();
    let attempt = |number: i64, from: &str, to: &str, status: &str| -> parhelia_core::session::AttemptRow {
        let failed = status == "failed";
        serde_json::from_value(json!({
            "task_id": "ta-0001", "attempt": number, "session_id": "sess-01k9z3q8", "phase": "build", "status": status,
            "started_at": from, "ended_at": to, "failure_reason": failed.then_some("task_failed"),
            "message": failed.then_some("it exited with code 1"),
        }))
        .unwrap()
    };
    let build = &mut detail.phases[0].tasks[0];
    build.task.attempt = 2;
    build.attempts = vec![
        attempt(1, "2026-01-21T14:25:00Z", "2026-01-21T14:25:30Z", "failed"),
        attempt(2, "2026-01-21T14:25:31Z", "2026-01-21T14:26:00Z", "completed"),
    ];
    let mut tree = SessionTree { detail, below: Vec::new() };
    let told = |tree: &SessionTree| -> Vec<String> {
        session_lines::all(tree).into_iter().map(|line| line.text).collect()
    };
    let lines = [
        "phase build begins",
        "phase build: attempt 1 failed: it exited with code 1; it is tried again",
        "phase build completed after 1m",
        "phase test begins",
        "task test/unit completed",
        "phase test completed after 4m",
        "phase approve begins",
        "phase approve: waits for an approval: deploy?; parhelia inbox approve wait-01k9z3q8",
    ];
    assert_eq!(told(&tree), lines);
    let keys = |tree: &SessionTree| -> Vec<String> {
        session_lines::all(tree).into_iter().map(|line| line.key).collect()
    };
    let before = keys(&tree);

    // Nobody answered, and it goes on: that is not the same as being approved.
    let wait = &mut tree.detail.waits[0];
    wait.status = WaitStatus::TimedOut;
    wait.on_timeout = "continue".into();
    wait.deadline = Some(at("2026-01-21T14:34:00Z"));
    let row = tree.detail.phases[2].row.as_mut().unwrap();
    row.status = PhaseStatus::Completed;
    row.completed_at = Some(at("2026-01-21T14:34:00Z"));
    assert_eq!(
        told(&tree)[8..],
        ["phase approve: nobody answered in time; it goes on without it", "phase approve completed after 4m"]
    );
    assert_eq!(keys(&tree)[..8], before, "what was told is not told again");

    let wait = &mut tree.detail.waits[0];
    wait.status = WaitStatus::Answered;
    wait.answer = Some(json!(false));
    wait.answered_by = Some("ann".into());
    wait.answered_at = wait.deadline;
    assert_eq!(told(&tree)[8], "phase approve: denied by ann");
}

#[test]
fn options_are_told_apart_and_nothing_is_said_twice() {
    let question = json!({"kind": "choice", "options": ["a", "b, c", "d"]});
    assert_eq!(options(&question).as_deref(), Some("a, \"b, c\", d"));
    assert_eq!((options(&json!({"options": []})), options(&json!({}))), (None, None));
    assert_eq!(reason_parts("sens: sens tries again in 5s").0, "sens: tries again in 5s");
    assert_eq!(reason_parts("level: one tries again in 5s").0, "level: one tries again in 5s");
    let (why, command) = reason_parts("a: waits for an answer; parhelia inbox answer wait-1 yes");
    assert_eq!(
        (why.as_str(), command.as_deref()),
        ("a: waits for an answer", Some("parhelia inbox answer wait-1 yes"))
    );

    // What is over goes on by nobody's hand but a person's.
    let mut detail = detail();
    detail.view.session.status = SessionStatus::Error;
    assert!(plain(&show(&detail, now())).contains("Resumable:    yes, with 'parhelia sessions resume'\n"));
    detail.view.session.status = SessionStatus::Completed;
    assert!(plain(&show(&detail, now())).contains("Resumable:    from a phase, with"));
}
