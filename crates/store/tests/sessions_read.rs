//! Conformance: what is shown of sessions, and what people say to them.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod common;

use common::{at, event, owner};
use parhelia_core::event::EventType;
use parhelia_core::ids::{SessionId, SignalId, TaskId, WaitId};
use parhelia_core::session::{BlockedType, PhaseStatus, SessionStatus, SignalRow, TaskStatus, WaitStatus};
use parhelia_core::time::to_text;
use parhelia_store::{EventFilter, SessionFilter, SignalFilter, Store, StoreError};
use serde_json::json;

/// A store, and rows that its verbs do not write by themselves.
struct Ground {
    store: Store,
    at: At,
}

enum At {
    Sqlite(tempfile::TempDir),
    Postgres(String),
}

fn sid(n: i64) -> SessionId {
    SessionId::parse(&format!("sess-0000{n:04}")).unwrap()
}

fn tid(n: i64) -> TaskId {
    TaskId::parse(&format!("ta-0000{n:05}")).unwrap()
}

fn wid(n: i64) -> WaitId {
    WaitId::parse(&format!("wait-0000{n:04}")).unwrap()
}

fn gid(n: i64) -> SignalId {
    SignalId::parse(&format!("sig-0000{n:04}")).unwrap()
}

fn session(n: i64, status: &str, more: (&str, &str)) -> String {
    let (columns, values) = more;
    let at = to_text(at(n));
    format!(
        "INSERT INTO sessions (session_id, cascade_id, status, heartbeat_at, resumable, started_at, created_by, updated_at, owner_id{columns})
         VALUES ('{}', 'release', '{status}', '{at}', 1, '{at}', 'ann', '{at}', 'o-1'{values});",
        sid(n)
    )
}

fn task(n: i64, of: i64, phase: &str, position: i64, state: &str) -> String {
    let at = to_text(at(0));
    format!(
        "INSERT INTO tasks (id, title, state, session_id, attempt, created_at, updated_at, phase, position, key)
         VALUES ('{}', 't', '{state}', '{}', 1, '{at}', '{at}', '{phase}', {position}, 'k{n}');",
        tid(n),
        sid(of)
    )
}

fn wait(n: i64, of: i64, kind: &str, on: &str) -> String {
    format!(
        "INSERT INTO waits (id, session_id, phase, wait_type, wait_on, description, on_timeout, since, status)
         VALUES ('{}', '{}', 'ask', '{kind}', '{on}', 'well?', 'fail', '{}', 'open');",
        wid(n),
        sid(of),
        to_text(at(n))
    )
}

/// 1 and 2 run (2 below 1), 3 is blocked, 4 completed, 5 failed, 6 starts; 4 and 6 are both named `nightly`.
fn world() -> String {
    let named = (", name", ", 'nightly'");
    [
        session(1, "running", ("", "")),
        session(2, "running", (", parent_session_id", &format!(", '{}'", sid(1)))),
        session(3, "blocked", (", blocked_type", ", 'approval'")),
        session(4, "completed", named),
        session(5, "error", ("", "")),
        session(6, "starting", named),
        format!(
            "INSERT INTO session_phases (session_id, position, name, status, started_at) VALUES
             ('{0}', 0, 'a', 'completed', 'x'), ('{0}', 1, 'b', 'skipped', 'x'), ('{0}', 2, 'c', 'running', 'x');",
            sid(1)
        )
        .replace("'x'", &format!("'{}'", to_text(at(1)))),
        wait(1, 3, "approval", "deploy"),
        wait(2, 3, "hitl", "choice"),
        wait(3, 3, "signal", "green"),
    ]
    .concat()
}

impl Ground {
    async fn each() -> Vec<Self> {
        let dir = tempfile::tempdir().unwrap();
        let sqlite = Store::open_sqlite(&dir.path().join("parhelia.db")).unwrap();
        let url = common::postgres::Server::shared().database();
        let postgres = Store::open(&url).await.unwrap();
        let grounds = vec![
            Self { store: sqlite, at: At::Sqlite(dir) },
            Self { store: postgres, at: At::Postgres(url) },
        ];
        for ground in &grounds {
            ground.store.register_owner(&owner("o-1")).await.unwrap();
            ground.rows(&world()).await;
        }
        grounds
    }

    async fn rows(&self, sql: &str) {
        match &self.at {
            At::Sqlite(dir) => {
                let connection = rusqlite::Connection::open(dir.path().join("parhelia.db")).unwrap();
                connection.execute_batch(sql).unwrap();
            }
            At::Postgres(url) => {
                let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
                tokio::spawn(connection);
                client.batch_execute(sql).await.unwrap();
            }
        }
    }

    async fn list(&self, filter: SessionFilter) -> Vec<SessionId> {
        self.store
            .sessions(&filter)
            .await
            .unwrap()
            .into_iter()
            .map(|shown| shown.session.session_id)
            .collect()
    }
}

fn ids(of: &[i64]) -> Vec<SessionId> {
    of.iter().map(|n| sid(*n)).collect()
}

#[tokio::test]
async fn sessions_are_listed_newest_first_by_status_cascade_parent_and_page() {
    use SessionStatus::*;
    for g in Ground::each().await {
        let all = SessionFilter::default;
        assert_eq!(g.list(all()).await, ids(&[6, 5, 4, 3, 2, 1]));
        assert_eq!(
            g.list(SessionFilter { statuses: vec![Running, Blocked], ..all() }).await,
            ids(&[3, 2, 1])
        );
        assert_eq!(g.list(SessionFilter { statuses: vec![Running, Error], ..all() }).await, ids(&[5, 2, 1]));
        assert_eq!(g.list(SessionFilter { parent: Some(sid(1)), ..all() }).await, ids(&[2]));
        let other = Some("other".to_owned());
        assert!(g.list(SessionFilter { cascade_id: other, ..all() }).await.is_empty());
        assert_eq!(g.list(SessionFilter { over_since: Some(at(5)), ..all() }).await, ids(&[6, 5, 3, 2, 1]));
        for statuses in [vec![], vec![Running, Blocked, Starting, Orphaned]] {
            let whole = g.list(SessionFilter { statuses: statuses.clone(), ..all() }).await;
            let mut paged = Vec::new();
            let mut before = None;
            loop {
                let filter = SessionFilter {
                    statuses: statuses.clone(),
                    before: before.clone(),
                    limit: Some(2),
                    ..all()
                };
                let page = g.store.sessions(&filter).await.unwrap();
                let Some(last) = page.last() else { break };
                before = Some((last.session.started_at, last.session.session_id.clone()));
                paged.extend(page.into_iter().map(|shown| shown.session.session_id));
            }
            assert_eq!(paged, whole);
        }
        let shown = g.store.session_shown(&sid(3)).await.unwrap().unwrap();
        assert_eq!(shown.session.blocked_type, Some(BlockedType::Approval));
        assert_eq!((shown.lease_until, shown.owner_ended_at), (Some(at(60)), None));
        assert!(g.store.session_shown(&sid(99)).await.unwrap().is_none());
        let counts = g.store.session_counts().await.unwrap();
        assert_eq!(counts, [(Blocked, 1), (Completed, 1), (Error, 1), (Running, 2), (Starting, 1)]);
    }
}

#[tokio::test]
async fn a_session_is_found_by_a_prefix_or_its_name_and_a_wait_by_a_prefix() {
    for g in Ground::each().await {
        let s = &g.store;
        assert_eq!(s.resolve_session("sess-00000003").await.unwrap(), [(sid(3), SessionStatus::Blocked)]);
        assert_eq!(s.resolve_session("00000003").await.unwrap().len(), 1);
        assert_eq!(s.resolve_session("sess-0000").await.unwrap().len(), 6);
        assert!(s.resolve_session("sess-1").await.unwrap().is_empty());
        let named = s.sessions_named("nightly").await.unwrap();
        assert_eq!(named, [(sid(6), SessionStatus::Starting), (sid(4), SessionStatus::Completed)]);
        assert!(s.sessions_named("night").await.unwrap().is_empty());
        assert_eq!(s.resolve_wait("wait-00000002").await.unwrap(), [wid(2)]);
        assert_eq!(s.resolve_wait("0000").await.unwrap().len(), 3);
    }
}

#[tokio::test]
async fn phases_and_tasks_are_counted_by_state_and_read_in_pages() {
    for g in Ground::each().await {
        // 250 tasks in one level and 1 in another; every fifth is done.
        let mut rows = String::new();
        for n in 0..250 {
            rows += &task(n, 1, "c", n, if n % 5 == 0 { "completed" } else { "pending" });
        }
        rows += &task(300, 1, "a", 0, "completed");
        rows += &format!(
            "INSERT INTO attempts (task_id, attempt, session_id, phase, status, started_at, exit_code)
             VALUES ('{0}', 2, '{1}', 'a', 'completed', '{2}', 0), ('{0}', 1, '{1}', 'a', 'failed', '{2}', 3);",
            tid(300),
            sid(1),
            to_text(at(0))
        );
        g.rows(&rows).await;
        let s = &g.store;
        let mut phases = s.phase_counts(&[&sid(1), &sid(2)]).await.unwrap();
        phases.sort();
        assert_eq!(
            phases,
            [
                (sid(1), PhaseStatus::Running, 1),
                (sid(1), PhaseStatus::Completed, 1),
                (sid(1), PhaseStatus::Skipped, 1)
            ]
        );
        let mut tasks = s.task_counts(&[&sid(1)]).await.unwrap();
        tasks.sort();
        assert_eq!(
            tasks,
            [
                (sid(1), "a".to_owned(), TaskStatus::Completed, 1),
                (sid(1), "c".to_owned(), TaskStatus::Pending, 200),
                (sid(1), "c".to_owned(), TaskStatus::Completed, 50)
            ]
        );
        let positions = |tasks: Vec<parhelia_core::session::TaskRow>| {
            tasks.into_iter().map(|task| task.position).collect::<Vec<_>>()
        };
        assert_eq!(positions(s.session_tasks(&sid(1), "c", None, 9, 3).await.unwrap()), [10, 11, 12]);
        let done = Some(TaskStatus::Completed);
        assert_eq!(positions(s.session_tasks(&sid(1), "c", done, 9, 3).await.unwrap()), [10, 15, 20]);
        assert_eq!(positions(s.session_tasks(&sid(1), "c", done, -1, 1).await.unwrap()), [0]);
        let attempts = s.attempts_of(&[&tid(1), &tid(300)]).await.unwrap();
        assert_eq!(
            attempts.iter().map(|a| (a.attempt, a.exit_code)).collect::<Vec<_>>(),
            [(1, Some(3)), (2, Some(0))]
        );
    }
}

#[tokio::test]
async fn the_inbox_shows_what_people_can_answer_and_the_first_answer_holds() {
    for g in Ground::each().await {
        let s = &g.store;
        let inbox = s.inbox(10).await.unwrap();
        let seen: Vec<_> = inbox.iter().map(|row| (&row.wait.id, row.cascade_id.as_str())).collect();
        assert_eq!(seen, [(&wid(1), "release"), (&wid(2), "release")], "a signal is no person's");
        let mut counts = s.wait_counts().await.unwrap();
        counts.sort();
        assert_eq!(counts, [(BlockedType::Signal, 1), (BlockedType::Hitl, 1), (BlockedType::Approval, 1)]);
        let told = || event(EventType::WaitAnswered).session(&sid(3));
        s.answer_wait(&wid(1), &json!(true), "ann", Some("looks good"), told(), at(10)).await.unwrap();
        let late = s.answer_wait(&wid(1), &json!(false), "bob", None, told(), at(11)).await;
        assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
        let row = s.wait(&wid(1)).await.unwrap().unwrap();
        assert_eq!(
            (row.status, row.answer, row.answered_by.as_deref()),
            (WaitStatus::Answered, Some(json!(true)), Some("ann"))
        );
        assert_eq!((row.answer_reason.as_deref(), row.answered_at), (Some("looks good"), Some(at(10))));
        assert_eq!(s.inbox(10).await.unwrap().len(), 1);
        let of_it = EventFilter { session_id: Some(sid(3).to_string()), ..Default::default() };
        assert_eq!(s.events(&of_it).await.unwrap().len(), 1, "who was late is told by nothing");
        let waits = s.waits_of(&sid(3), 10).await.unwrap();
        assert_eq!(waits.iter().map(|wait| wait.id.clone()).collect::<Vec<_>>(), [wid(3), wid(2), wid(1)]);
    }
}

fn signal(n: i64, session: Option<SessionId>) -> SignalRow {
    SignalRow {
        id: gid(n),
        name: if n % 2 == 0 { "even" } else { "odd" }.to_owned(),
        session_id: session,
        payload: json!({"n": n}),
        fired_at: at(n),
        fired_by: "ann".to_owned(),
        deliveries: 0,
        delivered_at: None,
    }
}

#[tokio::test]
async fn a_signal_is_kept_with_its_event_unless_it_is_for_a_session_that_is_over() {
    for g in Ground::each().await {
        let s = &g.store;
        for (n, session) in [(1, None), (2, Some(sid(1))), (3, None), (4, Some(sid(3)))] {
            let mut told = event(EventType::SignalFired);
            if let Some(session) = &session {
                told = told.session(session);
            }
            s.fire_signal(&signal(n, session), told).await.unwrap();
        }
        for nowhere in [4, 5, 77] {
            let refused = s.fire_signal(&signal(9, Some(sid(nowhere))), event(EventType::SignalFired)).await;
            assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{nowhere}: {refused:?}");
        }
        let all = SignalFilter::default;
        let list = async |filter: SignalFilter| {
            let found = s.signals(&filter).await.unwrap();
            found.into_iter().map(|signal| signal.id).collect::<Vec<_>>()
        };
        let many = |of: &[i64]| of.iter().map(|n| gid(*n)).collect::<Vec<_>>();
        for pending in [false, true] {
            assert_eq!(list(SignalFilter { pending, ..all() }).await, many(&[4, 3, 2, 1]));
            let odd = Some("odd".to_owned());
            assert_eq!(list(SignalFilter { pending, name: odd, ..all() }).await, many(&[3, 1]));
            assert_eq!(list(SignalFilter { pending, session: Some(sid(3)), ..all() }).await, many(&[4]));
            let before = Some((at(3), gid(3)));
            assert_eq!(list(SignalFilter { pending, before, limit: Some(1), ..all() }).await, many(&[2]));
        }
        assert_eq!(s.signal(&gid(2)).await.unwrap().unwrap(), signal(2, Some(sid(1))));
        let of_it =
            EventFilter { session_id: Some(sid(1).to_string()), newest_first: true, ..Default::default() };
        let told: Vec<_> =
            s.events(&of_it).await.unwrap().into_iter().map(|event| event.event_type).collect();
        assert_eq!(told, [EventType::SignalFired]);
    }
}
