//! What must hold of sessions after every step, judged from the outside: the rows beside the events, the provider's
//! world beside the tasks, and what people were told beside what is recorded.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parhelia_core::cascade::{Awaited, Cascade, Sensor, Work};
use parhelia_core::event::{Event, EventType, Source};
use parhelia_core::ids::{ContainerId, SessionId, WaitId};
use parhelia_core::session::{
    AttemptRow, BlockedType, PhaseRow, PhaseStatus, Session, SessionStatus, TaskRow, TaskStatus, WaitRow,
    WaitStatus,
};
use parhelia_providers::fake::World;
use serde_json::Value;

use crate::invariants::Moment;

/// A session has a living owner after this long, while a server is up.
const OWNED: Duration = Duration::from_secs(90);
/// Without faults, what can go on does.
const GOES_ON: Duration = Duration::from_secs(45);
/// Without faults, what is to be cancelled is: longer than every wait of the reconciler.
const CANCELLED: Duration = Duration::from_secs(360);
/// So many that are over are kept, to be resumed.
const KEPT: usize = 20;

/// All that is recorded of a session.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) session: Session,
    pub(crate) phases: Vec<PhaseRow>,
    pub(crate) tasks: Vec<TaskRow>,
    pub(crate) attempts: Vec<AttemptRow>,
    pub(crate) waits: Vec<WaitRow>,
}

#[derive(Debug)]
struct Known {
    record: Record,
    cascade: Arc<Cascade>,
    /// When each wait was first seen.
    opened: HashMap<WaitId, Duration>,
    ownerless_since: Option<Duration>,
    unfinished_since: Option<Duration>,
    cancel_since: Option<Duration>,
}

#[derive(Debug)]
struct Fired {
    name: String,
    session: Option<String>,
    at: Duration,
    /// The waits that it has ended.
    ended: Vec<WaitId>,
}

/// Who is there to go on with sessions.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    pub(crate) awake: Vec<String>,
    pub(crate) store_fails: bool,
}

#[derive(Debug, Default)]
pub(crate) struct SessionWitness {
    awake: Vec<String>,
    known: BTreeMap<SessionId, Known>,
    by_task: HashMap<String, SessionId>,
    told: HashMap<String, SessionStatus>,
    /// By its events.
    holders: HashMap<String, String>,
    completed: HashSet<String>,
    fired: BTreeMap<String, Fired>,
    answered: HashSet<String>,
    accepted: HashMap<WaitId, Value>,
    cancels: HashSet<SessionId>,
    /// Signals that were accepted and have yet to be told.
    promised: Vec<String>,
}

impl SessionWitness {
    // ---- what people were told -------------------------------------------------------------------------------

    pub(crate) fn answer_accepted(&mut self, wait: &WaitRow) -> Result<(), String> {
        let value = wait.answer.clone().unwrap_or_default();
        match self.accepted.insert(wait.id.clone(), value) {
            None => Ok(()),
            Some(_) => Err(format!("{} of {}: two answers were accepted", wait.id, wait.session_id)),
        }
    }

    pub(crate) fn fire_accepted(&mut self, signal: &str) {
        self.promised.push(signal.to_owned());
    }

    /// A server that was given up has woken for a moment, and may have kept its lease.
    pub(crate) fn somebody_woke(&mut self) {
        self.awake.clear();
    }

    pub(crate) fn cancel_accepted(&mut self, id: &SessionId) {
        self.cancels.insert(id.clone());
    }

    // ---- what there is to act on -----------------------------------------------------------------------------

    fn living(&self) -> impl Iterator<Item = &Known> {
        self.known.values().filter(|known| !known.record.session.status.is_over())
    }

    pub(crate) fn living_count(&self) -> usize {
        self.living().count()
    }

    /// What has been over for long is no longer looked at.
    pub(crate) fn forget(&mut self) {
        let over: Vec<SessionId> = self
            .known
            .iter()
            .filter(|(_, k)| k.record.session.status.is_over())
            .map(|(id, _)| id.clone())
            .collect();
        for id in over.iter().take(over.len().saturating_sub(KEPT)) {
            self.known.remove(id);
        }
    }

    pub(crate) fn unfinished(&self) -> usize {
        self.living().filter(|known| known.record.session.status != SessionStatus::Orphaned).count()
    }

    pub(crate) fn cascade_of(&self, id: &SessionId) -> Option<Arc<Cascade>> {
        self.known.get(id).map(|known| known.cascade.clone())
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.known.values().map(|known| &known.record.session)
    }

    pub(crate) fn questions(&self) -> Vec<WaitRow> {
        let waits = self.living().flat_map(|known| &known.record.waits);
        waits.filter(|w| w.status == WaitStatus::Open && w.wait_type.is_for_a_person()).cloned().collect()
    }

    /// Whether somebody else than that owner should be looked after, or one that was left to a person: the real loop looks
    /// in any case, and in here that is saved where it could find nothing.
    pub(crate) fn has_others(&self, owner: &str) -> bool {
        self.known.values().any(|known| {
            let session = &known.record.session;
            let theirs = !session.status.is_over() && session.owner_id.as_deref() != Some(owner);
            theirs || session.status == SessionStatus::Orphaned
        })
    }

    pub(crate) fn is_unowned(&self, awake: &[String]) -> bool {
        self.living().any(|known| !is_owned(&known.record.session, awake))
    }

    /// What is known of a session, for whoever has to find out.
    pub(crate) fn describe(&self, id: &str) -> String {
        let Some((_, known)) = self.known.iter().find(|(known, _)| known.as_str() == id) else {
            return String::new();
        };
        let Record { session, phases, tasks, attempts, waits } = &known.record;
        let mut text = format!("{session:?}\n");
        phases.iter().for_each(|row| text += &format!("  {row:?}\n"));
        tasks.iter().for_each(|row| text += &format!("  {row:?}\n"));
        attempts.iter().for_each(|row| text += &format!("  {row:?}\n"));
        waits.iter().for_each(|row| text += &format!("  {row:?}\n"));
        text
    }

    // ---- events ----------------------------------------------------------------------------------------------

    pub(crate) fn hear(&mut self, events: &[Event], now: &Moment) -> Result<(), String> {
        for event in events {
            self.hear_one(event, now)?;
        }
        match self.promised.drain(..).find(|signal| !self.fired.contains_key(signal)) {
            Some(lost) => Err(format!("{lost} was accepted, and nobody knows of it")),
            None => Ok(()),
        }
    }

    fn hear_one(&mut self, event: &Event, now: &Moment) -> Result<(), String> {
        use EventType::*;
        if event.event_type == SignalFired {
            let word = |key: &str| event.details[key].as_str().unwrap_or_default().to_owned();
            let session = event.session_id.clone();
            let fired = Fired { name: word("name"), session, at: now.at, ended: Vec::new() };
            self.fired.insert(word("signal_id"), fired);
            return Ok(());
        }
        let Some(id) = &event.session_id else { return Ok(()) };
        match event.event_type {
            TaskStarted | TaskCompleted => {
                let task = event.task_id.clone().unwrap_or_default();
                if self.completed.contains(&task) {
                    return Err(format!("task {task} of {id} is completed, and: {}", event.event_type));
                }
                if event.event_type == TaskCompleted {
                    self.completed.insert(task);
                }
            }
            WaitAnswered => {
                let wait = event.details["wait_id"].as_str().unwrap_or_default();
                if !self.answered.insert(wait.to_owned()) {
                    return Err(format!("{wait} of {id} was answered twice"));
                }
            }
            SessionStarted | SessionBlocked | SessionUnblocked | SessionCompleted | SessionFailed
            | SessionCancelled | SessionResumed | SessionOrphaned => self.hear_status(id, event)?,
            _ => {}
        }
        self.hear_owner(id, event)
    }

    fn hear_status(&mut self, id: &str, event: &Event) -> Result<(), String> {
        let status = |word: &Option<String>| word.as_ref().and_then(|w| w.parse::<SessionStatus>().ok());
        let Some(new) = status(&event.new_value) else { return Ok(()) };
        let Some(before) = self.told.insert(id.to_owned(), new) else { return Ok(()) };
        let claims = status(&event.old_value);
        // That it has begun is told with its first phase.
        let begun = before == SessionStatus::Starting && claims == Some(SessionStatus::Running);
        if claims != Some(before) && !begun {
            return Err(format!("{id} was {before} by its events, and one says {claims:?} -> {new}"));
        }
        if before.is_over() {
            return Err(format!("{id} was {before}, which is final, and is told to be {new}"));
        }
        Ok(())
    }

    /// Every step of a session is its owner's, as the events have it.
    fn hear_owner(&mut self, id: &str, event: &Event) -> Result<(), String> {
        use EventType::*;
        if event.source != Source::Sessions || event.event_type == SessionCancelRequested {
            return Ok(());
        }
        let Some(owner) = &event.owner_id else {
            return Err(format!("{id}: nobody's fence guarded '{}'", event.event_type));
        };
        let taken = matches!(event.event_type, SessionResumed | SessionOrphaned);
        let before = self.holders.insert(id.to_owned(), owner.clone());
        match before {
            Some(before) if before != *owner && !taken => {
                Err(format!("{id} is {before}'s by its events, and {owner} told '{}'", event.event_type))
            }
            _ => Ok(()),
        }
    }

    // ---- rows ------------------------------------------------------------------------------------------------

    pub(crate) fn see(&mut self, record: Record, cascade: Arc<Cascade>, now: &Moment) -> Result<(), String> {
        let id = record.session.session_id.clone();
        let told = self.told.get(id.as_str()).copied();
        let status = record.session.status;
        let begun = told == Some(SessionStatus::Starting) && status == SessionStatus::Running;
        if told != Some(status) && !begun {
            return Err(format!("{id} is {status} and its events say {told:?}"));
        }
        let before = self.known.remove(&id);
        if let Some(before) = &before {
            goes_on_from(&before.record, &record)?;
        }
        in_order(&record, &cascade)?;
        is_itself(&record, &cascade)?;
        self.waits_end_once(&record)?;
        if self.cancels.remove(&id) && !record.session.cancel_requested && !status.is_over() {
            return Err(format!("{id}: a cancel was accepted, and nobody knows of it"));
        }
        for task in &record.tasks {
            if !self.by_task.contains_key(task.id.as_str()) {
                self.by_task.insert(task.id.to_string(), id.clone());
            }
            if task.state == TaskStatus::Completed && !self.completed.contains(task.id.as_str()) {
                // Copied from the session that this one continues.
                if task.attempt > 0 || record.session.origin_id.is_none() {
                    return Err(format!("task {} of {id} is completed and no event says so", task.id));
                }
                self.completed.insert(task.id.to_string());
            }
        }
        let mut known = before.unwrap_or_else(|| Known {
            record: record.clone(),
            cascade,
            opened: HashMap::new(),
            ownerless_since: None,
            unfinished_since: None,
            cancel_since: None,
        });
        for wait in &record.waits {
            known.opened.entry(wait.id.clone()).or_insert(now.at);
        }
        if known.record.session.owner_id != record.session.owner_id {
            known.ownerless_since = None;
        }
        if known.record.session.updated_at != record.session.updated_at {
            known.unfinished_since = None;
        }
        known.record = record;
        self.note_signals(&known)?;
        self.known.insert(id, known);
        Ok(())
    }

    fn note_signals(&mut self, known: &Known) -> Result<(), String> {
        for wait in &known.record.waits {
            let Some(signal) = &wait.signal_id else { continue };
            let Some(fired) = self.fired.get_mut(signal.as_str()) else {
                return Err(format!("{} was ended by {signal}, which nobody fired", wait.id));
            };
            if fired.ended.contains(&wait.id) {
                continue;
            }
            let opened = known.opened.get(&wait.id).copied().unwrap_or_default();
            let again = !fired.ended.is_empty() && (fired.session.is_some() || opened > fired.at);
            if again {
                return Err(format!("{signal} was used twice: it ended {:?} and {}", fired.ended, wait.id));
            }
            if fired.session.as_deref().is_some_and(|meant| meant != wait.session_id.as_str()) {
                return Err(format!(
                    "{signal} ended {} of {}, for whom it was not",
                    wait.id, wait.session_id
                ));
            }
            fired.ended.push(wait.id.clone());
        }
        Ok(())
    }

    fn waits_end_once(&self, record: &Record) -> Result<(), String> {
        for wait in &record.waits {
            if let Some(accepted) = self.accepted.get(&wait.id)
                && (wait.status != WaitStatus::Answered || wait.answer.as_ref() != Some(accepted))
            {
                return Err(format!(
                    "{} of {}: the answer {accepted} was accepted, and it is {} with {:?}",
                    wait.id, wait.session_id, wait.status, wait.answer
                ));
            }
        }
        Ok(())
    }

    // ---- at every step ---------------------------------------------------------------------------------------

    /// `away`: whether an engine has that container which does not answer now; it cannot be ended meanwhile.
    pub(crate) fn check(
        &mut self,
        world: &World,
        owners: &Owners,
        away: impl Fn(&ContainerId) -> bool,
        now: &Moment,
    ) -> Result<(), String> {
        self.nothing_lives_on(world)?;
        self.everything_has_an_owner(owners, now)?;
        self.everything_goes_on(owners, away, now)
    }

    /// At most one thing of a task lives, and nothing of what is over.
    fn nothing_lives_on(&self, world: &World) -> Result<(), String> {
        let mut seen: Vec<(&str, &str)> = Vec::new();
        for sandbox in world.sandboxes.iter().filter(|s| s.ended_at.is_none() && !s.removed) {
            let Some(task) = &sandbox.tags.task else { continue };
            let Some(id) = self.by_task.get(task.as_str()) else { continue };
            let Some(known) = self.known.get(id) else { continue };
            let (what, status) = (&sandbox.sandbox_id, known.record.session.status);
            if status.is_over() {
                return Err(format!("{what} is alive and its session {id} is {status}"));
            }
            if let Some((_, first)) = seen.iter().find(|(of, _)| *of == task.as_str()) {
                return Err(format!("{what} is a second living attempt of {task} of {id}, beside {first}"));
            }
            seen.push((task, what));
            let row = known.record.tasks.iter().find(|row| row.id.as_str() == task);
            if let Some(row) = row.filter(|row| row.state.is_over()) {
                return Err(format!("{what} is alive and its task {task} of {id} is {}", row.state));
            }
        }
        Ok(())
    }

    fn everything_has_an_owner(&mut self, owners: &Owners, now: &Moment) -> Result<(), String> {
        // Who has just come, or woken up, has yet to watch the others' leases.
        let changed = std::mem::replace(&mut self.awake, owners.awake.clone()) != owners.awake;
        let idle = owners.awake.is_empty() || owners.store_fails || changed;
        for (id, known) in &mut self.known {
            let session = &known.record.session;
            if session.status.is_over() {
                continue;
            }
            if idle || is_owned(session, &owners.awake) {
                known.ownerless_since = None;
                continue;
            }
            let since = *known.ownerless_since.get_or_insert(now.at);
            if now.at.saturating_sub(since) > OWNED {
                let owner = &session.owner_id;
                return Err(format!(
                    "{id} is {} without a living owner for {}s (it was {owner:?}'s)",
                    session.status,
                    OWNED.as_secs()
                ));
            }
        }
        Ok(())
    }

    /// While nothing fails: what is to be cancelled is, signals reach their waits, and what has nothing to wait for
    /// does not wait.
    fn everything_goes_on(
        &mut self,
        owners: &Owners,
        away: impl Fn(&ContainerId) -> bool,
        now: &Moment,
    ) -> Result<(), String> {
        let mut late = Vec::new();
        for (id, known) in &self.known {
            let session = &known.record.session;
            if session.status.is_over() {
                continue;
            }
            let healthy = now.calm_since.is_some() && is_owned(session, &owners.awake);
            let there = |known: &&Known| {
                let mut open = known.record.attempts.iter().filter(|a| a.ended_at.is_none());
                open.any(|a| a.container_id.iter().chain(&a.verify_container_id).any(&away))
            };
            let hindered = || self.tree(id).iter().any(there);
            let cancelling = healthy && session.cancel_requested && !hindered();
            let idle = (healthy && session.status != SessionStatus::Orphaned && !session.cancel_requested)
                .then(|| self.idle(known, now))
                .flatten();
            late.push((id.clone(), cancelling, idle));
        }
        for (id, cancelling, idle) in late {
            let Some(known) = self.known.get_mut(&id) else { continue };
            let since = cancelling.then(|| *known.cancel_since.get_or_insert(now.at));
            known.cancel_since = since;
            if since.is_some_and(|since| now.at.saturating_sub(since) > CANCELLED) {
                let status = known.record.session.status;
                return Err(format!(
                    "{id} is {status} and was to be cancelled, and nothing has failed since"
                ));
            }
            let since = idle.is_some().then(|| *known.unfinished_since.get_or_insert(now.at));
            known.unfinished_since = since;
            if let (Some(since), Some(why)) = (since, idle)
                && now.at.saturating_sub(since) > GOES_ON
            {
                return Err(format!("{id} does not go on: {why}"));
            }
        }
        Ok(())
    }

    /// A session and those below it.
    fn tree(&self, id: &SessionId) -> Vec<&Known> {
        let mut all: Vec<&Known> = self.known.get(id).into_iter().collect();
        let mut at = 0;
        while let Some(above) = all.get(at).map(|known| &known.record.session.session_id) {
            let below = self.living().filter(|k| k.record.session.parent_session_id.as_ref() == Some(above));
            all.extend(below.collect::<Vec<_>>());
            at += 1;
        }
        all
    }

    /// Whether a signal for everybody is kept for a wait that was there when it was fired, and has not taken it yet:
    /// its session may be left to a person.
    fn is_kept(&self, fired: &Fired) -> bool {
        let waits = |known: &Known| {
            known.record.waits.iter().any(|wait| {
                let opened = known.opened.get(&wait.id).copied().unwrap_or_default();
                wait.status == WaitStatus::Open
                    && wait.wait_type == BlockedType::Signal
                    && wait.wait_on == fired.name
                    && opened < fired.at
            })
        };
        self.known.values().any(waits)
    }

    /// Why a session that nobody advances should have been.
    fn idle(&self, known: &Known, now: &Moment) -> Option<String> {
        let record = &known.record;
        for wait in record.waits.iter().filter(|wait| wait.status == WaitStatus::Open) {
            if wait.deadline.is_some_and(|deadline| deadline < now.wall) {
                return Some(format!("{} is not timed out", wait.id));
            }
            let opened = known.opened.get(&wait.id).copied().unwrap_or_default();
            let unused = |(_, f): &(&String, &Fired)| {
                let mine = || f.session.as_deref() == Some(record.session.session_id.as_str());
                let free = || f.ended.is_empty() && !self.is_kept(f);
                let for_all = || f.session.is_none() && (f.at > opened || free());
                f.name == wait.wait_on && ((f.ended.is_empty() && mine()) || for_all())
            };
            if wait.wait_type == BlockedType::Signal
                && let Some((signal, _)) = self.fired.iter().find(unused)
            {
                return Some(format!("{} waits and {signal} is there", wait.id));
            }
        }
        let running = |phase: &str| {
            record.phases.iter().any(|row| row.name == phase && row.status == PhaseStatus::Running)
        };
        let taken = |wait: &&WaitRow| wait.status == WaitStatus::Answered && running(&wait.phase);
        if let Some(wait) = record.waits.iter().find(taken) {
            return Some(format!("{} is answered and its phase has not ended", wait.id));
        }
        let open =
            |task: &TaskRow| record.attempts.iter().any(|a| a.task_id == task.id && a.ended_at.is_none());
        let busy = record.tasks.iter().any(open);
        let below = self.known.values().any(|child| {
            child.record.session.parent_session_id.as_ref() == Some(&record.session.session_id)
                && !child.record.session.status.is_over()
        });
        if record.phases.iter().any(|row| row.status == PhaseStatus::Failed) {
            // Nothing more begins; what runs is waited for.
            return (!busy && !below).then(|| "a phase has failed, and nothing of it runs".to_owned());
        }
        let pending = |task: &&TaskRow| task.state == TaskStatus::Pending && running(&task.phase);
        let ready = |task: &&TaskRow| pending(task) && task.retry_at.is_none_or(|at| at < now.wall);
        if let Some(task) = record.tasks.iter().find(ready).filter(|_| !busy) {
            return Some(format!("task {} may begin", task.id));
        }
        let waits = record.waits.iter().any(|wait| wait.status == WaitStatus::Open);
        let retries = record.tasks.iter().any(|task| pending(&task));
        if !waits && !busy && !retries && !below {
            return Some(format!("it is {} and has nothing to wait for", record.session.status));
        }
        let blocked = waits && !busy && !retries && !below;
        (blocked && record.session.status != SessionStatus::Blocked)
            .then(|| format!("it only waits, and is {}", record.session.status))
    }
}

fn is_owned(session: &Session, awake: &[String]) -> bool {
    // One that waits for a person to resume it has none.
    (session.status == SessionStatus::Orphaned && !session.cancel_requested)
        || session.owner_id.as_ref().is_some_and(|owner| awake.contains(owner))
}

/// From one look to the next: what is over stays so, and nothing goes back.
fn goes_on_from(before: &Record, after: &Record) -> Result<(), String> {
    let (was, is) = (&before.session, &after.session);
    let id = &was.session_id;
    if was.status.is_over() && was.status != is.status {
        return Err(format!("{id} was {}, which is final, and is {}", was.status, is.status));
    }
    if is.owner_epoch < was.owner_epoch || (was.owner_id != is.owner_id && is.owner_epoch == was.owner_epoch)
    {
        return Err(format!(
            "{id} went from {:?} in epoch {} to {:?} in epoch {}",
            was.owner_id, was.owner_epoch, is.owner_id, is.owner_epoch
        ));
    }
    for phase in &before.phases {
        let now = after.phases.iter().find(|row| row.position == phase.position);
        let same = now.is_some_and(|row| row.status == phase.status && row.outputs == phase.outputs);
        if now.is_none() || (phase.status.is_over() && !same) {
            return Err(format!("phase {} of {id} was {} and is {now:?}", phase.name, phase.status));
        }
    }
    for task in &before.tasks {
        let Some(now) = after.tasks.iter().find(|row| row.id == task.id) else { continue };
        if now.attempt < task.attempt
            || (task.state.is_over() && (now.state, now.attempt) != (task.state, task.attempt))
        {
            return Err(format!(
                "task {} of {id} was {} in attempt {} and is {} in attempt {}",
                task.id, task.state, task.attempt, now.state, now.attempt
            ));
        }
    }
    for wait in before.waits.iter().filter(|wait| wait.status != WaitStatus::Open) {
        let now = after.waits.iter().find(|row| row.id == wait.id);
        if now.is_some_and(|now| (now.status, &now.answer) != (wait.status, &wait.answer)) {
            return Err(format!("{} of {id} was ended as {} and is {now:?}", wait.id, wait.status));
        }
    }
    Ok(())
}

/// Nothing begins before what it needs.
fn in_order(record: &Record, cascade: &Cascade) -> Result<(), String> {
    let passed =
        |place: usize| record.phases.iter().any(|row| row.position == place as i64 && row.status.is_passed());
    for phase in &record.phases {
        let needs = cascade.needs(phase.position.max(0) as usize);
        if let Some(missing) = needs.into_iter().find(|need| !passed(*need)) {
            let id = &record.session.session_id;
            return Err(format!("phase {} of {id} has begun before what it needs ({missing})", phase.name));
        }
    }
    Ok(())
}

/// One look: the parts of a session agree.
fn is_itself(record: &Record, cascade: &Cascade) -> Result<(), String> {
    let Record { session, phases, tasks, attempts, waits } = record;
    let id = &session.session_id;
    let mut open: Vec<&AttemptRow> = attempts.iter().filter(|a| a.ended_at.is_none()).collect();
    for task in tasks {
        let mine: Vec<&&AttemptRow> = open.iter().filter(|a| a.task_id == task.id).collect();
        if mine.len() > 1 {
            return Err(format!("task {} of {id} has {} attempts that run", task.id, mine.len()));
        }
        if let Some(attempt) = mine.first()
            && (task.state.is_over() || attempt.attempt != task.attempt)
        {
            return Err(format!(
                "task {} of {id} is {} and its attempt {} runs",
                task.id, task.state, attempt.attempt
            ));
        }
    }
    let senses = |name: &str| {
        let phase = cascade.phases.iter().find(|phase| phase.name == name);
        matches!(phase.map(|p| &p.work), Some(Work::Await(a)) if matches!(a.awaited, Awaited::Sensor(Sensor::Command { .. })))
    };
    open.retain(|attempt| !senses(&attempt.phase));
    let running = phases.iter().filter(|row| row.status == PhaseStatus::Running).count();
    let asking = waits.iter().filter(|wait| wait.status == WaitStatus::Open).count();
    if session.status.is_over() && (running > 0 || asking > 0 || !open.is_empty()) {
        return Err(format!(
            "{id} is {} with {running} phases and {} attempts that run and {asking} open waits",
            session.status,
            open.len()
        ));
    }
    let unread = |wait: &&WaitRow| {
        wait.status == WaitStatus::Answered
            && phases.iter().any(|row| row.name == wait.phase && row.status == PhaseStatus::Running)
    };
    let waiting = asking > 0 || waits.iter().any(|wait| unread(&wait));
    if session.status == SessionStatus::Blocked
        && (!waiting || !open.is_empty() || session.blocked_type.is_none())
    {
        return Err(format!("{id} is blocked with {asking} open waits and {} attempts that run", open.len()));
    }
    if session.status == SessionStatus::Completed
        && (phases.len() != cascade.phases.len() || !phases.iter().all(|row| row.status.is_passed()))
    {
        return Err(format!("{id} is completed and not all of its phases are: {phases:?}"));
    }
    if session.status == SessionStatus::Cancelled && !session.cancel_requested {
        return Err(format!("{id} is cancelled and nobody asked for that"));
    }
    phases
        .iter()
        .filter(|row| row.status == PhaseStatus::Completed)
        .try_for_each(|row| shows_its_answer(row, waits))
}

/// What was answered is what the phase gives.
fn shows_its_answer(phase: &PhaseRow, waits: &[WaitRow]) -> Result<(), String> {
    let mine = |wait: &&WaitRow| wait.phase == phase.name && wait.task_id.is_none();
    let Some(wait) = waits.iter().find(mine) else { return Ok(()) };
    let outputs = &phase.outputs;
    let timed_out = wait.status == WaitStatus::TimedOut;
    let answer = wait.answer.clone().unwrap_or_default();
    let shown = match wait.wait_type {
        BlockedType::Signal => outputs["payload"] == answer,
        BlockedType::Hitl => outputs["answer"] == answer,
        BlockedType::Approval | BlockedType::Checkpoint => outputs["approved"] == answer,
        BlockedType::Sensor => true,
    };
    if shown && outputs["timed_out"] == Value::Bool(timed_out) {
        return Ok(());
    }
    Err(format!(
        "phase {} of {} gives {outputs}, and {} ended as {} with {answer}",
        phase.name, wait.session_id, wait.id, wait.status
    ))
}
