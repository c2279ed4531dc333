//! What workers of sessions ask: a task to run, and what became of it. The attempt number is the fence: a task is claimed
//! once for each, and a report that comes late is refused.

use std::collections::BTreeMap;

use parhelia_core::cascade::{Cascade, Lifetime};
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::ids::{SessionId, TaskId};
use parhelia_core::job::api::ExecRequest;
use parhelia_core::session::api::{ClaimTask, Claimed, ClaimedTask, TaskResult};
use parhelia_core::session::plan::{AttemptEnd, Claim, LARGEST_OUTPUT_BYTES, Report, Stdout, Step};
use parhelia_core::session::{FailureReason, PhaseStatus, Session, TaskRow, tell};
use parhelia_store::StoreError;
use serde_json::json;

use super::{Caller, Held, Service, ServiceError, marks_of_next, may_touch};

/// Tasks that are tried for one claim: others may be quicker with the first.
const TRIES: i64 = 8;

impl Service {
    /// The next task of a session for this worker, if there is one.
    pub async fn claim_task(
        &self,
        given: &str,
        request: ClaimTask,
        caller: &Caller,
    ) -> Result<Claimed, ServiceError> {
        let id = self.resolve_session(given).await?;
        self.its_worker(&id, &request.worker_id, caller).await?;
        let session = self.session_row(&id).await?;
        let over = session.status.is_over() || session.cancel_requested;
        if over {
            return Ok(Claimed { task: None, finished: true });
        }
        let Held { state, cascade, surroundings } = self.held(session).await?;
        if cascade.workers.lifetime != Lifetime::Session {
            return Err(ServiceError::invalid(
                format!("the tasks of {id} are not claimed: each has a sandbox of its own"),
                "set workers.lifetime to 'session' in its cascade",
            ));
        }
        let now = self.clock.now();
        // One at a time: if it has one already, the answer to its claim was lost, and it has not begun.
        let open = self.store.open_tasks(&id).await?;
        let its = open.into_iter().find(|open| open.attempt.worker_id.as_deref() == Some(&request.worker_id));
        if let Some(open) = its {
            let task = TaskRow { attempt: open.attempt.attempt - 1, ..open.task };
            let made = state.claim(&cascade, &surroundings, &task, now).map_err(|error| error.to_string());
            if let Some(task) = self.given_or_failed(&cascade, &task, made).await? {
                return Ok(Claimed { task: Some(task), finished: false });
            }
        }
        let running = state.phases.values().filter(|row| row.status == PhaseStatus::Running);
        let names: Vec<String> = running.map(|row| row.name.clone()).collect();
        for phase in names {
            for task in self.store.pending_tasks(&id, &phase, now, TRIES).await? {
                // What cannot be made is the session's to fail, not a worker's.
                let Ok(claim) = state.claim(&cascade, &surroundings, &task, now) else { continue };
                let event = claimed(&state.session, &task, &request.worker_id);
                match self.store.claim_task(&task, &request.worker_id, event, now).await {
                    Ok(()) => {}
                    Err(StoreError::Conflict { .. }) => continue,
                    Err(error) => return Err(error.into()),
                }
                if let Some(task) = self.given_or_failed(&cascade, &task, Ok(claim)).await? {
                    return Ok(Claimed { task: Some(task), finished: false });
                }
            }
        }
        Ok(Claimed { task: None, finished: false })
    }

    /// What its worker runs. A claimed task of which that cannot be made has failed, and the next may be asked for.
    async fn given_or_failed(
        &self,
        cascade: &Cascade,
        task: &TaskRow,
        claim: Result<Claim, String>,
    ) -> Result<Option<ClaimedTask>, ServiceError> {
        let message = match claim.map(|claim| self.given(cascade, task, claim)) {
            Ok(Ok(given)) => return Ok(Some(given)),
            Ok(Err(error @ ServiceError::Unavailable { .. })) => return Err(error),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error,
        };
        let reason = FailureReason::TaskFailed;
        let message = format!("its command cannot be made: {message}");
        let end = AttemptEnd::Failed { exit_code: None, reason, message };
        match self.end_claimed(cascade, task, task.attempt + 1, end, "").await {
            Ok(()) | Err(StoreError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn given(&self, cascade: &Cascade, task: &TaskRow, claim: Claim) -> Result<ClaimedTask, ServiceError> {
        let (made, _) = self.command_of(ExecRequest {
            provider: "process".to_owned(),
            image: None,
            name: None,
            command: claim.run.command,
            env: claim.run.env,
            workdir: claim.run.workdir,
            labels: BTreeMap::new(),
            resources: cascade.workers.resources.clone(),
            secrets: Vec::new(),
            engine: claim.run.engine,
            session: None,
            terminal: None,
            stdin: false,
            timeout_seconds: None,
            keep: false,
        })?;
        let mut env = made.env;
        env.extend(marks_of_next(task));
        env.insert("PARHELIA_TASK_ID".to_owned(), task.id.to_string());
        Ok(ClaimedTask {
            task_id: task.id.to_string(),
            attempt: task.attempt + 1,
            key: task.key.clone(),
            command: made.command,
            env,
            workdir: made.workdir,
            verify: claim.verify,
            timeout_seconds: claim.run.timeout_seconds,
        })
    }

    /// What became of an attempt that a worker had.
    async fn end_claimed(
        &self,
        cascade: &Cascade,
        task: &TaskRow,
        attempt: i64,
        end: AttemptEnd,
        output: &str,
    ) -> Result<(), StoreError> {
        let now = self.clock.now();
        let done = matches!(end, AttemptEnd::Completed { .. });
        let checkpoint = done.then(|| self.entropy.checkpoint_id(now));
        let step = Step::EndAttempt { task: task.clone(), attempt, end: end.clone() };
        let mut events: Vec<NewEvent> = tell::of_step(&step, &task.session_id, cascade).into_iter().collect();
        for event in &mut events {
            // The sessions loop hears of it, whoever wrote it.
            event.source = Source::Container;
        }
        self.store.finish_task(task, attempt, end, output, checkpoint, events, now).await
    }

    /// What became of an attempt, by the worker that has it.
    pub async fn finish_task(
        &self,
        task: &str,
        attempt: i64,
        result: TaskResult,
        caller: &Caller,
    ) -> Result<TaskRow, ServiceError> {
        let late = || ServiceError::Conflict {
            message: format!(
                "attempt {attempt} of task {task} is not open: the report came too late and was refused"
            ),
            fix: "whatever it did is not counted; claim the next task",
        };
        let unknown = || ServiceError::NotFound {
            what: "task",
            id: task.chars().take(64).collect(),
            fix: "'parhelia sessions show' names the tasks of a session",
        };
        let id = TaskId::parse(task).map_err(|_| unknown())?;
        let row = self.store.session_task(&id).await?.ok_or_else(unknown)?;
        self.its_worker(&row.session_id, &result.worker_id, caller).await?;
        let open = self.store.open_tasks(&row.session_id).await?;
        let open = open.into_iter().find(|open| open.task.id == id && open.attempt.attempt == attempt);
        let open = open.ok_or_else(late)?;
        if open.attempt.worker_id.as_deref() != Some(result.worker_id.as_str()) {
            return Err(late());
        }
        let cut = result.truncated || result.output.len() > LARGEST_OUTPUT_BYTES;
        let output = tail_of(result.output);
        let report = Report {
            exit_code: result.exit_code,
            verify_exit_code: result.verify_exit_code,
            timed_out: result.timed_out,
            output: if cut { Stdout::TooLarge } else { Stdout::Text(output.clone()) },
        };
        let session = self.session_row(&row.session_id).await?;
        let Held { state, cascade, surroundings } = self.held(session).await?;
        let end = state.judge(&cascade, &surroundings, &open, report, self.clock.now());
        match self.end_claimed(&cascade, &open.task, attempt, end, &output).await {
            Ok(()) => self.store.session_task(&id).await?.ok_or_else(unknown),
            Err(StoreError::Conflict { .. }) => Err(late()),
            Err(error) => Err(error.into()),
        }
    }

    /// A worker speaks for itself, in its own session.
    async fn its_worker(
        &self,
        session: &SessionId,
        worker: &str,
        caller: &Caller,
    ) -> Result<(), ServiceError> {
        let found = self.store.worker(worker).await?;
        let belongs = found.as_ref().is_some_and(|row| row.session_id.as_deref() == Some(session.as_str()));
        let place = found.and_then(|row| row.container_id);
        if !belongs || !place.is_some_and(|place| may_touch(caller, &place)) {
            let shown: String = worker.chars().take(64).collect();
            return Err(ServiceError::NotFound {
                what: "worker",
                id: shown,
                fix: "workers are started by their session, which tells them who they are",
            });
        }
        Ok(())
    }
}

fn claimed(session: &Session, task: &TaskRow, worker: &str) -> NewEvent {
    let attempt = task.attempt + 1;
    let mut event = NewEvent::new(
        EventType::TaskStarted,
        Source::Container,
        format!("Task {} claimed by {worker}", task.key),
    )
    .session(&session.session_id)
    .task(Some(task.id.as_str()))
    .details(json!({ "phase": task.phase, "task": task.key, "attempt": attempt }));
    event.worker_id = Some(worker.to_owned());
    event
}

/// The end of what was written, at a boundary of characters.
fn tail_of(text: String) -> String {
    if text.len() <= LARGEST_OUTPUT_BYTES {
        return text;
    }
    let mut at = text.len() - LARGEST_OUTPUT_BYTES;
    while !text.is_char_boundary(at) {
        at += 1;
    }
    text[at..].to_owned()
}
