//! The sessions that this server owns: it advances each when something happened to it, when its time has come, and now
//! and then whether or not anything did. It also takes over those of owners that are gone.
//!
//! It owns the columns of sessions, phases, tasks and checkpoints, and ends waits that nobody answers. What it hears comes
//! from the tail of the history, so that what another server records is heard too; a hint decides nothing.

pub mod advance;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use parhelia_core::Timestamp;
use parhelia_core::event::{Event, EventType};
use parhelia_core::ids::SessionId;
use parhelia_core::job::StartStep;
use parhelia_core::session::{LEASE_SECONDS, MOST_DEATHS};
use parhelia_core::time::plus_seconds;
use parhelia_store::{Fence, StoreError};
use tokio::sync::{RwLock, watch};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use self::advance::Advanced;
use super::driver::Ended;
use super::stopped;
use crate::home::Home;
use crate::relay::{Batch, Tail};
use crate::serve::{boot_id, host};
use crate::service::{Service, heir};
use crate::startup::{Said, StartLog};

/// Sessions that are advanced at once; each write of theirs shares a commit with the others'.
const AT_ONCE: usize = 128;
/// Whether owners have died.
const LOOK_FOR_HEIRS: Duration = Duration::from_secs(2);
/// Everything once more, in case something was not heard.
const LOOK_AT_ALL: Duration = Duration::from_secs(300);
const PAGE: i64 = 1000;
/// What an owner's lease holds.
const LEASE: Duration = Duration::from_secs(LEASE_SECONDS as u64);
/// Whoever has not looked for longer begins anew: half of that.
const LOOKED: Duration = Duration::from_secs(LEASE_SECONDS as u64 / 2);
/// After a store that did not answer.
const PAUSE: Duration = Duration::from_secs(1);

pub struct SessionsLoop {
    service: Arc<Service>,
    /// To be looked at.
    due: BTreeSet<SessionId>,
    /// Being looked at.
    busy: HashSet<SessionId>,
    /// Could not be advanced, and when to try again: by a clock that nobody sets back.
    failed: BTreeSet<SessionId>,
    retry_at: Option<Duration>,
    /// When to look whatever happens, by time and by session.
    timers: BTreeSet<(Timestamp, SessionId)>,
    timer_of: HashMap<SessionId, Timestamp>,
    /// Taken over, and not looked at since.
    taken: HashMap<SessionId, Trial>,
    /// Whatever a server may have died of is looked at while no other first look is under way.
    alone: Arc<RwLock<()>>,
    /// Something was told and not understood: everything is to be looked at.
    missed: bool,
    /// The leases of the others as we saw them last, and since when each has not changed.
    leases: HashMap<String, (Timestamp, Duration)>,
    looked_at: Duration,
    /// When the first of those would be over.
    expiry_at: Option<Duration>,
}

impl std::fmt::Debug for SessionsLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionsLoop").field("due", &self.due.len()).finish_non_exhaustive()
    }
}

/// The first look at a session after it was taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    /// It is to be recorded.
    New,
    /// It is recorded, and to be forgotten once it was survived.
    Begun,
}

/// Advances a session. The first time after it was taken over, that is recorded before and forgotten afterwards: what a
/// server dies of is then known by name, and is left to a person instead of taking every next server down as well.
async fn look(
    service: &Service,
    id: &SessionId,
    trial: &mut Option<Trial>,
    alone: &RwLock<()>,
) -> Result<Advanced, StoreError> {
    let Some(stage) = *trial else { return advance::advance(service, id).await };
    let (store, fence) = (&service.store, Fence::of_owner(service.owner_id.clone()));
    let deaths = if stage == Trial::New { store.session_trials(id).await? } else { 0 };
    let (_together, _alone) = match deaths {
        0 => (Some(alone.read().await), None),
        _ => (None, Some(alone.write().await)),
    };
    if deaths >= MOST_DEATHS
        && let Some(session) = store.session(id).await?
        && !session.cancel_requested
        && !session.status.is_over()
    {
        warn!(session = %id, deaths, "servers died of it; it is left to a person");
        *trial = None;
        return match service.leave_session(&session, deaths).await {
            Ok(()) | Err(StoreError::Conflict { .. }) => {
                Ok(Advanced { wake_at: None, again: false, over: true })
            }
            Err(error) => Err(error),
        };
    }
    if stage == Trial::New {
        store.begin_trial(&fence, id).await?;
        *trial = Some(Trial::Begun);
    }
    let advanced = advance::advance(service, id).await?;
    store.end_trial(&fence, id).await?;
    *trial = None;
    Ok(advanced)
}

type Done = (SessionId, Option<Trial>, Result<Advanced, StoreError>);

impl SessionsLoop {
    pub fn new(service: Arc<Service>) -> Self {
        Self {
            service,
            due: BTreeSet::new(),
            busy: HashSet::new(),
            failed: BTreeSet::new(),
            retry_at: None,
            timers: BTreeSet::new(),
            timer_of: HashMap::new(),
            taken: HashMap::new(),
            alone: Arc::default(),
            missed: false,
            leases: HashMap::new(),
            looked_at: Duration::ZERO,
            expiry_at: None,
        }
    }

    pub async fn run(mut self, start: Arc<StartLog>, mut stopping: watch::Receiver<bool>) -> Ended {
        let clock = self.service.clock.clone();
        // From before the first look: whatever comes after is heard.
        let mut tail = loop {
            match Tail::from_now(&self.service.store).await {
                Ok(tail) => break tail,
                Err(error) => {
                    warn!(%error, "the history cannot be read; it is tried again");
                    tokio::select! {
                        () = stopped(&mut stopping) => return Ended::Shutdown,
                        () = tokio::time::sleep(Duration::from_secs(1)) => {}
                    }
                }
            }
        };
        // What the jobs are is known first: a session goes on with what it finds of its tasks.
        tokio::select! {
            () = stopped(&mut stopping) => return Ended::Shutdown,
            () = start.classified() => {}
        }
        let mut running: JoinSet<Done> = JoinSet::new();
        let (mut heirs_at, mut all_at) = (Duration::ZERO, Duration::ZERO);
        let mut told = false;
        loop {
            let now = clock.monotonic();
            if now >= heirs_at {
                heirs_at = now + LOOK_FOR_HEIRS;
                if let Err(error) = self.look_beside().await {
                    warn!(%error, "the servers beside this one could not be looked at");
                }
                match self.inherit().await {
                    Ok(taken) if !told => {
                        told = true;
                        let message = format!("{taken} sessions gone on with");
                        if start.step(StartStep::Sessions, Said::ok(message), clock.as_ref()).await.is_err() {
                            return Ended::Fenced;
                        }
                    }
                    Ok(_) => {}
                    Err(StoreError::Fenced { .. }) => return Ended::Fenced,
                    Err(error) => warn!(%error, "sessions without an owner could not be looked for"),
                }
            }
            if now >= all_at {
                all_at = now
                    + match self.look_at_all().await {
                        Ok(()) => LOOK_AT_ALL,
                        Err(error) => {
                            warn!(%error, "the sessions could not be listed; it is tried again");
                            PAUSE
                        }
                    };
            }
            self.wake();
            self.begin(&mut running);
            let pause = self.pause(heirs_at.min(all_at).saturating_sub(clock.monotonic()));
            tokio::select! {
                () = stopped(&mut stopping) => return Ended::Shutdown,
                batch = tail.next() => {
                    self.heard(batch).await;
                    if std::mem::take(&mut self.missed) {
                        all_at = all_at.min(clock.monotonic() + PAUSE);
                    }
                }
                Some(done) = running.join_next() => match done {
                    Ok((id, trial, result)) => if self.done(&id, trial, result) { return Ended::Fenced },
                    Err(error) => {
                        error!(%error, "a session could not be advanced");
                        self.busy.clear();
                        self.due.extend(self.timer_of.keys().cloned());
                    }
                },
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One turn of the loop, one session after the other: for the simulation, which tells what has come due beside what
    /// was heard. Gives when the next session is to be looked at whatever happens.
    pub async fn turn(
        &mut self,
        tail: &mut Tail,
        heirs: bool,
        all: bool,
    ) -> Result<Option<Timestamp>, StoreError> {
        self.expiry_at = None;
        if heirs {
            self.inherit().await?;
        }
        if all || self.missed {
            self.look_at_all().await?;
            self.missed = false;
        }
        loop {
            let batch = tail.page().await?;
            if batch.events.is_empty() && batch.lost.is_none() {
                break;
            }
            self.heard(batch).await;
        }
        self.wake();
        while let Some(id) = self.due.pop_first() {
            let mut trial = self.taken.remove(&id);
            let result = look(&self.service, &id, &mut trial, &self.alone).await;
            if let Err(StoreError::Fenced { script }) = result {
                return Err(StoreError::Fenced { script });
            }
            self.done(&id, trial, result);
        }
        let clock = &self.service.clock;
        let left = |at: Duration| at.saturating_sub(clock.monotonic()) + Duration::from_secs(1);
        let watched = self.expiry_at.into_iter().chain(self.retry_at).map(left);
        let again = self.missed.then_some(PAUSE).into_iter().chain(watched).min();
        let again = again.map(|left| plus_seconds(clock.now(), i64::try_from(left.as_secs()).unwrap_or(1)));
        Ok(self.timers.first().map(|(at, _)| *at).into_iter().chain(again).min())
    }

    /// Owners on this machine whose lock is free are dead now; nobody waits for their lease.
    async fn look_beside(&self) -> Result<(), StoreError> {
        // Where one server has the database for itself there is nobody beside it.
        if self.service.store.seat().is_none() {
            return Ok(());
        }
        let store = &self.service.store;
        let (host, boot) = (host(), boot_id());
        for (owner, home, path) in store.owners_beside(&self.service.owner_id, &host, &boot).await? {
            if Home::is_unserved(Path::new(&path), &home) {
                info!(%owner, "its lock is free: it is dead");
                store.owner_is_gone(&owner, self.service.clock.now()).await?;
            }
        }
        Ok(())
    }

    /// Ends owners whose lease nobody has renewed for as long as it holds, while we looked: by our own clock, which
    /// nobody sets.
    async fn expire(&mut self) -> Result<(), StoreError> {
        let service = self.service.clone();
        let now = service.clock.monotonic();
        // Who could not look for a while does not know whether somebody else could.
        if now.saturating_sub(self.looked_at) > LOOKED {
            self.leases.clear();
        }
        let found = service.store.owner_leases().await?;
        self.looked_at = now;
        self.leases.retain(|id, (until, _)| found.get(id) == Some(until));
        for (id, until) in found.into_iter().filter(|(id, _)| *id != service.owner_id) {
            let (_, since) = *self.leases.entry(id.clone()).or_insert((until, now));
            if now.saturating_sub(since) >= LEASE {
                info!(owner = %id, "its lease was not renewed: it is gone");
                let ours = Fence::of_owner(service.owner_id.as_str());
                service.store.expire_owner(&ours, &id, until, service.clock.now()).await?;
            }
        }
        self.expiry_at = self.leases.values().map(|(_, since)| *since + LEASE).filter(|at| *at > now).min();
        Ok(())
    }

    /// Takes over the sessions of owners that are gone.
    async fn inherit(&mut self) -> Result<usize, StoreError> {
        self.expire().await?;
        let service = self.service.clone();
        let found = service.store.ownerless_sessions(&service.owner_id, PAGE).await?;
        let taking = found.into_iter().map(|session| {
            let service = service.clone();
            async move {
                let went = service.take_session(&session, heir(&session), "its server").await;
                (session, went)
            }
        });
        // Together: they share commits.
        let mut taking = futures::stream::iter(taking).buffer_unordered(AT_ONCE);
        let mut taken = 0;
        while let Some((session, went)) = taking.next().await {
            match went {
                Ok(()) => {
                    info!(session = %session.session_id, former = ?session.owner_id, "gone on with");
                    taken += 1;
                    self.taken.insert(session.session_id.clone(), Trial::New);
                    self.due.insert(session.session_id);
                }
                // Somebody else was quicker.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    async fn look_at_all(&mut self) -> Result<(), StoreError> {
        let mut after = String::new();
        loop {
            let page = self.service.store.sessions_owned(&self.service.owner_id, &after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.to_string();
            self.due.extend(page);
        }
    }

    /// Those whose time has come.
    fn wake(&mut self) {
        if self.retry_at.take_if(|at| *at <= self.service.clock.monotonic()).is_some() {
            self.due.append(&mut self.failed);
        }
        let now = self.service.clock.now();
        while let Some((at, id)) = self.timers.first().cloned().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id.clone()));
            self.timer_of.remove(&id);
            self.due.insert(id);
        }
    }

    fn pause(&self, most: Duration) -> Duration {
        let retry = self.retry_at.map(|at| at.saturating_sub(self.service.clock.monotonic()));
        let most = retry.into_iter().fold(most.min(Duration::from_secs(1)), Duration::min);
        let Some((at, _)) = self.timers.first() else { return most };
        let left = at.duration_since(self.service.clock.now());
        let left = u64::try_from(left.as_millis().max(0)).unwrap_or(0);
        most.min(Duration::from_millis(left + 1))
    }

    fn begin(&mut self, running: &mut JoinSet<Done>) {
        while running.len() < AT_ONCE {
            let Some(id) = self.due.iter().find(|id| !self.busy.contains(*id)).cloned() else { return };
            self.due.remove(&id);
            self.busy.insert(id.clone());
            let (service, alone) = (self.service.clone(), self.alone.clone());
            let mut trial = self.taken.remove(&id);
            running.spawn(async move {
                let result = look(&service, &id, &mut trial, &alone).await;
                (id, trial, result)
            });
        }
    }

    /// Whether another server has taken our place.
    fn done(&mut self, id: &SessionId, trial: Option<Trial>, result: Result<Advanced, StoreError>) -> bool {
        self.taken.extend(trial.map(|trial| (id.clone(), trial)));
        self.busy.remove(id);
        if let Some(at) = self.timer_of.remove(id) {
            self.timers.remove(&(at, id.clone()));
        }
        let wake_at = match result {
            Ok(Advanced { over: true, .. }) => None,
            Ok(Advanced { again: true, .. }) => {
                self.due.insert(id.clone());
                None
            }
            Ok(Advanced { wake_at, .. }) => wake_at,
            Err(StoreError::Fenced { .. }) => return true,
            Err(error) => {
                warn!(session = %id, %error, "it could not be advanced; it is tried again");
                self.failed.insert(id.clone());
                self.retry_at.get_or_insert(self.service.clock.monotonic() + PAUSE);
                None
            }
        };
        if let Some(at) = wake_at {
            self.timers.insert((at, id.clone()));
            self.timer_of.insert(id.clone(), at);
        }
        false
    }

    async fn heard(&mut self, batch: Batch) {
        self.missed |= batch.lost.is_some();
        for event in &batch.events {
            if let Err(error) = self.hear(event).await {
                warn!(%error, event = event.id, "whom an event is for could not be found out; all are looked at");
                self.missed = true;
            }
        }
    }

    /// Whoever waits for what was kept for waits of that session, and they have not taken.
    async fn released(&mut self, id: &SessionId) -> Result<(), StoreError> {
        for name in self.service.store.released_signals(id).await? {
            self.all_that_wait_for(&name).await?;
        }
        Ok(())
    }

    async fn all_that_wait_for(&mut self, signal: &str) -> Result<(), StoreError> {
        let mut after = String::new();
        loop {
            let Service { store, owner_id, .. } = self.service.as_ref();
            let page = store.sessions_waiting_for(signal, owner_id, &after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.to_string();
            self.due.extend(page);
        }
    }

    /// Marks the sessions that an event may matter to.
    async fn hear(&mut self, event: &Event) -> Result<(), StoreError> {
        use EventType::*;
        let session = event.session_id.as_deref().and_then(|id| SessionId::parse(id).ok());
        match event.event_type {
            SessionStarted | SessionCancelRequested | SessionResumed | WaitAnswered => {
                self.due.extend(session);
            }
            SignalFired => match session {
                Some(id) => drop(self.due.insert(id)),
                None => {
                    let name =
                        event.details.get("name").and_then(serde_json::Value::as_str).unwrap_or_default();
                    self.all_that_wait_for(name).await?;
                }
            },
            SessionCompleted | SessionFailed | SessionCancelled | SessionBlocked | SessionUnblocked => {
                let parent = event.details.get("parent").and_then(serde_json::Value::as_str);
                self.due.extend(parent.and_then(|id| SessionId::parse(id).ok()));
                if let Some(id) =
                    session.filter(|_| matches!(event.event_type, SessionFailed | SessionCancelled))
                {
                    self.released(&id).await?;
                }
            }
            WaitTimedOut => {
                if let Some(id) = session {
                    self.released(&id).await?;
                }
            }
            ContainerStopped | ContainerTerminated | CreateFailed | CreateLost | StateDriftCorrected
            | JobFinished | JobFailed | JobCancelled | JobDead | JobWaiting | JobWorking => {
                if let Some(container) = &event.container_id {
                    self.due.extend(self.service.store.session_of_container(container).await?);
                }
            }
            TaskCompleted | TaskFailed if event.source == parhelia_core::event::Source::Container => {
                self.due.extend(session);
            }
            _ => {}
        }
        Ok(())
    }
}
