//! What the steps of a session's plan are as statements.

use std::sync::Arc;

use jiff::Timestamp;
use parhelia_core::cascade::OnTimeout;
use parhelia_core::event::NewEvent;
use parhelia_core::ids::{CheckpointId, ContainerId, SessionId, SignalId, TaskId, WaitId};
use parhelia_core::session::plan::AttemptEnd;
use parhelia_core::session::{
    AttemptStatus, FailureReason, LEASE_SECONDS, PhaseStatus, SessionStatus, TaskRow, TaskStatus, WaitStatus,
};
use parhelia_core::state::WorkerState;

use super::containers::{insert_container, text_json};
use super::json;
use super::sessions::{Done, NewSession, SessionWrite};
use crate::error::Result;
use crate::script::{Script, params};
use crate::sql;
use crate::types::NewContainer;

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

    pub(super) fn start_attempt(
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

    pub(super) fn session_write(
        &mut self,
        session: &SessionId,
        write: SessionWrite,
        now: &Arc<str>,
    ) -> Result<()> {
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
