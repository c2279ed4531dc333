//! Sessions as people and programs see them, and the two things that they say to one: a signal and an answer. What
//! becomes of those is the owner's to write (see `sessions.rs`).

use jiff::Timestamp;
use parhelia_core::event::NewEvent;
use parhelia_core::ids::{CheckpointId, SessionId, SignalId, TaskId, WaitId};
use parhelia_core::job::Job;
use parhelia_core::session::{
    AttemptRow, BlockedType, CheckpointRow, PhaseStatus, Session, SessionStatus, SignalRow, TaskRow,
    TaskStatus, WaitRow,
};

use super::{json, text_of};
use crate::error::Result;
use crate::row::Columns;
use crate::script::{Script, Value, params};
use crate::sql::Sql;
use crate::{Store, row, row_session, sql};

/// How many ids the statements with a list of them take at a time.
const IDS_PER_QUERY: usize = 100;
/// After every time and every id, in text order.
const LAST: &str = "~";

/// Which sessions, newest first. Everything narrows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Empty: all.
    pub statuses: Vec<SessionStatus>,
    pub cascade_id: Option<String>,
    pub parent: Option<SessionId>,
    /// Not over, or over no earlier than this.
    pub over_since: Option<Timestamp>,
    pub before: Option<(Timestamp, SessionId)>,
    pub limit: Option<i64>,
}

/// A session with what is known of its owner.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownSession {
    pub session: Session,
    /// Absent: nobody owns it, or the owner's record is gone.
    pub lease_until: Option<Timestamp>,
    pub owner_ended_at: Option<Timestamp>,
    pub cascade_hash: Option<String>,
}

/// A wait for a person, with whoever asks.
#[derive(Debug, Clone, PartialEq)]
pub struct InboxRow {
    pub wait: WaitRow,
    pub cascade_id: String,
    pub session_name: Option<String>,
    pub task_key: Option<String>,
}

/// Which signals, newest first. Everything narrows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignalFilter {
    pub name: Option<String>,
    pub session: Option<SessionId>,
    /// Only those that nobody has taken, and somebody still could.
    pub pending: bool,
    pub before: Option<(Timestamp, SignalId)>,
    pub limit: Option<i64>,
}

/// From what is typed to the bounds of the ids that begin so; the type's prefix may be left out.
fn range(prefix: &str, given: &str) -> (String, String) {
    let whole = if given.starts_with(prefix) { given.to_owned() } else { format!("{prefix}{given}") };
    let end = format!("{whole}{LAST}");
    (whole, end)
}

fn id_and_status(c: &mut Columns<'_>) -> Result<(SessionId, SessionStatus)> {
    Ok((c.own()?, c.word()?))
}

impl Store {
    /// Newest first.
    pub async fn sessions(&self, filter: &SessionFilter) -> Result<Vec<ShownSession>> {
        let open = !filter.statuses.is_empty() && filter.statuses.iter().all(|status| !status.is_over());
        let sql = match (&filter.parent, open) {
            (Some(_), _) => &sql::SESSIONS_OF_PARENT,
            (None, true) => &sql::SESSIONS_OPEN,
            (None, false) => &sql::SESSIONS,
        };
        let statuses = (!filter.statuses.is_empty()).then(|| {
            let words: Vec<_> = filter.statuses.iter().map(|status| status.as_str()).collect();
            format!(",{},", words.join(","))
        });
        let (at, id) = before(filter.before.as_ref().map(|(at, id)| (*at, id.as_str())));
        let given = params![
            statuses,
            filter.cascade_id.as_ref(),
            filter.parent.as_ref(),
            filter.over_since,
            at,
            id,
            filter.limit.unwrap_or(i64::MAX),
        ];
        self.query(sql, given, row_session::shown).await
    }

    pub async fn session_shown(&self, id: &SessionId) -> Result<Option<ShownSession>> {
        self.query_one(&sql::SESSION_SHOWN, params![id], row_session::shown).await
    }

    /// Those whose id begins so, at most 10.
    pub async fn resolve_session(&self, given: &str) -> Result<Vec<(SessionId, SessionStatus)>> {
        let (from, to) = range(SessionId::PREFIX, given);
        self.query(&sql::SESSION_IDS, params![from, to], id_and_status).await
    }

    /// Those with exactly this name, the newest first, at most 10.
    pub async fn sessions_named(&self, name: &str) -> Result<Vec<(SessionId, SessionStatus)>> {
        self.query(&sql::SESSIONS_NAMED, params![name], id_and_status).await
    }

    pub async fn session_counts(&self) -> Result<Vec<(SessionStatus, i64)>> {
        self.query(&sql::SESSION_COUNTS, vec![], |c| Ok((c.word()?, c.int()?))).await
    }

    pub async fn phase_counts(&self, ids: &[&SessionId]) -> Result<Vec<(SessionId, PhaseStatus, i64)>> {
        let ids = ids.iter().map(|id| id.as_str()).collect();
        self.many(&sql::SESSION_PHASE_COUNTS, ids, |c| Ok((c.own()?, c.word()?, c.int()?))).await
    }

    /// Of each phase by its name.
    pub async fn task_counts(&self, ids: &[&SessionId]) -> Result<Vec<(SessionId, String, TaskStatus, i64)>> {
        let ids = ids.iter().map(|id| id.as_str()).collect();
        let read = |c: &mut Columns<'_>| Ok((c.own()?, c.text()?, c.word()?, c.int()?));
        self.many(&sql::SESSION_TASK_COUNTS, ids, read).await
    }

    /// The tasks of a phase after a position (-1: from the first), in their order.
    pub async fn session_tasks(
        &self,
        id: &SessionId,
        phase: &str,
        state: Option<TaskStatus>,
        after: i64,
        limit: i64,
    ) -> Result<Vec<TaskRow>> {
        let mut given = params![id, phase, after, limit];
        let sql = match state {
            Some(state) => {
                given.push(state.into());
                &sql::SESSION_TASKS_OF_STATE
            }
            None => &sql::SESSION_TASKS,
        };
        self.query(sql, given, row_session::session_task).await
    }

    /// In the order of the attempts of each.
    pub async fn attempts_of(&self, tasks: &[&TaskId]) -> Result<Vec<AttemptRow>> {
        let ids = tasks.iter().map(|id| id.as_str()).collect();
        self.many(&sql::ATTEMPTS_OF_TASKS, ids, row_session::attempt).await
    }

    /// What a worker's attempt wrote; inside `None` while it has not ended, and of one in a container of its own.
    pub async fn attempt_said(&self, task: &TaskId, attempt: i64) -> Result<Option<Option<String>>> {
        self.query_one(&sql::ATTEMPT_SAID, params![task, attempt], |c| c.text_opt()).await
    }

    /// The text of a definition.
    pub async fn cascade_by_hash(&self, hash: &str) -> Result<Option<String>> {
        self.query_one(&sql::CASCADE_BY_HASH, params![hash], |c| c.text()).await
    }

    pub async fn checkpoint(&self, id: &CheckpointId) -> Result<Option<CheckpointRow>> {
        self.query_one(&sql::CHECKPOINT_BY_ID, params![id], row_session::checkpoint).await
    }

    /// In their order.
    pub async fn session_checkpoints(
        &self,
        id: &SessionId,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<CheckpointRow>> {
        let given = params![id, after.unwrap_or(""), limit];
        self.query(&sql::SESSION_CHECKPOINTS, given, row_session::checkpoint).await
    }

    pub async fn wait(&self, id: &WaitId) -> Result<Option<WaitRow>> {
        self.query_one(&sql::WAIT, params![id], row_session::wait).await
    }

    /// Those whose id begins so, at most 10.
    pub async fn resolve_wait(&self, given: &str) -> Result<Vec<WaitId>> {
        let (from, to) = range(WaitId::PREFIX, given);
        self.query(&sql::WAIT_IDS, params![from, to], |c| c.own()).await
    }

    /// Newest first.
    pub async fn waits_of(&self, id: &SessionId, limit: i64) -> Result<Vec<WaitRow>> {
        self.query(&sql::WAITS_OF_SESSION, params![id, limit], row_session::wait).await
    }

    /// Oldest first.
    pub async fn inbox(&self, limit: i64) -> Result<Vec<InboxRow>> {
        self.query(&sql::INBOX, params![limit], row_session::inbox).await
    }

    /// Jobs that need a person and are no session's to ask about, oldest first; of those that are over only what was
    /// so no earlier than `over_since`. With the session and the task that each works for, if it does for one.
    pub async fn inbox_jobs(
        &self,
        over_since: Timestamp,
        limit: i64,
    ) -> Result<Vec<(Job, Option<SessionId>, Option<TaskId>)>> {
        let read = |c: &mut Columns<'_>| Ok((row::job(c)?, c.own_opt()?, c.own_opt()?));
        self.query(&sql::INBOX_JOBS, params![over_since, limit], read).await
    }

    /// Open ones, by their type.
    pub async fn wait_counts(&self) -> Result<Vec<(BlockedType, i64)>> {
        self.query(&sql::WAIT_COUNTS, vec![], |c| Ok((c.word()?, c.int()?))).await
    }

    /// The first answer wins: `Conflict` unless the wait is still open. The session takes it from there.
    pub async fn answer_wait(
        &self,
        id: &WaitId,
        answer: &serde_json::Value,
        by: &str,
        reason: Option<&str>,
        event: NewEvent,
        now: Timestamp,
    ) -> Result<()> {
        let now = text_of(now);
        let mut script = Script::new("answer_wait");
        script.one(&sql::WAIT_ANSWER, params![id, answer.to_string(), by, reason, &now]);
        script.event(event, &now);
        self.write(script).await.map(drop)
    }

    /// Newest first.
    pub async fn signals(&self, filter: &SignalFilter) -> Result<Vec<SignalRow>> {
        let sql = if filter.pending { &sql::SIGNALS_PENDING } else { &sql::SIGNALS };
        let (at, id) = before(filter.before.as_ref().map(|(at, id)| (*at, id.as_str())));
        let limit = filter.limit.unwrap_or(i64::MAX);
        let given = params![filter.name.as_ref(), filter.session.as_ref(), at, id, limit];
        self.query(sql, given, row_session::signal).await
    }

    pub async fn signal(&self, id: &SignalId) -> Result<Option<SignalRow>> {
        self.query_one(&sql::SIGNAL_BY_ID, params![id], row_session::signal).await
    }

    /// `Conflict` when it is meant for a session that is over, or that does not exist.
    pub async fn fire_signal(&self, signal: &SignalRow, event: NewEvent) -> Result<()> {
        let now = text_of(signal.fired_at);
        let mut script = Script::new("fire_signal");
        if let Some(session) = &signal.session_id {
            script.one(&sql::SESSION_NOT_OVER, params![session]);
        }
        script.one(
            &sql::SIGNAL_INSERT,
            params![
                &signal.id,
                &signal.name,
                signal.session_id.as_ref(),
                json(&signal.payload),
                &now,
                &signal.fired_by,
            ],
        );
        if signal.session_id.is_none() {
            script.step(&sql::SIGNAL_TARGETS_INSERT, params![&signal.id]);
        }
        script.event(event, &now);
        self.write(script).await.map(drop)
    }

    /// A statement that takes a list of ids, as often as it needs to be asked.
    async fn many<T: Send + 'static>(
        &self,
        sql: &'static Sql,
        ids: Vec<&str>,
        map: fn(&mut Columns<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut found = Vec::new();
        for chunk in ids.chunks(IDS_PER_QUERY) {
            let mut given: Vec<Value> = chunk.iter().map(|id| Value::from(*id)).collect();
            given.resize(IDS_PER_QUERY, Value::Null);
            found.append(&mut self.query(sql, given, map).await?);
        }
        Ok(found)
    }
}

fn before(place: Option<(Timestamp, &str)>) -> (Value, Value) {
    match place {
        Some((at, id)) => (at.into(), id.into()),
        None => (Value::Word(LAST), Value::Word(LAST)),
    }
}
