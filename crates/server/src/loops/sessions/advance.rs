//! One session, as far as it goes now: read what is recorded, let `core` plan, write the plan in one transaction, then ask
//! the world. A crash between any two of these leaves rows from which the next owner goes on.

use std::collections::BTreeMap;

use parhelia_core::Timestamp;
use parhelia_core::cascade::Cascade;
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::ids::{ContainerId, SessionId};
use parhelia_core::job::api::ExecRequest;
use parhelia_core::session::plan::{
    AttemptEnd, CANCEL_GRACE_SECONDS, Child, Effect, Facts, LARGEST_OUTPUT_BYTES, Level, Plan, Run, State,
    Stdout, Step, Surroundings,
};
use parhelia_core::session::{
    BlockedType, FailureReason, Holder, PhaseStatus, Session, SessionStatus, TaskRow, TaskStatus, WaitStatus,
    tell,
};
use parhelia_core::time::plus_seconds;
use parhelia_store::{Fence, NewSession, PhaseTasks, SessionWrite, StoreError};
use serde_json::{Value, json};
use tracing::{debug, warn};

use crate::service::{AskedJob, Caller, Held, Intent, Service, ServiceError, marks_of_next, started};

/// Plans in a row for one session before others have their turn.
const ROUNDS: usize = 1000;
/// Tries to write a plan that somebody was quicker than.
const TRIES: usize = 20;
/// Read at once of what a task has written.
const CHUNK: usize = 1 << 20;
/// After an end that could not be asked for.
const ASK_AGAIN_SECONDS: i64 = 1;
/// Completed tasks of a level whose outputs are gathered.
const MOST_TASKS: i64 = 1_000_000;

/// How one session stands after it was advanced.
#[derive(Debug, Clone, PartialEq)]
pub struct Advanced {
    /// Look again then, whatever happens before.
    pub wake_at: Option<Timestamp>,
    /// There is more to do at once.
    pub again: bool,
    pub over: bool,
}

pub async fn advance(service: &Service, id: &SessionId) -> Result<Advanced, StoreError> {
    let mut held: Option<Held> = None;
    let mut stdout = BTreeMap::new();
    let mut tries = 0;
    for _ in 0..ROUNDS {
        let Some(session) = service.store.session(id).await? else { return Ok(over()) };
        let mine = session.owner_id.as_deref() == Some(service.owner_id.as_str());
        if !mine || session.status.is_over() || session.status == SessionStatus::Orphaned {
            return Ok(over());
        }
        let current = match held.take() {
            Some(mut held) => {
                held.state.session = session;
                held
            }
            None => match hold(service, session).await? {
                Some(held) => held,
                None => return Ok(over()),
            },
        };
        let Held { mut state, cascade, surroundings } = current;
        let mut facts = gather(service, &state, &cascade).await?;
        facts.stdout = std::mem::take(&mut stdout);
        let before = state.session.clone();
        let now = service.clock.now();
        let plan = state.advance(&cascade, &surroundings, &facts, now);
        if plan.changed {
            match write(service, &before, &mut state, &cascade, &surroundings, &plan, now).await {
                Ok(()) => {}
                Err(StoreError::Conflict { why, step, .. }) if tries < TRIES => {
                    debug!(session = %id, %step, %why, "somebody was quicker; it is planned again");
                    tries += 1;
                    continue;
                }
                Err(error) => return Err(error),
            }
        }
        let unasked = !carry_out(service, &plan).await;
        for (task, container) in &plan.wants_output {
            stdout.insert(task.clone(), output(service, container).await);
        }
        if state.session.status.is_over() {
            return Ok(over());
        }
        if !plan.changed && !plan.again && plan.wants_output.is_empty() {
            let soon = unasked.then(|| plus_seconds(now, ASK_AGAIN_SECONDS));
            let wake_at = plan.wake_at.into_iter().chain(soon).min();
            return Ok(Advanced { wake_at, again: false, over: false });
        }
        held = Some(Held { state, cascade, surroundings });
    }
    Ok(Advanced { wake_at: None, again: true, over: false })
}

fn over() -> Advanced {
    Advanced { wake_at: None, again: false, over: true }
}

async fn hold(service: &Service, session: Session) -> Result<Option<Held>, StoreError> {
    let id = session.session_id.clone();
    match service.held(session).await {
        Ok(held) => Ok(Some(held)),
        Err(error @ ServiceError::Unavailable { .. }) => Err(away(&error)),
        Err(error) => {
            warn!(session = %id, %error, "its definition cannot be read; it is left as it is");
            Ok(None)
        }
    }
}

/// What is known of the phases that run. A session of which nothing runs costs no questions.
async fn gather(service: &Service, state: &State, cascade: &Cascade) -> Result<Facts, StoreError> {
    use parhelia_core::cascade::Work;
    let store = &service.store;
    let id = &state.session.session_id;
    let mut facts = Facts::default();
    let running: Vec<usize> = state
        .phases
        .iter()
        .filter(|(_, row)| row.status == PhaseStatus::Running)
        .map(|(place, _)| *place)
        .collect();
    if running.is_empty() {
        return Ok(facts);
    }
    let work = |place: &usize| cascade.phases.get(*place).map(|phase| &phase.work);
    let is_wait = |place: &usize| matches!(work(place), Some(Work::Await(_)));
    let is_child = |place: &usize| matches!(work(place), Some(Work::Cascade(_)));
    let has_tasks = |place: &usize| !is_child(place);
    if running.iter().any(has_tasks) {
        facts.open = store.open_tasks(id).await?;
        facts.waits = store.waits_now(id).await?;
    }
    for wait in
        facts.waits.iter().filter(|w| w.status == WaitStatus::Open && w.wait_type == BlockedType::Signal)
    {
        let signal = store.next_signal(wait).await?;
        facts.signals.extend(signal.map(|signal| (wait.id.clone(), signal)));
    }
    if cascade.workers.lifetime == parhelia_core::cascade::Lifetime::Session {
        facts.workers = store.session_workers(id).await?;
    }
    if running.iter().any(is_child) || state.session.cancel_requested {
        for child in store.children(id).await? {
            let given = child.outputs.clone().and_then(|outputs| match outputs {
                Value::Object(map) => Some(map.into_iter().collect::<BTreeMap<_, _>>()),
                _ => None,
            });
            let place = state
                .phases
                .iter()
                .find(|(_, row)| row.child_session_id.as_ref() == Some(&child.session_id))
                .map(|(place, _)| *place);
            if let Some(place) = place {
                facts.levels.insert(place, Level { outputs: given, ..Level::default() });
            }
            facts.children.insert(
                child.session_id,
                Child {
                    status: child.status,
                    cancel_requested: child.cancel_requested,
                    cancel_force: child.cancel_force,
                    cancel_grace_seconds: child.cancel_grace_seconds,
                    error: child.error,
                    blocked_on: child.blocked_on,
                },
            );
        }
    }
    if state.session.cancel_requested {
        return Ok(facts);
    }
    let now = service.clock.now();
    let most = i64::from(cascade.workers.count.max(1));
    for place in running.iter().filter(|place| has_tasks(place)) {
        let Some(row) = state.phases.get(place) else { continue };
        let of_phase = |open: &&parhelia_core::session::plan::OpenTask| open.task.phase == row.name;
        let open = facts.open.iter().filter(of_phase).count();
        let mut level = Level {
            ready: store.pending_tasks(id, &row.name, now, most).await?,
            failed: store.tasks_in(id, &row.name, TaskStatus::Failed, 1).await?.pop(),
            ..Level::default()
        };
        if (level.ready.len() as i64) < most {
            level.retry_at = store.next_retry(id, &row.name).await?.filter(|at| *at > now);
        }
        if !is_wait(place) {
            level.resting = store.resting_tasks(id, &row.name, most.saturating_mul(4)).await?;
            let nothing_left =
                open == 0 && level.ready.is_empty() && level.retry_at.is_none() && level.resting.is_empty();
            if nothing_left && level.failed.is_none() {
                let done = store.tasks_in(id, &row.name, TaskStatus::Completed, MOST_TASKS).await?;
                level.outputs = Some(done.into_iter().map(|task| (task.key, task.outputs)).collect());
            }
        }
        facts.levels.insert(*place, level);
    }
    Ok(facts)
}

async fn write(
    service: &Service,
    before: &Session,
    state: &mut State,
    cascade: &Cascade,
    surroundings: &Surroundings,
    plan: &Plan,
    now: Timestamp,
) -> Result<(), StoreError> {
    let id = &before.session_id;
    let mut made = Made { writes: Vec::new(), events: Vec::new(), providers: Vec::new() };
    for step in &plan.steps {
        made.events.extend(tell::of_step(step, id, cascade));
        match made.step(service, before, state, cascade, surroundings, step, now).await {
            Ok(()) => {}
            Err(error @ ServiceError::Unavailable { .. }) => return Err(away(&error)),
            // What it asks for cannot be had: that is its failure, not ours.
            Err(error) => {
                for step in instead(step, &error, state, cascade).ok_or_else(|| away(&error))? {
                    // As many workers as were wanted fail one phase once.
                    if made.ends(&step) {
                        continue;
                    }
                    made.events.extend(tell::of_step(&step, id, cascade));
                    let made = made.step(service, before, state, cascade, surroundings, &step, now);
                    made.await.map_err(|error| away(&error))?;
                }
            }
        }
    }
    made.events.extend(tell::of_patch(before, &plan.patch));
    let fence = Fence::of_owner(service.owner_id.clone());
    let holder = Holder { owner_id: service.owner_id.clone(), owner_epoch: before.owner_epoch };
    let store = &service.store;
    store
        .advance_session(&fence, &holder, id, before.status, &plan.patch, made.writes, made.events, now)
        .await?;
    for provider in made.providers {
        service.poke(&provider);
    }
    Ok(())
}

/// What becomes of a step that can never be made; `None` when it is none of those.
fn instead(step: &Step, error: &ServiceError, state: &State, cascade: &Cascade) -> Option<Vec<Step>> {
    let message = error.to_string();
    Some(match step {
        Step::StartAttempt { task, .. } => vec![Step::FailTask { task: task.clone(), message }],
        Step::StartVerify { task, attempt, .. } => {
            let message = format!("its verification cannot be started: {message}");
            let reason = FailureReason::VerificationFailed;
            let end = AttemptEnd::Failed { exit_code: None, reason, message };
            vec![Step::EndAttempt { task: task.clone(), attempt: *attempt, end }]
        }
        Step::StartWorker => {
            let running = state.phases.iter().filter(|(_, row)| row.status == PhaseStatus::Running);
            let working = running.filter(|(place, _)| cascade.works(**place));
            let error = format!("its workers cannot be started: {message}");
            let failed = |position: usize| Step::EndPhase {
                position,
                status: PhaseStatus::Failed,
                outputs: json!({}),
                error: Some(error.clone()),
            };
            working.map(|(place, _)| failed(*place)).collect()
        }
        _ => return None,
    })
}

/// What must be so of the tasks of a phase that ends, when it is written.
fn tasks_of(cascade: &Cascade, position: usize, status: PhaseStatus) -> PhaseTasks {
    use parhelia_core::cascade::{Await, Awaited, Sensor, Work};
    match cascade.phases.get(position).map(|phase| &phase.work) {
        _ if cascade.works(position) && status == PhaseStatus::Completed => PhaseTasks::Completed,
        _ if cascade.works(position) && status != PhaseStatus::Skipped => PhaseTasks::Ended,
        Some(Work::Await(Await { awaited: Awaited::Sensor(Sensor::Command { .. }), .. })) => {
            PhaseTasks::Ended
        }
        _ => PhaseTasks::None,
    }
}

/// It is tried again.
fn away(error: &ServiceError) -> StoreError {
    StoreError::Unavailable { what: error.to_string(), fix: "it is tried again by itself".into() }
}

struct Made {
    writes: Vec<SessionWrite>,
    events: Vec<NewEvent>,
    /// Where something is to be started.
    providers: Vec<String>,
}

impl Made {
    /// Whether the phase that this step would end is ended already.
    fn ends(&self, step: &Step) -> bool {
        let Step::EndPhase { position, .. } = step else { return false };
        let same = |write: &SessionWrite| matches!(write, SessionWrite::EndPhase { position: at, .. } if at == position);
        self.writes.iter().any(same)
    }

    #[allow(clippy::too_many_arguments, reason = "all that a step may need")]
    async fn step(
        &mut self,
        service: &Service,
        session: &Session,
        state: &mut State,
        cascade: &Cascade,
        surroundings: &Surroundings,
        step: &Step,
        now: Timestamp,
    ) -> Result<(), ServiceError> {
        let entropy = &service.entropy;
        let name = |position: usize| cascade.phases.get(position).map(|p| p.name.clone()).unwrap_or_default();
        let write = match step {
            Step::BeginPhase { position, tasks } => SessionWrite::BeginPhase {
                position: *position,
                name: name(*position),
                tasks: tasks.iter().map(|task| (entropy.task_id(now), task.clone())).collect(),
                child: None,
            },
            Step::EndPhase { position, status, outputs, error } => SessionWrite::EndPhase {
                position: *position,
                name: name(*position),
                status: *status,
                outputs: outputs.clone(),
                error: error.clone(),
                checkpoint: status.is_passed().then(|| entropy.checkpoint_id(now)),
                tasks: tasks_of(cascade, *position, *status),
            },
            Step::StartAttempt { task, run, .. } => {
                let Intent { container, mut events } =
                    intent(service, session, cascade, surroundings, task, run).await?;
                events.push(task_started(session, task, &container.id));
                self.providers.push(container.provider.clone());
                SessionWrite::StartAttempt { task: task.clone(), container: Box::new(container), events }
            }
            Step::StartWorker => {
                let Intent { container, events } = worker(service, session, cascade, surroundings, now)?;
                self.providers.push(container.provider.clone());
                let id = container.spec.as_ref().and_then(|spec| spec.env.get("PARHELIA_WORKER_ID").cloned());
                SessionWrite::StartWorker {
                    id: id.unwrap_or_default(),
                    container: Box::new(container),
                    events,
                }
            }
            Step::StartVerify { task, attempt, run, .. } => {
                let about = verifying(task);
                let Intent { container, events } =
                    intent(service, session, cascade, surroundings, &about, run).await?;
                self.providers.push(container.provider.clone());
                let container = Box::new(container);
                SessionWrite::StartVerify { task: task.id.clone(), attempt: *attempt, container, events }
            }
            Step::EndAttempt { task, attempt, end } => SessionWrite::EndAttempt {
                task: task.clone(),
                attempt: *attempt,
                end: end.clone(),
                checkpoint: matches!(end, AttemptEnd::Completed { .. }).then(|| entropy.checkpoint_id(now)),
            },
            Step::FailTask { task, message } => {
                SessionWrite::FailTask { task: task.clone(), message: message.clone() }
            }
            Step::OpenWait { position, task, wait } => SessionWrite::OpenWait {
                id: entropy.wait_id(now),
                phase: name(*position),
                task: task.clone(),
                wait: wait.clone(),
            },
            Step::Deliver { signal, wait, payload, .. } => {
                SessionWrite::Deliver { signal: signal.clone(), wait: wait.clone(), payload: payload.clone() }
            }
            Step::TimeOutWait { wait, then, .. } => {
                let known = service.store.waits_now(&session.session_id).await?;
                let default_value = known.into_iter().find(|w| w.id == *wait).and_then(|w| w.default_value);
                SessionWrite::TimeOutWait { wait: wait.clone(), then: *then, default_value }
            }
            Step::WithdrawWait { wait } => SessionWrite::WithdrawWait { wait: wait.clone() },
            Step::FulfilWait { wait } => SessionWrite::FulfilWait { wait: wait.clone() },
            Step::StartChild { position, cascade: below, inputs } => {
                let caller = Caller::admin(&session.created_by);
                let child = NewSession {
                    parent: Some((session.session_id.clone(), name(*position))),
                    depth: session.depth + 1,
                    resumable: session.resumable,
                    auto_resume: session.auto_resume,
                    ..service.new_session(below, inputs.clone(), surroundings, &caller)?
                };
                self.events.push(started(&child, &session.created_by));
                if let Some(row) = state.phases.get_mut(position) {
                    row.child_session_id = Some(child.session_id.clone());
                }
                let begun = self.writes.iter_mut().rev().find_map(|write| match write {
                    SessionWrite::BeginPhase { position: at, child, .. } if at == position => Some(child),
                    _ => None,
                });
                if let Some(place) = begun {
                    *place = Some(Box::new(child));
                }
                return Ok(());
            }
            Step::CancelChild { child } => SessionWrite::CancelChild {
                child: child.clone(),
                reason: session.cancel_reason.clone(),
                by: session.cancel_requested_by.clone().unwrap_or_else(|| session.session_id.to_string()),
                force: session.cancel_force,
                grace_seconds: session.cancel_grace_seconds.unwrap_or(CANCEL_GRACE_SECONDS),
            },
            Step::Outputs { outputs } => SessionWrite::Outputs { outputs: outputs.clone() },
        };
        self.writes.push(write);
        Ok(())
    }
}

fn task_started(session: &Session, task: &TaskRow, container: &ContainerId) -> NewEvent {
    let attempt = task.attempt + 1;
    let again = if attempt > 1 { format!(" (attempt {attempt})") } else { String::new() };
    NewEvent::new(EventType::TaskStarted, Source::Sessions, format!("Task {} started{again}", task.key))
        .session(&session.session_id)
        .task(Some(task.id.as_str()))
        .container(container)
        .details(json!({ "phase": task.phase, "task": task.key, "attempt": attempt }))
}

/// What a verification is called; it belongs to the task that it verifies.
fn verifying(task: &TaskRow) -> TaskRow {
    let key = format!("{} (verify)", task.key);
    TaskRow::pending(task.id.clone(), task.session_id.clone(), &task.phase, &key, key.clone())
}

async fn intent(
    service: &Service,
    session: &Session,
    cascade: &Cascade,
    surroundings: &Surroundings,
    task: &TaskRow,
    run: &Run,
) -> Result<Intent, ServiceError> {
    let caller = Caller::admin(&session.created_by);
    let (request, asked) = match &run.resume {
        Some((container, answer)) => resumed(service, container, answer, run).await?,
        None => {
            let workers = &cascade.workers;
            let provider = surroundings.provider.as_ref().or(workers.provider.as_ref());
            let provider = provider.cloned().unwrap_or_else(|| "process".to_owned());
            // Where no supervisor of ours is, the session itself ends what takes too long.
            let supervised = service.provider(&provider)?.provider.job_files().is_some();
            service.command_of(ExecRequest {
                provider,
                image: workers.image.clone(),
                name: None,
                command: run.command.clone(),
                env: run.env.clone(),
                workdir: run.workdir.clone(),
                labels: BTreeMap::new(),
                resources: workers.resources.clone(),
                secrets: workers.secrets.clone(),
                engine: run.engine.clone(),
                session: None,
                terminal: None,
                stdin: false,
                timeout_seconds: run.timeout_seconds.filter(|_| supervised),
                keep: false,
            })?
        }
    };
    let request = parhelia_core::api::RunRequest {
        name: Some(task.key.clone()),
        task_id: Some(task.id.to_string()),
        task_title: Some(task.title.clone()),
        ..request
    };
    let mut intent = service.prepare(request, Some(asked), Some(&session.session_id), &caller)?;
    if let Some(spec) = &mut intent.container.spec {
        spec.env.extend(marks_of_next(task));
    }
    Ok(intent)
}

/// A worker is this program, in a sandbox of the session's: it claims its tasks through the home's own socket.
fn worker(
    service: &Service,
    session: &Session,
    cascade: &Cascade,
    surroundings: &Surroundings,
    now: Timestamp,
) -> Result<Intent, ServiceError> {
    let workers = &cascade.workers;
    let provider = surroundings.provider.as_ref().or(workers.provider.as_ref());
    let provider = provider.cloned().unwrap_or_else(|| "process".to_owned());
    let id = service.entropy.worker_id(now).to_string();
    let session_id = session.session_id.to_string();
    let words = [&service.program, "worker", "--session", &session_id, "--worker", &id];
    let (request, asked) = service.command_of(ExecRequest {
        provider,
        image: workers.image.clone(),
        name: Some("worker".to_owned()),
        command: words.map(str::to_owned).to_vec(),
        env: BTreeMap::new(),
        workdir: surroundings.workdir.clone(),
        labels: BTreeMap::new(),
        resources: workers.resources.clone(),
        secrets: workers.secrets.clone(),
        engine: None,
        session: None,
        terminal: None,
        stdin: false,
        timeout_seconds: None,
        keep: false,
    })?;
    let caller = Caller::admin(&session.created_by);
    let mut intent = service.prepare(request, Some(asked), Some(&session.session_id), &caller)?;
    if let Some(spec) = &mut intent.container.spec {
        spec.env.insert("PARHELIA_WORKER_ID".to_owned(), id);
    }
    Ok(intent)
}

/// An agent goes on with the answer that it asked for.
async fn resumed(
    service: &Service,
    container: &ContainerId,
    answer: &str,
    run: &Run,
) -> Result<(parhelia_core::api::RunRequest, AskedJob), ServiceError> {
    let job = service.store.job_of_container(container).await?;
    let job = job.ok_or_else(|| ServiceError::no_container(container.as_str()))?;
    // The answer stands where the prompt stood, and what else the agent was given it is given again; one that knows no
    // earlier session is started as it was, with the answer behind that.
    let anew = job.agent_session.is_none();
    let further = run.command.iter().skip(1).filter(|_| run.engine.is_some() && !anew);
    let arguments: Vec<String> = std::iter::once(answer.to_owned()).chain(further.cloned()).collect();
    service.continued(&job, &arguments, true).await
}

/// Whether all of it was asked for.
async fn carry_out(service: &Service, plan: &Plan) -> bool {
    let mut all = true;
    for effect in &plan.effects {
        let Effect::Stop { container, grace_seconds, why, reason, by } = effect;
        let because = Some(reason.clone());
        let asked = service.desire_end(container, *why, *grace_seconds, because, &Caller::admin(by)).await;
        if let Err(error) = asked {
            warn!(%container, %error, "its end could not be asked for; it is asked again");
            all = false;
        }
    }
    all
}

/// All that a task has written, if it is not too much to be a value.
async fn output(service: &Service, container: &ContainerId) -> Stdout {
    let mut all = Vec::new();
    let mut offset = 0;
    loop {
        match service.logs(container.as_str(), offset, Some(CHUNK), 0).await {
            Ok(chunk) if chunk.offset > offset => return Stdout::TooLarge,
            Ok(chunk) => {
                all.extend_from_slice(&chunk.bytes);
                if all.len() > LARGEST_OUTPUT_BYTES {
                    return Stdout::TooLarge;
                }
                if chunk.finished || chunk.bytes.is_empty() {
                    return Stdout::Text(String::from_utf8_lossy(&all).into_owned());
                }
                offset = chunk.next_offset;
            }
            Err(error) => return Stdout::Unreadable(error.to_string()),
        }
    }
}
