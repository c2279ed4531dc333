//! Sessions as every door shows them. Reads alone: what people want of a session is in `sessions.rs`, `signals.rs` and
//! `inbox.rs`, and what becomes of it is its owner's.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use parhelia_core::Timestamp;
use parhelia_core::cascade::Cascade;
use parhelia_core::ids::{SessionId, TaskId};
use parhelia_core::session::api::{
    AttemptOutput, CheckpointList, PhaseView, Progress, SessionDetail, SessionList, SessionTotals,
    SessionTree, SessionView, TaskList, TaskView,
};
use parhelia_core::session::outline::{Outline, PhaseOutline};
use parhelia_core::session::{
    AttemptRow, LEASE_SECONDS, PhaseRow, SessionStatus, TaskRow, TaskStatus, explain,
};
use parhelia_core::time::{plus_seconds, seconds_between};
use parhelia_store::{SessionFilter, ShownSession};

use super::error::LONGER;
use super::{Service, ServiceError};

const PAGE: u32 = 200;
const LARGEST_PAGE: u32 = 1000;
/// What was over for longer is only listed when it is asked for.
const RECENT_SECONDS: i64 = 86_400;
/// How many tasks of a phase are shown with it; the rest is counted.
const TASKS_OF_A_PHASE: i64 = 50;
/// And of a whole session.
const TASKS_OF_A_SESSION: i64 = 1000;
const WAITS_SHOWN: i64 = 100;
const SAME_NAME: &str = "more than one that is not over has this name: give the id of one";
const CHILDREN_SHOWN: i64 = 100;
/// How many sessions a tree shows.
const TREE: usize = 200;
const OUTLINES_KEPT: usize = 256;

#[derive(Debug, Clone, Default)]
pub struct SessionQuery {
    pub statuses: Vec<SessionStatus>,
    pub cascade: Option<String>,
    /// Id or unique prefix.
    pub parent: Option<String>,
    pub all: bool,
    pub limit: Option<u32>,
    pub before: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct TaskQuery {
    /// Absent: the only one that has tasks.
    pub phase: Option<String>,
    pub state: Option<TaskStatus>,
    pub after: Option<i64>,
    pub limit: Option<u32>,
}

/// What definitions look like, by their hash: many sessions run the same one, and it may be large.
#[derive(Debug, Default)]
pub(crate) struct Outlines(Mutex<HashMap<String, Arc<Outline>>>);

impl Outlines {
    fn get(&self, hash: &str) -> Option<Arc<Outline>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(hash).cloned()
    }

    fn keep(&self, hash: &str, outline: &Arc<Outline>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Read again when it is needed: which one goes does not matter.
        if kept.len() >= OUTLINES_KEPT
            && let Some(any) = kept.keys().next().cloned()
        {
            kept.remove(&any);
        }
        kept.insert(hash.to_owned(), outline.clone());
    }
}

impl Service {
    pub async fn sessions(&self, query: SessionQuery) -> Result<SessionList, ServiceError> {
        let now = self.clock.now();
        let limit = page(query.limit)?;
        let before = match &query.before {
            Some(id) => {
                let known = SessionId::parse(id).map_err(|_| no_such_page(id))?;
                let found = self.store.session(&known).await?.ok_or_else(|| no_such_page(id))?;
                Some((found.started_at, found.session_id))
            }
            None => None,
        };
        let parent = match &query.parent {
            Some(given) => Some(self.resolve_session(given).await?),
            None => None,
        };
        let recent = !query.all && query.statuses.is_empty() && parent.is_none();
        let filter = SessionFilter {
            statuses: query.statuses,
            cascade_id: query.cascade,
            parent,
            over_since: recent.then(|| plus_seconds(now, -RECENT_SECONDS)),
            before,
            // One more, to know whether there are more.
            limit: Some(i64::from(limit) + 1),
        };
        let mut found = self.store.sessions(&filter).await?;
        let more = found.len() > limit as usize;
        found.truncate(limit as usize);
        let next = found.last().filter(|_| more).map(|shown| shown.session.session_id.clone());
        Ok(SessionList {
            sessions: self.session_views(found, now).await?,
            next,
            totals: self.session_totals().await?,
        })
    }

    async fn session_totals(&self) -> Result<SessionTotals, ServiceError> {
        let mut totals = SessionTotals::default();
        for (status, count) in self.store.session_counts().await? {
            totals.total += count;
            totals.by_status.insert(status.to_string(), count);
        }
        let waits = self.store.wait_counts().await?;
        totals.inbox = waits.iter().filter(|(kind, _)| kind.is_for_a_person()).map(|(_, count)| count).sum();
        Ok(totals)
    }

    /// One session with its phases, tasks and waits, by its id, a unique prefix of it, or its name.
    pub async fn session(&self, given: &str) -> Result<SessionDetail, ServiceError> {
        let id = self.resolve_session(given).await?;
        self.session_detail(&id).await
    }

    /// The same and everything below it.
    pub async fn session_tree(&self, given: &str) -> Result<SessionTree, ServiceError> {
        let id = self.resolve_session(given).await?;
        let mut left = TREE;
        self.below(id, &mut left).await
    }

    fn below<'a>(
        &'a self,
        id: SessionId,
        left: &'a mut usize,
    ) -> BoxFuture<'a, Result<SessionTree, ServiceError>> {
        async move {
            *left = left.saturating_sub(1);
            let detail = self.session_detail(&id).await?;
            let mut below = Vec::new();
            // In the order in which they were started.
            let children: Vec<SessionId> =
                detail.children.iter().rev().map(|child| child.session.session_id.clone()).collect();
            for child in children {
                if *left == 0 {
                    break;
                }
                below.push(self.below(child, left).await?);
            }
            Ok(SessionTree { detail, below })
        }
        .boxed()
    }

    /// A page of the tasks of one phase.
    pub async fn session_tasks(&self, given: &str, query: TaskQuery) -> Result<TaskList, ServiceError> {
        let id = self.resolve_session(given).await?;
        let limit = page(query.limit)?;
        let phase = match query.phase {
            Some(phase) => phase,
            None => self.only_phase_with_tasks(&id).await?,
        };
        let after = query.after.unwrap_or(-1);
        let mut found =
            self.store.session_tasks(&id, &phase, query.state, after, i64::from(limit) + 1).await?;
        let more = found.len() > limit as usize;
        found.truncate(limit as usize);
        if found.is_empty() && after < 0 && query.state.is_none() {
            self.known_phase(&id, &phase).await?;
        }
        let next = found.last().filter(|_| more).map(|task| task.position);
        Ok(TaskList { tasks: self.task_views(found).await?, next })
    }

    /// What a task that a worker ran has written, as far as it is kept.
    pub async fn attempt_output(&self, task: &str, attempt: i64) -> Result<AttemptOutput, ServiceError> {
        let none = |fix| ServiceError::NotFound {
            what: "output of that attempt of task",
            id: task.chars().take(64).collect(),
            fix,
        };
        let fix = "'parhelia sessions show' names the tasks and attempts of a session";
        let id = TaskId::parse(task).map_err(|_| none(fix))?;
        match self.store.attempt_said(&id, attempt).await? {
            Some(Some(output)) => Ok(AttemptOutput { output }),
            Some(None) => Err(none(
                "a worker's task has its output once it has ended; any other's is that of its container",
            )),
            None => Err(none(fix)),
        }
    }

    async fn only_phase_with_tasks(&self, id: &SessionId) -> Result<String, ServiceError> {
        let counts = self.store.task_counts(&[id]).await?;
        let mut phases: Vec<String> = counts.into_iter().map(|(_, phase, ..)| phase).collect();
        phases.dedup();
        match phases.as_slice() {
            [only] => Ok(only.clone()),
            [] => Err(ServiceError::invalid(
                format!("no task of {id} has begun"),
                format!("'parhelia sessions show {id}' shows what it does"),
            )),
            several => Err(ServiceError::invalid(
                format!("{} phases of {id} have tasks", several.len()),
                format!("give the phase: one of {}", several.join(", ")),
            )),
        }
    }

    async fn known_phase(&self, id: &SessionId, phase: &str) -> Result<(), ServiceError> {
        let shown = self.store.session_shown(id).await?.ok_or_else(|| no_session(id.as_str()))?;
        let outline = self.outline(shown.cascade_hash.as_deref()).await?;
        if outline.phases.iter().any(|known| known.name == phase) {
            return Ok(());
        }
        let names: Vec<_> = outline.phases.iter().map(|known| known.name.as_str()).collect();
        let shown: String = phase.chars().take(64).collect();
        Err(ServiceError::invalid(
            format!("{id} has no phase '{shown}'"),
            format!("use one of: {}", names.join(", ")),
        ))
    }

    pub async fn session_checkpoints(
        &self,
        given: &str,
        after: Option<&str>,
        limit: Option<u32>,
    ) -> Result<CheckpointList, ServiceError> {
        let id = self.resolve_session(given).await?;
        let limit = page(limit)?;
        let mut checkpoints = self.store.session_checkpoints(&id, after, i64::from(limit) + 1).await?;
        let more = checkpoints.len() > limit as usize;
        checkpoints.truncate(limit as usize);
        let next = checkpoints.last().filter(|_| more).map(|last| last.id.clone());
        Ok(CheckpointList { checkpoints, next })
    }

    /// What somebody meant by `given`. An exact name is taken before a prefix; of equal names the one that is not
    /// over is meant, and when all are over the newest.
    pub(crate) async fn resolve_session(&self, given: &str) -> Result<SessionId, ServiceError> {
        if let Ok(id) = SessionId::parse(given)
            && self.store.session(&id).await?.is_some()
        {
            return Ok(id);
        }
        let found = self.sessions_meant(given).await?;
        match found.as_slice() {
            [] => Err(no_session(given)),
            [only] => Ok(only.clone()),
            several => Err(ServiceError::Ambiguous {
                given: given.chars().take(64).collect(),
                matches: several.iter().map(ToString::to_string).collect(),
                fix: if several.iter().any(|id| id.as_str().contains(given)) { LONGER } else { SAME_NAME },
            }),
        }
    }

    /// Everything that `given` may mean.
    pub(super) async fn sessions_meant(&self, given: &str) -> Result<Vec<SessionId>, ServiceError> {
        if given.is_empty() || given.len() > 200 {
            return Ok(Vec::new());
        }
        let mut named = self.store.sessions_named(given).await?;
        if named.iter().all(|(_, status)| status.is_over()) {
            named.truncate(1);
        } else {
            named.retain(|(_, status)| !status.is_over());
        }
        if named.is_empty() {
            let rest = given.strip_prefix(SessionId::PREFIX).unwrap_or(given);
            let plausible =
                rest.len() >= 2 && rest.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
            if plausible {
                named = self.store.resolve_session(given).await?;
            }
        }
        Ok(named.into_iter().map(|(id, _)| id).collect())
    }

    pub(super) async fn session_detail(&self, id: &SessionId) -> Result<SessionDetail, ServiceError> {
        let now = self.clock.now();
        let shown = self.store.session_shown(id).await?.ok_or_else(|| no_session(id.as_str()))?;
        let outline = self.outline(shown.cascade_hash.as_deref()).await?;
        let last_checkpoint = match &shown.session.last_checkpoint_id {
            Some(id) => self.store.checkpoint(id).await?,
            None => None,
        };
        let rows = self.store.session_phases(id).await?;
        let values = self.store.session_values(id).await?;
        let (inputs, outputs) = values.map(|v| (v.inputs, v.outputs)).unwrap_or_default();
        let children = SessionFilter {
            parent: Some(id.clone()),
            limit: Some(CHILDREN_SHOWN),
            ..SessionFilter::default()
        };
        let children = self.session_views(self.store.sessions(&children).await?, now).await?;
        let view =
            self.session_views(vec![shown], now).await?.pop().ok_or_else(|| no_session(id.as_str()))?;
        let mut detail = SessionDetail {
            view,
            inputs,
            outputs: outputs.unwrap_or_default(),
            phases: self.phase_views(id, &outline, rows).await?,
            waits: self.store.waits_of(id, WAITS_SHOWN).await?,
            children,
            last_checkpoint,
            continued_by: self.store.sessions_of_origin(id).await?.into_iter().map(|(id, _)| id).collect(),
            waiting: Vec::new(),
        };
        detail.waiting = explain::not_done(&detail, now);
        Ok(detail)
    }

    /// Every phase of the definition, and any that has a row, in their order.
    async fn phase_views(
        &self,
        id: &SessionId,
        outline: &Outline,
        rows: Vec<PhaseRow>,
    ) -> Result<Vec<PhaseView>, ServiceError> {
        let mut by_phase: HashMap<String, BTreeMap<String, i64>> = HashMap::new();
        for (_, phase, state, count) in self.store.task_counts(&[id]).await? {
            by_phase.entry(phase).or_default().insert(state.to_string(), count);
        }
        let mut begun: BTreeMap<i64, PhaseRow> = rows.into_iter().map(|row| (row.position, row)).collect();
        let mut views: Vec<PhaseView> = outline
            .phases
            .iter()
            .enumerate()
            .map(|(place, phase)| phase_view(phase, begun.remove(&(place as i64))))
            .collect();
        // A definition that this program cannot read still has what has happened.
        views.extend(begun.into_values().map(|row| {
            let phase = PhaseOutline {
                name: row.name.clone(),
                kind: "unknown",
                description: None,
                needs: Vec::new(),
                tasks: 0,
            };
            phase_view(&phase, Some(row))
        }));
        // The latest first, so that those of a session with very many are not the ones that are left out.
        let mut left = TASKS_OF_A_SESSION;
        for view in views.iter_mut().rev() {
            let Some(counts) = by_phase.remove(&view.name) else { continue };
            let total: i64 = counts.values().sum();
            view.tasks_by_state = counts;
            let found = self.tasks_to_show(id, view, total.min(left).min(TASKS_OF_A_PHASE)).await?;
            left -= found.len() as i64;
            view.tasks_left_out = (total - found.len() as i64).max(0);
            view.tasks = self.task_views(found).await?;
        }
        Ok(views)
    }

    /// All tasks of a short level; of a long one those that are at work or went wrong before the others.
    async fn tasks_to_show(
        &self,
        id: &SessionId,
        view: &PhaseView,
        limit: i64,
    ) -> Result<Vec<TaskRow>, ServiceError> {
        use TaskStatus::*;
        let total: i64 = view.tasks_by_state.values().sum();
        if total <= limit {
            return Ok(self.store.session_tasks(id, &view.name, None, -1, limit).await?);
        }
        let mut found = Vec::new();
        for state in [Running, Verifying, Claimed, Failed, Cancelled, Pending, Completed] {
            let left = limit - found.len() as i64;
            if left > 0 && view.tasks_by_state.contains_key(state.as_str()) {
                found.append(&mut self.store.session_tasks(id, &view.name, Some(state), -1, left).await?);
            }
        }
        Ok(found)
    }

    async fn task_views(&self, tasks: Vec<TaskRow>) -> Result<Vec<TaskView>, ServiceError> {
        let ids: Vec<&TaskId> = tasks.iter().filter(|task| task.attempt > 0).map(|task| &task.id).collect();
        let mut attempts: HashMap<TaskId, Vec<AttemptRow>> = HashMap::new();
        for attempt in self.store.attempts_of(&ids).await? {
            attempts.entry(attempt.task_id.clone()).or_default().push(attempt);
        }
        let view = |task: TaskRow| {
            let attempts = attempts.remove(&task.id).unwrap_or_default();
            TaskView { task, attempts }
        };
        Ok(tasks.into_iter().map(view).collect())
    }

    async fn session_views(
        &self,
        found: Vec<ShownSession>,
        now: Timestamp,
    ) -> Result<Vec<SessionView>, ServiceError> {
        let ids: Vec<&SessionId> = found.iter().map(|shown| &shown.session.session_id).collect();
        let mut progress: HashMap<SessionId, Progress> = HashMap::new();
        for (id, status, count) in self.store.phase_counts(&ids).await? {
            let of = progress.entry(id).or_default();
            of.phases += count;
            of.phases_done += if status.is_passed() { count } else { 0 };
        }
        for (id, _, state, count) in self.store.task_counts(&ids).await? {
            let of = progress.entry(id).or_default();
            of.tasks += count;
            match state {
                TaskStatus::Completed => of.tasks_done += count,
                TaskStatus::Running | TaskStatus::Verifying | TaskStatus::Claimed => {
                    of.tasks_running += count
                }
                TaskStatus::Failed => of.tasks_failed += count,
                TaskStatus::Pending | TaskStatus::Cancelled => {}
            }
        }
        let mut views = Vec::with_capacity(found.len());
        for shown in found {
            let outline = self.outline(shown.cascade_hash.as_deref()).await?;
            let mut progress = progress.remove(&shown.session.session_id).unwrap_or_default();
            progress.phases = progress.phases.max(outline.phases.len() as i64);
            // What was skipped is not waited for.
            if shown.session.status != SessionStatus::Completed {
                progress.tasks = progress.tasks.max(outline.tasks());
            }
            views.push(session_view(shown, progress, now));
        }
        Ok(views)
    }

    async fn outline(&self, hash: Option<&str>) -> Result<Arc<Outline>, ServiceError> {
        let Some(hash) = hash else { return Ok(Arc::default()) };
        if let Some(known) = self.outlines.get(hash) {
            return Ok(known);
        }
        let definition = self.store.cascade_by_hash(hash).await?;
        let cascade = definition.and_then(|text| serde_json::from_str::<Cascade>(&text).ok());
        let outline = Arc::new(cascade.as_ref().map(Outline::of).unwrap_or_default());
        self.outlines.keep(hash, &outline);
        Ok(outline)
    }
}

fn phase_view(phase: &PhaseOutline, row: Option<PhaseRow>) -> PhaseView {
    PhaseView {
        name: phase.name.clone(),
        kind: phase.kind.to_owned(),
        description: phase.description.clone(),
        needs: phase.needs.clone(),
        row,
        tasks: Vec::new(),
        tasks_left_out: 0,
        tasks_by_state: BTreeMap::new(),
    }
}

fn session_view(shown: ShownSession, progress: Progress, now: Timestamp) -> SessionView {
    let ShownSession { mut session, lease_until, owner_ended_at, .. } = shown;
    let owner_alive = owner_ended_at.is_none() && lease_until.is_some_and(|until| until > now);
    if !session.status.is_over()
        && let Some(until) = lease_until
    {
        // Its owner beats for all of its sessions at once.
        session.heartbeat_at = session.heartbeat_at.max(plus_seconds(until, -LEASE_SECONDS));
    }
    SessionView {
        age: seconds_between(session.started_at, now).max(0.0) as i64,
        owner_alive,
        progress,
        session,
    }
}

pub(super) fn page(limit: Option<u32>) -> Result<u32, ServiceError> {
    let limit = limit.unwrap_or(PAGE);
    if (1..=LARGEST_PAGE).contains(&limit) {
        return Ok(limit);
    }
    Err(ServiceError::invalid(
        format!("a limit of {limit} is out of range"),
        format!("give from 1 to {LARGEST_PAGE}"),
    ))
}

pub(super) fn no_session(given: &str) -> ServiceError {
    ServiceError::NotFound {
        what: "session",
        id: given.chars().take(64).collect(),
        fix: "'parhelia sessions list --all' lists every session; a unique prefix of an id is enough, so is its name",
    }
}

fn no_such_page(before: &str) -> ServiceError {
    let shown: String = before.chars().take(64).collect();
    ServiceError::invalid(
        format!("before: there is no session '{shown}'"),
        "give the 'next' of the page before, as it was answered",
    )
}
