//! Sessions as their owner writes them: the steps of a plan are one script, guarded by the owner's fence and the
//! session's own epoch. Beside that: their beginning, the wish to end one, and the change of owners.

use std::sync::Arc;

use jiff::Timestamp;
use parhelia_core::cascade::OnTimeout;
use parhelia_core::event::NewEvent;
use parhelia_core::ids::{CheckpointId, SessionId, SignalId, TaskId, WaitId};
use parhelia_core::session::plan::{AttemptEnd, NewTask, NewWait, OpenTask, Patch, Resting};
use parhelia_core::session::{
    Holder, MOST_DEATHS, PhaseRow, PhaseStatus, Session, SessionStatus, SignalRow, TaskRow, TaskStatus,
    WaitRow,
};
use serde_json::Value as Json;

use super::text_of;
use crate::error::Result;
use crate::row::Columns;
use crate::script::{Script, params};
use crate::types::{Fence, NewContainer};
use crate::{Store, row_session, sql};

/// A session that is about to begin.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    pub session_id: SessionId,
    pub cascade_id: String,
    pub parent: Option<(SessionId, String)>,
    pub depth: i64,
    pub name: Option<String>,
    pub resumable: bool,
    pub auto_resume: bool,
    pub origin: Option<(SessionId, Option<String>)>,
    pub created_by: String,
    pub metadata: Json,
    pub owner_id: String,
    /// Of the definition's text, which names it.
    pub cascade_hash: String,
    pub definition: Arc<str>,
    pub inputs: Json,
    pub surroundings: Json,
    /// What an earlier session has done already.
    pub done: Vec<Done>,
}

/// A phase that is copied: over, or with some of its tasks completed, or with a sub-session that goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    pub phase: PhaseRow,
    pub tasks: Vec<TaskRow>,
    pub child: Option<Box<NewSession>>,
}

/// What a session was started with.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionValues {
    pub cascade_hash: String,
    pub inputs: Json,
    pub surroundings: Json,
    pub outputs: Option<Json>,
}

/// What must be so of the tasks of a phase that ends; who claims them may have been quicker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseTasks {
    /// It has none.
    None,
    /// None of them runs.
    Ended,
    /// Each of them is completed.
    Completed,
}

/// A step of a plan with the ids that it needs.
#[derive(Debug)]
pub enum SessionWrite {
    BeginPhase {
        position: usize,
        name: String,
        tasks: Vec<(TaskId, NewTask)>,
        child: Option<Box<NewSession>>,
    },
    EndPhase {
        position: usize,
        name: String,
        status: PhaseStatus,
        outputs: Json,
        error: Option<String>,
        checkpoint: Option<CheckpointId>,
        tasks: PhaseTasks,
    },
    StartAttempt {
        task: TaskRow,
        container: Box<NewContainer>,
        events: Vec<NewEvent>,
    },
    StartWorker {
        id: String,
        container: Box<NewContainer>,
        events: Vec<NewEvent>,
    },
    StartVerify {
        task: TaskId,
        attempt: i64,
        container: Box<NewContainer>,
        events: Vec<NewEvent>,
    },
    EndAttempt {
        task: TaskRow,
        attempt: i64,
        end: AttemptEnd,
        checkpoint: Option<CheckpointId>,
    },
    FailTask {
        task: TaskRow,
        message: String,
    },
    OpenWait {
        id: WaitId,
        phase: String,
        task: Option<TaskId>,
        wait: NewWait,
    },
    Deliver {
        signal: SignalId,
        wait: WaitId,
        payload: Json,
    },
    TimeOutWait {
        wait: WaitId,
        then: OnTimeout,
        default_value: Option<Json>,
    },
    WithdrawWait {
        wait: WaitId,
    },
    FulfilWait {
        wait: WaitId,
    },
    CancelChild {
        child: SessionId,
        reason: Option<String>,
        by: String,
        force: bool,
        grace_seconds: i64,
    },
    Outputs {
        outputs: Json,
    },
}

/// What is recorded of a sub-session.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildRow {
    pub session_id: SessionId,
    pub status: SessionStatus,
    pub cancel_requested: bool,
    pub cancel_force: bool,
    pub cancel_grace_seconds: Option<i64>,
    pub error: Option<String>,
    pub blocked_on: Option<String>,
    pub outputs: Option<Json>,
}

impl Store {
    pub async fn session(&self, id: &SessionId) -> Result<Option<Session>> {
        self.query_one(&sql::SESSION, params![id], row_session::session).await
    }

    pub async fn session_values(&self, id: &SessionId) -> Result<Option<SessionValues>> {
        self.query_one(&sql::SESSION_VALUES, params![id], row_session::values).await
    }

    /// Those that have begun, in their order.
    pub async fn session_phases(&self, id: &SessionId) -> Result<Vec<PhaseRow>> {
        self.query(&sql::SESSION_PHASES, params![id], row_session::phase).await
    }

    pub async fn session_task(&self, id: &TaskId) -> Result<Option<TaskRow>> {
        self.query_one(&sql::SESSION_TASK, params![id], row_session::session_task).await
    }

    /// The next of a level that may begin now.
    pub async fn pending_tasks(
        &self,
        id: &SessionId,
        phase: &str,
        now: Timestamp,
        limit: i64,
    ) -> Result<Vec<TaskRow>> {
        let given = params![id, phase, now, limit];
        self.query(&sql::SESSION_TASKS_PENDING, given, row_session::session_task).await
    }

    /// When the first of a level that failed may be tried again.
    pub async fn next_retry(&self, id: &SessionId, phase: &str) -> Result<Option<Timestamp>> {
        let found = self.query_one(&sql::SESSION_TASKS_RETRY, params![id, phase], |c| c.time_opt()).await?;
        Ok(found.flatten())
    }

    pub async fn tasks_in(
        &self,
        id: &SessionId,
        phase: &str,
        state: TaskStatus,
        limit: i64,
    ) -> Result<Vec<TaskRow>> {
        let given = params![id, phase, state, limit];
        self.query(&sql::SESSION_TASKS_IN, given, row_session::session_task).await
    }

    /// The tasks of a level that rest, and of which an answer may be there, first.
    pub async fn resting_tasks(&self, id: &SessionId, phase: &str, limit: i64) -> Result<Vec<Resting>> {
        let read =
            |c: &mut Columns<'_>| Ok(Resting { task: row_session::session_task(c)?, container: c.id_opt()? });
        self.query(&sql::SESSION_TASKS_RESTING, params![id, phase, limit], read).await
    }

    /// What runs of a session.
    pub async fn open_tasks(&self, id: &SessionId) -> Result<Vec<OpenTask>> {
        self.query(&sql::ATTEMPTS_OPEN, params![id], row_session::open_task).await
    }

    /// The waits of its phases that are not over.
    pub async fn waits_now(&self, id: &SessionId) -> Result<Vec<WaitRow>> {
        self.query(&sql::SESSION_WAITS_NOW, params![id], row_session::wait).await
    }

    /// What an open wait would take.
    pub async fn next_signal(&self, wait: &WaitRow) -> Result<Option<SignalRow>> {
        let given = params![&wait.session_id, &wait.wait_on, &wait.id];
        self.query_one(&sql::SIGNAL_NEXT, given, row_session::signal).await
    }

    pub async fn children(&self, id: &SessionId) -> Result<Vec<ChildRow>> {
        self.query(&sql::SESSION_CHILDREN, params![id], row_session::child).await
    }

    /// Whose task runs in a container.
    pub async fn session_of_container(&self, container: &str) -> Result<Option<SessionId>> {
        self.query_one(&sql::SESSIONS_OF_CONTAINERS, params![container], |c| c.own()).await
    }

    /// Whose task it was, over or not.
    pub async fn session_of_ended(&self, container: &str) -> Result<Option<SessionId>> {
        self.query_one(&sql::SESSION_OF_ENDED, params![container], |c| c.own()).await
    }

    /// Those that went on with a session, and from which phase anew; the newest first.
    pub async fn sessions_of_origin(&self, id: &SessionId) -> Result<Vec<(SessionId, Option<String>)>> {
        self.query(&sql::SESSIONS_OF_ORIGIN, params![id], |c| Ok((c.own()?, c.text_opt()?))).await
    }

    /// The names of signals that were kept for a session's waits, and are for whoever waits next now.
    pub async fn released_signals(&self, id: &SessionId) -> Result<Vec<String>> {
        self.query(&sql::SIGNALS_RELEASED, params![id], |c| c.text()).await
    }

    pub async fn sessions_waiting_for(
        &self,
        signal: &str,
        owner: &str,
        after: &str,
        limit: i64,
    ) -> Result<Vec<SessionId>> {
        self.query(&sql::SESSIONS_WAITING_FOR, params![signal, owner, after, limit], |c| c.own()).await
    }

    /// A page of what one owner advances, after that one.
    pub async fn sessions_owned(&self, owner: &str, after: &str, limit: i64) -> Result<Vec<SessionId>> {
        self.query(&sql::SESSIONS_OWNED, params![owner, after, limit], |c| c.own()).await
    }

    /// How many are to be advanced by anybody.
    pub async fn unfinished_sessions(&self) -> Result<i64> {
        let found = self.query_one(&sql::SESSIONS_UNFINISHED, vec![], |c| c.int()).await?;
        Ok(found.unwrap_or(0))
    }

    /// Those whose owner has ended.
    pub async fn ownerless_sessions(&self, asker: &str, limit: i64) -> Result<Vec<Session>> {
        let given = params![asker, limit, MOST_DEATHS];
        self.query(&sql::SESSIONS_OWNERLESS, given, row_session::session).await
    }

    /// Records a session; its owner's loop makes it real.
    pub async fn start_session(&self, new: &NewSession, events: Vec<NewEvent>, now: Timestamp) -> Result<()> {
        let now_text = text_of(now);
        let mut script = Script::new("start_session");
        script.insert_session(new, &now_text)?;
        script.events(events, &now_text);
        self.write(script).await.map(drop)
    }

    /// `exec`: a session whose only task begins with it.
    pub async fn start_exec(
        &self,
        new: &NewSession,
        task: &TaskRow,
        container: NewContainer,
        events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<()> {
        let now_text = text_of(now);
        let mut script = Script::new("start_exec");
        script.insert_session(new, &now_text)?;
        script.one(&sql::PHASE_BEGIN, params![&new.session_id, 0i64, &task.phase, &now_text, None::<String>]);
        script.one(
            &sql::SESSION_TASK_INSERT,
            params![&task.id, &task.title, &new.session_id, &task.phase, 0i64, &task.key, &now_text],
        );
        script.start_attempt(task, container, events, &now_text)?;
        self.write(script).await.map(drop)
    }

    /// Every step of a plan, or none. `Fenced` when the server is not what it was, `Conflict` when the session is
    /// no longer the holder's, or somebody was quicker (an answer, a signal).
    #[allow(clippy::too_many_arguments, reason = "what guards the write, what it is, and what it is told as")]
    pub async fn advance_session(
        &self,
        fence: &Fence,
        holder: &Holder,
        id: &SessionId,
        expect: SessionStatus,
        patch: &Patch,
        writes: Vec<SessionWrite>,
        events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<()> {
        let now_text = text_of(now);
        let mut script = Script::fenced("advance_session", fence);
        let checkpoint = writes.iter().rev().find_map(|write| match write {
            SessionWrite::EndPhase { checkpoint, .. } | SessionWrite::EndAttempt { checkpoint, .. } => {
                checkpoint.clone()
            }
            _ => None,
        });
        let blocked = patch.blocked.as_ref();
        script.one(
            &sql::SESSION_ADVANCE,
            params![
                id,
                &holder.owner_id,
                holder.owner_epoch,
                expect,
                patch.status,
                patch.current_phase.as_ref(),
                blocked.map(|b| b.kind),
                blocked.map(|b| &b.on),
                blocked.map(|b| &b.description),
                blocked.map(|b| b.since),
                blocked.and_then(|b| b.timeout_at),
                patch.error_message.as_ref(),
                patch.error_phase.as_ref(),
                patch.cancel_seen_at,
                patch.cancelled_at,
                patch.completed_at,
                checkpoint.as_ref(),
                &now_text,
            ],
        );
        let mut ended = Vec::new();
        for write in writes {
            if let SessionWrite::EndPhase { name, tasks, .. } = &write {
                ended.push((name.clone(), *tasks));
            }
            script.session_write(id, write, &now_text)?;
        }
        for (phase, tasks) in ended.into_iter().filter(|(_, tasks)| *tasks != PhaseTasks::None) {
            script.one(&sql::PHASE_IS_QUIET, params![id, &phase]);
            if tasks == PhaseTasks::Completed {
                script.one(&sql::PHASE_IS_DONE, params![id, &phase]);
            }
        }
        if patch.status.is_over() {
            script.one(&sql::SESSION_IS_QUIET, params![id]);
        }
        script.events(events, &now_text);
        self.write(script).await.map(drop)
    }

    /// The wish to end a session. `Conflict` when it is over.
    #[allow(clippy::too_many_arguments, reason = "one wish, whole")]
    pub async fn cancel_session(
        &self,
        id: &SessionId,
        reason: Option<&str>,
        by: &str,
        force: bool,
        grace_seconds: i64,
        events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<()> {
        let now_text = text_of(now);
        let mut script = Script::new("cancel_session");
        script.one(&sql::SESSION_CANCEL, params![id, reason, &now_text, by, force, grace_seconds]);
        script.events(events, &now_text);
        self.write(script).await.map(drop)
    }

    /// Takes a session from an owner that is gone; what it becomes is `to`. `Conflict` when somebody else did.
    pub async fn take_session(
        &self,
        fence: &Fence,
        session: &Session,
        new_owner: &str,
        to: SessionStatus,
        events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<()> {
        let now_text = text_of(now);
        let mut script = Script::fenced("take_session", fence);
        script.one(
            &sql::SESSION_TAKE,
            params![&session.session_id, new_owner, session.owner_epoch, session.status, to, &now_text],
        );
        script.events(events, &now_text);
        self.write(script).await.map(drop)
    }

    /// First looks at a session that were begun since one was ended: each was the end of its server.
    pub async fn session_trials(&self, id: &SessionId) -> Result<i64> {
        Ok(self.query_one(&sql::SESSION_TRIAL, params![id], |c| c.int()).await?.unwrap_or(0))
    }

    pub async fn begin_trial(&self, fence: &Fence, id: &SessionId) -> Result<()> {
        let mut script = Script::fenced("begin_trial", fence);
        script.one(&sql::SESSION_TRIAL_BEGIN, params![id]);
        self.write(script).await.map(drop)
    }

    pub async fn end_trial(&self, fence: &Fence, id: &SessionId) -> Result<()> {
        let mut script = Script::fenced("end_trial", fence);
        script.step(&sql::SESSION_TRIAL_END, params![id]);
        self.write(script).await.map(drop)
    }
}
