//! Sessions as their owner writes them: the steps of a plan are one script, guarded by the owner's fence and the
//! session's own epoch. Beside that: their beginning, the wish to end one, and the change of owners.

use std::sync::Arc;

use jiff::Timestamp;
use parhelia_core::cascade::OnTimeout;
use parhelia_core::event::NewEvent;
use parhelia_core::ids::{CheckpointId, ContainerId, SessionId, SignalId, TaskId, WaitId};
use parhelia_core::session::plan::{AttemptEnd, NewTask, NewWait, OpenTask, Patch, Resting};
use parhelia_core::session::{
    AttemptStatus, FailureReason, Holder, LEASE_SECONDS, MOST_DEATHS, PhaseRow, PhaseStatus, Session,
    SessionStatus, SignalRow, TaskRow, TaskStatus, WaitRow, WaitStatus,
};
use parhelia_core::state::WorkerState;
use serde_json::Value as Json;

use super::containers::{insert_container, text_json};
use super::{json, text_of};
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

impl Script {
    pub(crate) fn insert_session(&mut self, new: &NewSession, now: &Arc<str>) -> Result<()> {
        self.step(&sql::CASCADE_KEEP, params![&new.cascade_hash, &new.definition]);
        let (parent, parent_phase) = match &new.parent {
            Some((id, phase)) => (Some(id), Some(phase)),
            None => (None, None),
        };
        let (origin, origin_phase) = match &new.origin {
            Some((id, phase)) => (Some(id), phase.as_ref()),
            None => (None, None),
        };
        self.one(
            &sql::SESSION_INSERT,
            params![
                &new.session_id,
                &new.cascade_id,
                parent,
                parent_phase,
                new.name.as_ref(),
                SessionStatus::Starting,
                new.depth,
                now,
                LEASE_SECONDS,
                new.resumable,
                new.auto_resume,
                origin,
                origin_phase,
                now,
                &new.created_by,
                json(&new.metadata),
                &new.owner_id,
            ],
        );
        self.one(
            &sql::SESSION_VALUES_INSERT,
            params![&new.session_id, &new.cascade_hash, json(&new.inputs), json(&new.surroundings)],
        );
        for Done { phase, tasks, child } in &new.done {
            if let Some(child) = child {
                self.insert_session(child, now)?;
            }
            self.one(
                &sql::PHASE_COPY,
                params![
                    &new.session_id,
                    phase.position,
                    &phase.name,
                    phase.status,
                    phase.started_at,
                    phase.completed_at,
                    json(&phase.outputs),
                    phase.child_session_id.as_ref(),
                ],
            );
            for task in tasks {
                self.copy_task(&new.session_id, task, now);
            }
        }
        Ok(())
    }

    fn copy_task(&mut self, session: &SessionId, task: &TaskRow, now: &Arc<str>) {
        if task.state == TaskStatus::Completed {
            self.one(
                &sql::SESSION_TASK_COPY,
                params![
                    &task.id,
                    &task.title,
                    session,
                    &task.phase,
                    task.position,
                    &task.key,
                    task.exit_code,
                    json(&task.outputs),
                    task.started_at,
                    task.completed_at,
                    now,
                ],
            );
        } else {
            self.one(
                &sql::SESSION_TASK_INSERT,
                params![&task.id, &task.title, session, &task.phase, task.position, &task.key, now],
            );
        }
    }

    fn start_attempt(
        &mut self,
        task: &TaskRow,
        container: NewContainer,
        events: Vec<NewEvent>,
        now: &Arc<str>,
    ) -> Result<()> {
        let attempt = task.attempt + 1;
        let id = container.id.clone();
        self.one(&sql::SESSION_TASK_START, params![&task.id, attempt, now]);
        insert_container(self, container, events, now)?;
        self.one(
            &sql::ATTEMPT_INSERT,
            params![&task.id, attempt, &task.session_id, &task.phase, &id, None::<String>, now],
        );
        Ok(())
    }

    fn session_write(&mut self, session: &SessionId, write: SessionWrite, now: &Arc<str>) -> Result<()> {
        match write {
            SessionWrite::BeginPhase { position, name, tasks, child } => {
                let child_id = child.as_ref().map(|child| child.session_id.clone());
                if let Some(child) = &child {
                    self.insert_session(child, now)?;
                }
                self.one(&sql::PHASE_BEGIN, params![session, position as i64, &name, now, child_id.as_ref()]);
                for (id, task) in tasks {
                    let place = task.position as i64;
                    self.one(
                        &sql::SESSION_TASK_INSERT,
                        params![&id, task.title, session, &name, place, task.key, now],
                    );
                }
            }
            SessionWrite::EndPhase { position, name, status, outputs, error, checkpoint, tasks: _ } => {
                self.one(
                    &sql::PHASE_END,
                    params![session, position as i64, &name, status, now, json(&outputs), error],
                );
                if matches!(status, PhaseStatus::Failed | PhaseStatus::Cancelled)
                    || outputs["timed_out"] == true
                {
                    self.step(&sql::SESSION_TASKS_DROP, params![session, &name, now]);
                }
                if let Some(id) = checkpoint {
                    self.one(&sql::CHECKPOINT_INSERT, params![&id, session, name, None::<String>, now]);
                }
            }
            SessionWrite::StartAttempt { task, container, events } => {
                self.start_attempt(&task, *container, events, now)?;
            }
            SessionWrite::StartWorker { id, container, events } => {
                let place = container.id.clone();
                insert_container(self, *container, events, now)?;
                self.one(
                    &sql::WORKER_INSERT,
                    params![id, None::<String>, WorkerState::Spawning, &place, session, "{}", now],
                );
            }
            SessionWrite::StartVerify { task, attempt, container, events } => {
                let id = container.id.clone();
                self.one(&sql::SESSION_TASK_VERIFY, params![&task, attempt, now]);
                insert_container(self, *container, events, now)?;
                self.one(&sql::ATTEMPT_VERIFY, params![&task, attempt, &id]);
            }
            SessionWrite::EndAttempt { task, attempt, end, checkpoint } => {
                self.end_attempt(session, &task, attempt, end, checkpoint, now)?;
            }
            SessionWrite::FailTask { task, message } => {
                let end = TaskEnd {
                    state: TaskStatus::Failed,
                    reason: Some(FailureReason::TaskFailed),
                    error: Some(message),
                    ..TaskEnd::default()
                };
                self.end_task(&task.id, task.attempt, end, now);
            }
            SessionWrite::OpenWait { id, phase, task, wait } => {
                self.one(
                    &sql::WAIT_INSERT,
                    params![
                        &id,
                        session,
                        phase,
                        task.as_ref(),
                        wait.wait_type,
                        wait.wait_on,
                        wait.description,
                        json(&wait.question),
                        wait.on_timeout.as_str(),
                        wait.default_value.as_ref().map(text_json).transpose()?,
                        now,
                        wait.deadline,
                    ],
                );
            }
            SessionWrite::Deliver { signal, wait, payload } => {
                self.one(&sql::SIGNAL_DELIVER, params![&signal, &wait, now]);
                self.one(&sql::SIGNAL_DELIVERY_INSERT, params![&wait, &signal]);
                let answer = Some(text_json(&payload)?);
                self.close_wait(&wait, WaitStatus::Answered, answer, Some("signal"), Some(&signal), now);
            }
            SessionWrite::TimeOutWait { wait, then, default_value } => {
                let default = default_value.filter(|_| then == OnTimeout::Default);
                let answer = default.as_ref().map(text_json).transpose()?;
                self.close_wait(&wait, WaitStatus::TimedOut, answer, None, None, now);
            }
            SessionWrite::WithdrawWait { wait } => {
                self.close_wait(&wait, WaitStatus::Withdrawn, None, None, None, now);
            }
            SessionWrite::FulfilWait { wait } => {
                self.close_wait(&wait, WaitStatus::Answered, None, Some("its sensor"), None, now);
            }
            SessionWrite::CancelChild { child, reason, by, force, grace_seconds } => {
                // One that has ended meanwhile is as good as cancelled.
                self.step(&sql::SESSION_CANCEL, params![&child, reason, now, by, force, grace_seconds]);
            }
            SessionWrite::Outputs { outputs } => {
                self.one(&sql::SESSION_OUTPUTS, params![session, text_json(&outputs)?]);
            }
        }
        Ok(())
    }

    fn close_wait(
        &mut self,
        wait: &WaitId,
        status: WaitStatus,
        answer: Option<String>,
        by: Option<&str>,
        signal: Option<&SignalId>,
        now: &Arc<str>,
    ) {
        self.one(&sql::WAIT_CLOSE, params![wait, status, answer, by, now, signal]);
    }

    pub(super) fn end_attempt(
        &mut self,
        session: &SessionId,
        task: &TaskRow,
        attempt: i64,
        end: AttemptEnd,
        checkpoint: Option<CheckpointId>,
        now: &Arc<str>,
    ) -> Result<()> {
        let (status, code, reason, message) = match &end {
            AttemptEnd::Completed { exit_code, .. } => (AttemptStatus::Completed, *exit_code, None, None),
            AttemptEnd::Retried { exit_code, reason, message, .. }
            | AttemptEnd::Failed { exit_code, reason, message } => {
                (AttemptStatus::Failed, *exit_code, Some(*reason), Some(message.clone()))
            }
            AttemptEnd::NotYet { exit_code, .. } => (AttemptStatus::Failed, *exit_code, None, None),
            AttemptEnd::Waiting { exit_code, message } => {
                (AttemptStatus::Waiting, *exit_code, None, Some(message.clone()))
            }
            AttemptEnd::Cancelled => (AttemptStatus::Cancelled, None, Some(FailureReason::Cancelled), None),
        };
        self.one(&sql::ATTEMPT_END, params![&task.id, attempt, status, code, reason, message, now]);
        let ended = match end {
            AttemptEnd::Completed { exit_code, outputs } => TaskEnd {
                state: TaskStatus::Completed,
                exit_code,
                outputs: Some(text_json(&outputs)?),
                ..TaskEnd::default()
            },
            AttemptEnd::Retried { exit_code, reason, message, at } => TaskEnd {
                state: TaskStatus::Pending,
                exit_code,
                reason: Some(reason),
                error: Some(message),
                retries: i64::from(reason != FailureReason::WorkerCrash),
                crashes: i64::from(reason == FailureReason::WorkerCrash),
                retry_at: Some(at),
                ..TaskEnd::default()
            },
            AttemptEnd::NotYet { exit_code, at } => {
                TaskEnd { state: TaskStatus::Pending, exit_code, retry_at: Some(at), ..TaskEnd::default() }
            }
            AttemptEnd::Failed { exit_code, reason, message } => TaskEnd {
                state: TaskStatus::Failed,
                exit_code,
                reason: Some(reason),
                error: Some(message),
                ..TaskEnd::default()
            },
            // It rests: running, without an attempt.
            AttemptEnd::Waiting { exit_code, .. } => {
                TaskEnd { state: TaskStatus::Running, exit_code, ..TaskEnd::default() }
            }
            AttemptEnd::Cancelled => TaskEnd {
                state: TaskStatus::Cancelled,
                reason: Some(FailureReason::Cancelled),
                ..TaskEnd::default()
            },
        };
        self.end_task(&task.id, attempt, ended, now);
        if let Some(id) = checkpoint {
            self.one(&sql::CHECKPOINT_INSERT, params![&id, session, &task.phase, Some(&task.id), now]);
        }
        Ok(())
    }

    fn end_task(&mut self, task: &TaskId, attempt: i64, end: TaskEnd, now: &Arc<str>) {
        let completed_at = end.state.is_over().then(|| now.clone());
        self.one(
            &sql::SESSION_TASK_END,
            params![
                task,
                attempt,
                end.state,
                end.reason,
                end.error,
                end.exit_code,
                end.outputs,
                end.retries,
                end.crashes,
                end.retry_at,
                completed_at.as_ref(),
                now,
            ],
        );
    }

    pub(crate) fn move_attempt(&mut self, from: &ContainerId, to: &ContainerId) {
        self.step(&sql::ATTEMPT_MOVES, params![from, to]);
    }
}

struct TaskEnd {
    state: TaskStatus,
    reason: Option<FailureReason>,
    error: Option<String>,
    exit_code: Option<i64>,
    outputs: Option<String>,
    retries: i64,
    crashes: i64,
    retry_at: Option<Timestamp>,
}

impl Default for TaskEnd {
    fn default() -> Self {
        Self {
            state: TaskStatus::Failed,
            reason: None,
            error: None,
            exit_code: None,
            outputs: None,
            retries: 0,
            crashes: 0,
            retry_at: None,
        }
    }
}
