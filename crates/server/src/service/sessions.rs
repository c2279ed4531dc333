//! Sessions: begin one, want its end, go on with one. What happens in them is the sessions loop's to do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parhelia_core::api::RunRequest;
use parhelia_core::cascade::{Cascade, Lifetime, parse};
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::ids::{ContainerId, SessionId};
use parhelia_core::session::api::{
    CancelSession, CleanupSessionsReport, ResumeSession, StartSession, Zombie,
};
use parhelia_core::session::plan::{CANCEL_GRACE_SECONDS, State, Surroundings};
use parhelia_core::session::{PhaseRow, PhaseStatus, Session, SessionStatus, TaskRow, TaskStatus};
use parhelia_store::{Done, Fence, NewSession, StoreError};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::session_views::no_session;
use super::{AskedJob, Caller, Intent, Service, ServiceError, validate};

const LONGEST_GRACE_SECONDS: i64 = 3600;
/// What `exec` calls its cascade.
pub(super) const EXEC: &str = "exec";
/// Tasks of one level that a fork can take over.
const MOST_TASKS: i64 = 1_000_000;
const ZOMBIES: i64 = 1000;

/// What is read once for a session and kept while it is being advanced.
pub(crate) struct Held {
    pub(crate) state: State,
    pub(crate) cascade: Arc<Cascade>,
    pub(crate) surroundings: Surroundings,
}

/// What the next attempt of a task finds in its environment about itself.
pub(crate) fn marks_of_next(task: &TaskRow) -> [(String, String); 4] {
    [
        ("PARHELIA_SESSION_ID", task.session_id.to_string()),
        ("PARHELIA_PHASE", task.phase.clone()),
        ("PARHELIA_TASK", task.key.clone()),
        ("PARHELIA_ATTEMPT", (task.attempt + 1).to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

/// A definition as it is stored, with the hash that names it.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) hash: String,
    pub(crate) text: Arc<str>,
}

pub(crate) fn keep(cascade: &Cascade) -> Result<Kept, ServiceError> {
    let text = serde_json::to_string(cascade)
        .map_err(|e| ServiceError::invalid(format!("the cascade cannot be kept: {e}"), "simplify it"))?;
    Ok(Kept { hash: hex::encode(Sha256::digest(text.as_bytes())), text: Arc::from(text) })
}

impl Service {
    /// Records a session and returns; this server's loop makes it real.
    pub async fn start_session(
        &self,
        request: StartSession,
        caller: &Caller,
    ) -> Result<Session, ServiceError> {
        validate::session(&request)?;
        let cascade = definition(&request)?;
        for engine in cascade.engines() {
            self.engine(engine)?;
        }
        let inputs =
            parse::resolve_inputs(&cascade, &request.inputs, &request.input_texts).map_err(|wrong| {
                ServiceError::invalid(wrong.join("; "), "give each as -i NAME=VALUE (inputs in the request)")
            })?;
        let provider = request.provider.as_deref().or(cascade.workers.provider.as_deref());
        if let Some(provider) = provider {
            self.provider(provider)?;
        }
        let at_home = provider.is_none_or(|name| name == "process" || name.starts_with("process:"));
        if cascade.workers.lifetime == Lifetime::Session && !at_home {
            let named = provider.unwrap_or_default();
            return Err(ServiceError::invalid(
                format!("workers that live as long as their session run at provider process, not at {named}"),
                "leave workers.provider out, or set workers.lifetime to 'task'",
            ));
        }
        let surroundings = Surroundings {
            workdir: request.workdir,
            env: request.env,
            provider: request.provider,
            exec: false,
        };
        let new = NewSession {
            resumable: request.resumable.unwrap_or(cascade.resumable),
            auto_resume: request.auto_resume.unwrap_or(true),
            name: request.name,
            ..self.new_session(&cascade, Value::Object(inputs), &surroundings, caller)?
        };
        self.begin(new, caller).await
    }

    async fn begin(&self, new: NewSession, caller: &Caller) -> Result<Session, ServiceError> {
        let now = self.clock.now();
        let events = all_started(&new, &caller.subject);
        self.store.start_session(&new, events, now).await?;
        self.session_row(&new.session_id).await
    }

    pub(super) async fn session_row(&self, id: &SessionId) -> Result<Session, ServiceError> {
        self.store.session(id).await?.ok_or_else(|| no_session(id.as_str()))
    }

    /// Everything but what the caller sets himself.
    pub(crate) fn new_session(
        &self,
        cascade: &Cascade,
        inputs: Value,
        surroundings: &Surroundings,
        caller: &Caller,
    ) -> Result<NewSession, ServiceError> {
        let Kept { hash, text } = keep(cascade)?;
        Ok(NewSession {
            session_id: self.entropy.session_id(self.clock.now()),
            cascade_id: cascade.cascade_id.clone(),
            parent: None,
            depth: 0,
            name: None,
            resumable: cascade.resumable,
            auto_resume: true,
            origin: None,
            created_by: caller.subject.clone(),
            metadata: json!({}),
            owner_id: self.owner_id.clone(),
            cascade_hash: hash,
            definition: text,
            inputs,
            surroundings: serde_json::to_value(surroundings).unwrap_or_default(),
            done: Vec::new(),
        })
    }

    /// One command as a session of its own, which begins with its only task.
    pub(super) async fn start_exec(
        &self,
        run: RunRequest,
        asked: AskedJob,
        name: Option<String>,
        continues: Option<&ContainerId>,
        caller: &Caller,
    ) -> Result<ContainerId, ServiceError> {
        let now = self.clock.now();
        let cascade = Cascade::of_one(EXEC, run.command.clone());
        let surroundings =
            Surroundings { exec: true, provider: Some(run.provider.clone()), ..Surroundings::default() };
        let origin = match continues {
            Some(container) => self.store.session_of_ended(container.as_str()).await?,
            None => None,
        };
        let new = NewSession {
            name,
            origin: origin.map(|id| (id, None)),
            ..self.new_session(&cascade, json!({}), &surroundings, caller)?
        };
        let title = run.command.join(" ").chars().take(200).collect();
        let task = TaskRow::pending(self.entropy.task_id(now), new.session_id.clone(), EXEC, EXEC, title);
        let run =
            RunRequest { task_id: Some(task.id.to_string()), task_title: Some(task.title.clone()), ..run };
        let Intent { container, mut events } =
            self.prepare(run, Some(asked), Some(&new.session_id), caller)?;
        let (id, provider) = (container.id.clone(), container.provider.clone());
        events.insert(0, started(&new, &caller.subject));
        self.store.start_exec(&new, &task, container, events, now).await?;
        self.poke(&provider);
        Ok(id)
    }

    /// Wants the end of a session and of everything below it. Its owner passes that on and says when all is gone.
    pub async fn cancel_session(
        &self,
        given: &str,
        request: CancelSession,
        caller: &Caller,
    ) -> Result<Session, ServiceError> {
        let grace = request.grace_seconds.unwrap_or(CANCEL_GRACE_SECONDS);
        if !(0..=LONGEST_GRACE_SECONDS).contains(&grace) {
            return Err(ServiceError::invalid(
                format!("a grace of {grace} seconds is out of range"),
                format!("give from 0 (at once) to {LONGEST_GRACE_SECONDS}"),
            ));
        }
        let id = self.resolve_session(given).await?;
        let reason = request.reason.map(|r| r.chars().take(1000).collect::<String>());
        let because = reason.as_deref().map(|r| format!(": {r}")).unwrap_or_default();
        let event = NewEvent::new(
            EventType::SessionCancelRequested,
            Source::User,
            format!("Cancel requested by {}{because}", caller.subject),
        )
        .session(&id)
        .details(json!({ "by": caller.subject, "force": request.force, "grace_seconds": grace }));
        let grace = if request.force { 0 } else { grace };
        let now = self.clock.now();
        let asked = self.store.cancel_session(
            &id,
            reason.as_deref(),
            &caller.subject,
            request.force,
            grace,
            vec![event],
            now,
        );
        match asked.await {
            Ok(()) => {}
            // Over already: what was wanted is so, or can no longer be had; the row says which.
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let session = self.session_row(&id).await?;
        match session.status {
            // Nobody advances it: it has no owner that could.
            SessionStatus::Orphaned => {
                match self.take_over(&session, SessionStatus::Running, &caller.subject).await {
                    // Somebody else was quicker, and ends it.
                    Err(ServiceError::Conflict { .. }) => self.session_row(&id).await,
                    taken => taken,
                }
            }
            SessionStatus::Completed | SessionStatus::Error => Err(ServiceError::Conflict {
                message: format!("session {id} is over: {}", session.status),
                fix: "nothing of it runs; 'parhelia sessions show' tells how it ended",
            }),
            _ => Ok(session),
        }
    }

    /// Goes on with a session: an orphaned one in place, one that is over as a new one that keeps what was done.
    pub async fn resume_session(
        &self,
        given: &str,
        request: ResumeSession,
        caller: &Caller,
    ) -> Result<Session, ServiceError> {
        let id = self.resolve_session(given).await?;
        let session = self.session_row(&id).await?;
        match (session.status, &request.from) {
            (SessionStatus::Orphaned, None) => {
                self.store.end_trial(&Fence::of_owner(self.owner_id.clone()), &id).await?;
                self.take_over(&session, SessionStatus::Running, &caller.subject).await
            }
            (status, None) if !status.is_over() => Err(ServiceError::Conflict {
                message: format!("session {id} is {status}: there is nothing to resume"),
                fix: "answer what it waits for ('parhelia inbox'), or cancel it first; --from PHASE makes a copy that begins there",
            }),
            (SessionStatus::Completed, None) => Err(ServiceError::Conflict {
                message: format!("session {id} is completed: there is nothing left to do"),
                fix: "give --from PHASE to do it again from there, as a new session",
            }),
            (_, None) => {
                let next = self.store.sessions_of_origin(&id).await?;
                if let Some((next, _)) = next.into_iter().find(|(_, from)| from.is_none()) {
                    return Err(ServiceError::Conflict {
                        message: format!("session {id} was gone on with already, as {next}"),
                        fix: "look at that one, or resume it; --from PHASE begins this one again from there",
                    });
                }
                self.fork(&session, None, caller).await
            }
            (_, Some(from)) => self.fork(&session, Some(from), caller).await,
        }
    }

    /// A new session that keeps what an earlier one has done, all of it or what came before a phase.
    async fn fork(
        &self,
        origin: &Session,
        from: Option<&str>,
        caller: &Caller,
    ) -> Result<Session, ServiceError> {
        let new = self.continuation(origin, from, None, caller).await?;
        self.begin(new, caller).await
    }

    /// With the sub-sessions that were not done: they go on too, as new ones.
    fn continuation<'a>(
        &'a self,
        origin: &'a Session,
        from: Option<&'a str>,
        parent: Option<(SessionId, String)>,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<NewSession, ServiceError>> {
        async move {
            let id = &origin.session_id;
            let values = self.store.session_values(id).await?.ok_or_else(|| no_session(id.as_str()))?;
            let cascade = self.cascade(&values.cascade_hash).await?;
            let surroundings: Surroundings = serde_json::from_value(values.surroundings).unwrap_or_default();
            if surroundings.exec {
                return Err(ServiceError::invalid(
                    format!("session {id} is one command, run by 'parhelia exec'"),
                    "go on with its job: 'parhelia jobs resume'",
                ));
            }
            let again = match from {
                Some(name) => after(&cascade, name)?,
                None => BTreeSet::new(),
            };
            let mut new = NewSession {
                name: origin.name.clone(),
                resumable: origin.resumable,
                auto_resume: origin.auto_resume,
                depth: origin.depth,
                parent,
                origin: Some((id.clone(), from.map(str::to_owned))),
                ..self.new_session(&cascade, values.inputs, &surroundings, caller)?
            };
            if new.parent.is_none() {
                new.depth = 0;
            }
            for phase in self.store.session_phases(id).await? {
                let place = phase.position.max(0) as usize;
                let passed = phase.status.is_passed();
                if again.contains(&place) || (!passed && from.is_some()) {
                    continue;
                }
                let tasks = self.kept_tasks(id, &phase).await?;
                if passed {
                    new.done.push(Done { phase, tasks, child: None });
                    continue;
                }
                let running =
                    PhaseRow { status: PhaseStatus::Running, completed_at: None, error: None, ..phase };
                if let Some(below) = &running.child_session_id {
                    let below = self.session_row(below).await?;
                    let parent = Some((new.session_id.clone(), running.name.clone()));
                    let child = self.continuation(&below, None, parent, caller).await?;
                    let phase = PhaseRow { child_session_id: Some(child.session_id.clone()), ..running };
                    new.done.push(Done { phase, tasks, child: Some(Box::new(child)) });
                } else if cascade.works(place) && tasks.iter().any(|task| task.state == TaskStatus::Completed)
                {
                    // What is done of it stays done; anything else begins anew.
                    new.done.push(Done { phase: running, tasks, child: None });
                }
            }
            Ok(new)
        }
        .boxed()
    }

    /// The tasks of a phase for its copy, with new ids: completed ones as they are, others as if never begun.
    async fn kept_tasks(&self, id: &SessionId, phase: &PhaseRow) -> Result<Vec<TaskRow>, ServiceError> {
        let mut all = Vec::new();
        for state in TaskStatus::ALL {
            all.extend(self.store.tasks_in(id, &phase.name, *state, MOST_TASKS).await?);
        }
        all.sort_by_key(|task| task.position);
        let now = self.clock.now();
        for task in &mut all {
            task.id = self.entropy.task_id(now);
        }
        Ok(all)
    }

    pub(crate) async fn cascade(&self, hash: &str) -> Result<Arc<Cascade>, ServiceError> {
        if let Some(known) = self.cascades.get(hash) {
            return Ok(known);
        }
        let text = self.store.cascade_by_hash(hash).await?.ok_or(ServiceError::NotFound {
            what: "definition",
            id: hash.to_owned(),
            fix: "its session cannot go on; start it anew",
        })?;
        let cascade: Cascade = serde_json::from_str(&text).map_err(|e| {
            ServiceError::invalid(
                format!("a stored definition cannot be read: {e}"),
                "was it written by a newer version? use that one",
            )
        })?;
        let cascade = Arc::new(cascade);
        self.cascades.put(hash, cascade.clone());
        Ok(cascade)
    }

    /// What is recorded of a session, ready to be planned with.
    pub(crate) async fn held(&self, session: Session) -> Result<Held, ServiceError> {
        let id = session.session_id.clone();
        let values = self.store.session_values(&id).await?.ok_or_else(|| no_session(id.as_str()))?;
        let cascade = self.cascade(&values.cascade_hash).await?;
        let surroundings = serde_json::from_value(values.surroundings).unwrap_or_default();
        let phases = self.store.session_phases(&id).await?;
        Ok(Held { state: State::new(session, values.inputs, phases), cascade, surroundings })
    }

    /// Sessions whose owner is dead, and what becomes of each. It happens by itself; asking makes it happen now.
    pub async fn cleanup_sessions(&self, dry_run: bool) -> Result<CleanupSessionsReport, ServiceError> {
        let found = self.store.ownerless_sessions(&self.owner_id, ZOMBIES).await?;
        let mut zombies = Vec::new();
        for session in found {
            let to = heir(&session);
            if !dry_run {
                match self.take_over(&session, to, "cleanup").await {
                    Ok(_) | Err(ServiceError::Conflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            zombies.push(Zombie {
                session_id: session.session_id,
                cascade_id: session.cascade_id,
                status: session.status,
                heartbeat_at: session.heartbeat_at,
                outcome: if to == SessionStatus::Orphaned { "orphaned" } else { "resumed" }.to_owned(),
            });
        }
        Ok(CleanupSessionsReport { zombies, dry_run })
    }

    /// This server goes on with a session of somebody who is gone (or, as `orphaned`, nobody does).
    pub(crate) async fn take_session(
        &self,
        session: &Session,
        to: SessionStatus,
        by: &str,
    ) -> Result<(), StoreError> {
        let id = &session.session_id;
        let former = session.owner_id.as_deref().unwrap_or("nobody");
        let (kind, message) = if to == SessionStatus::Orphaned {
            (
                EventType::SessionOrphaned,
                format!("Its server {former} is gone; 'sessions resume' goes on with it"),
            )
        } else {
            (EventType::SessionResumed, format!("Goes on here; its server {former} is gone"))
        };
        let event = NewEvent::new(kind, Source::Sessions, message)
            .session(id)
            .change(session.status, to)
            .details(json!({ "former_owner": session.owner_id, "owner": self.owner_id, "by": by }));
        let fence = Fence::of_owner(self.owner_id.clone());
        self.store.take_session(&fence, session, &self.owner_id, to, vec![event], self.clock.now()).await
    }

    /// Nobody goes on with a session of which servers die.
    pub(crate) async fn leave_session(&self, session: &Session, deaths: i64) -> Result<(), StoreError> {
        let id = &session.session_id;
        let message = format!(
            "{deaths} servers died when they began to advance it, and no other goes on with it by itself; look at its \
             cascade and its inputs, then 'sessions resume' tries once more and 'sessions cancel' ends it"
        );
        let event = NewEvent::new(EventType::SessionOrphaned, Source::Sessions, message)
            .session(id)
            .change(session.status, SessionStatus::Orphaned)
            .details(json!({ "former_owner": session.owner_id, "owner": self.owner_id, "deaths": deaths }));
        let fence = Fence::of_owner(self.owner_id.clone());
        let (to, now) = (SessionStatus::Orphaned, self.clock.now());
        self.store.take_session(&fence, session, &self.owner_id, to, vec![event], now).await
    }

    async fn take_over(
        &self,
        session: &Session,
        to: SessionStatus,
        by: &str,
    ) -> Result<Session, ServiceError> {
        let id = &session.session_id;
        match self.take_session(session, to, by).await {
            Ok(()) => self.session_row(id).await,
            Err(StoreError::Conflict { .. }) => Err(ServiceError::Conflict {
                message: format!("session {id} was taken by somebody else just now"),
                fix: "look at it again with 'parhelia sessions show'",
            }),
            Err(error) => Err(error.into()),
        }
    }
}

/// What becomes of a session whose owner is dead: it goes on where that may be. One that was left goes on when its end is
/// wanted, or when the session above it goes on.
pub(crate) fn heir(session: &Session) -> SessionStatus {
    match session.status {
        SessionStatus::Orphaned => SessionStatus::Running,
        other if session.cancel_requested || (session.resumable && session.auto_resume) => other,
        _ => SessionStatus::Orphaned,
    }
}

/// Of a session, and of those below it that begin with it.
fn all_started(new: &NewSession, by: &str) -> Vec<NewEvent> {
    let below = new.done.iter().filter_map(|done| done.child.as_deref());
    std::iter::once(started(new, by)).chain(below.flat_map(|child| all_started(child, by))).collect()
}

pub(crate) fn started(new: &NewSession, by: &str) -> NewEvent {
    NewEvent::new(EventType::SessionStarted, Source::User, format!("Session of {} started", new.cascade_id))
        .session(&new.session_id)
        .change("none", SessionStatus::Starting)
        .details(json!({
            "cascade": new.cascade_id,
            "by": by,
            "parent": new.parent.as_ref().map(|(id, _)| id),
            "origin": new.origin.as_ref().map(|(id, _)| id),
        }))
}

fn definition(request: &StartSession) -> Result<Cascade, ServiceError> {
    let wrong = |mistakes: Vec<parse::Mistake>| {
        let shown: Vec<String> = mistakes.iter().take(20).map(ToString::to_string).collect();
        ServiceError::invalid(
            format!("the cascade has mistakes: {}", shown.join("; ")),
            "'parhelia cascade check FILE' shows each with its place",
        )
    };
    match (&request.cascade, &request.text) {
        (Some(given), None) => parse::from_value(given).map_err(wrong),
        (None, Some(text)) => parse::read(text).map_err(wrong),
        _ => Err(ServiceError::invalid(
            "give a cascade either as 'cascade' (JSON) or as 'text' (YAML)",
            "see 'parhelia cascade schema'",
        )),
    }
}

/// The places of a phase and of everything that needs it, directly or not.
fn after(cascade: &Cascade, name: &str) -> Result<BTreeSet<usize>, ServiceError> {
    let Some(first) = cascade.phases.iter().position(|phase| phase.name == name) else {
        let known: Vec<&str> = cascade.phases.iter().map(|phase| phase.name.as_str()).take(50).collect();
        let shown: String = name.chars().take(64).collect();
        return Err(ServiceError::invalid(
            format!("the cascade has no phase '{shown}'"),
            format!("use one of: {}", known.join(", ")),
        ));
    };
    let needs: BTreeMap<usize, Vec<usize>> =
        (0..cascade.phases.len()).map(|place| (place, cascade.needs(place))).collect();
    let mut all = BTreeSet::from([first]);
    loop {
        let more: Vec<usize> = needs
            .iter()
            .filter(|(place, needs)| !all.contains(place) && needs.iter().any(|need| all.contains(need)))
            .map(|(place, _)| *place)
            .collect();
        if more.is_empty() {
            return Ok(all);
        }
        all.extend(more);
    }
}
