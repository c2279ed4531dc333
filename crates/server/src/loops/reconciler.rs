//! The reconciler's pass over one provider: list, then read the rows, plan, act, and record the cycle.
//!
//! It owns the observed columns of containers. It chooses nothing itself: `core::reconcile::plan` does.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use parhelia_core::access::{Role, Token};
use parhelia_core::cost::Prices;
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::history::Recorded;
use parhelia_core::ids::ContainerId;
use parhelia_core::reconcile::{
    Action, Answer, Counts, Inspected, Observed, Plan, Tracked, View, plan, removals,
};
use parhelia_core::sandbox::{Inspection, Phase, Sandbox};
use parhelia_core::state::{ContainerState, TerminationReason};
use parhelia_core::{TRACES, Timestamp};
use parhelia_providers::{CreateError, Provider, SandboxRef};
use parhelia_store::{CycleOutcome, NewContainer, NewCycle, Silence, StoreError, Wish};
use serde_json::json;
use tracing::{Instrument, Span, debug, info, info_span, warn};

use super::Context;
use super::jobs::JobNews;
use crate::service::{cleaned, secret_hash};

/// Provider calls under way at once.
const PROVIDER_CALLS: usize = 16;
/// Store writes under way at once: enough for one group commit to take many.
const STORE_WRITES: usize = 64;

#[derive(Debug)]
pub struct Reconciler {
    context: Context,
    provider: Arc<dyn Provider>,
    prices: Prices,
    /// How far the recovery of this home's jobs is: before its end no directory of theirs goes.
    jobs: Option<Arc<JobNews>>,
    /// The creates that were sent and never seen, with their number, since we know of them.
    unseen: Mutex<HashMap<ContainerId, (i64, Duration)>>,
    /// The last pass only recorded what was found; this one does the rest, whatever else is found.
    hurried: AtomicBool,
    /// Whom the last pass had no time to ask about, first of all: this one begins there.
    unasked: Mutex<Option<ContainerId>>,
    /// What the provider has set aside, until that is in the history.
    quarantined: Mutex<Vec<String>>,
}

/// What a pass leaves for the one who drives it.
#[derive(Debug, Clone, PartialEq)]
pub struct PassReport {
    pub busy: bool,
    pub wake_at: Option<Timestamp>,
    pub failures: i64,
    /// Something was done, or noted of somebody.
    pub acted: bool,
    pub counts: Counts,
}

#[derive(Debug)]
struct Seen {
    answer: Answer,
    rows: Vec<Tracked>,
    plan: Plan,
}

impl Reconciler {
    pub fn new(context: Context, provider: Arc<dyn Provider>) -> Self {
        let prices = context.config.price_table();
        Self {
            context,
            provider,
            prices,
            jobs: None,
            unseen: Mutex::default(),
            hurried: AtomicBool::default(),
            unasked: Mutex::default(),
            quarantined: Mutex::default(),
        }
    }

    pub fn with_jobs(self, jobs: Arc<JobNews>) -> Self {
        Self { jobs: Some(jobs), ..self }
    }

    pub fn provider(&self) -> &Arc<dyn Provider> {
        &self.provider
    }

    /// One pass. An error is the store's: nothing could be decided or written; the next pass starts afresh.
    pub async fn pass(&self, trigger: &str) -> Result<PassReport, StoreError> {
        let started_at = self.context.clock.now();
        let began = self.context.clock.monotonic();
        let seen = self.observe().await?;
        let answered = matches!(seen.answer, Answer::Listed(_));
        self.context.metrics.loops.reachable(self.provider.name(), answered);
        let plan = &seen.plan;
        if plan.actions.is_empty() {
            debug!(provider = self.provider.name(), "nothing to do");
        } else {
            info!(provider = self.provider.name(), %trigger, "plan:\n{plan}");
        }
        let failures = self.act(&seen).await?;
        let next_removal = self.remove_ended(&seen).await?;
        self.record(trigger, started_at, began, &seen, failures).await?;
        let wake_at = [plan.wake_at, next_removal].into_iter().flatten().min();
        let acted = !plan.actions.is_empty();
        Ok(PassReport { busy: plan.busy, wake_at, failures, acted, counts: plan.counts.clone() })
    }

    /// The provider first, then the rows: a row is always older than its sandbox, so whatever the listing
    /// shows has its row by the time we read.
    async fn observe(&self) -> Result<Seen, StoreError> {
        let store = &self.context.store;
        let answer = match self.in_time("list", self.provider.list()).await {
            Ok(listing) => Answer::Listed(listing),
            Err(error) => Answer::Unreachable { error },
        };
        let mut rows = store.tracked(self.provider.name()).await?;
        if let Answer::Listed(listing) = &answer {
            let known: HashSet<&str> = rows.iter().filter_map(|r| r.sandbox_id.as_deref()).collect();
            let strangers = listing
                .sandboxes
                .iter()
                .filter(|s| !matches!(s.phase, Phase::Exited(_)) && !known.contains(s.sandbox_id.as_str()));
            let (ids, sandbox_ids): (Vec<_>, Vec<_>) =
                strangers.map(|s| (s.tags.container.clone(), s.sandbox_id.clone())).unzip();
            if !ids.is_empty() {
                let more = store.tracked_by_ids(self.provider.name(), &ids, &sandbox_ids).await?;
                let have: HashSet<ContainerId> = rows.iter().map(|r| r.id.clone()).collect();
                rows.extend(more.into_iter().filter(|r| !have.contains(&r.id)));
            }
        }
        let memory = store.provider_memory(self.provider.name()).await?;
        let ours = store.our_instances().await?;
        let identity = match &answer {
            Answer::Listed(listing) => listing.identity.as_str(),
            Answer::Unreachable { .. } => "",
        };
        let known_foreign = store.known_foreign(self.provider.name(), identity).await?;
        let capabilities = self.provider.capabilities();
        let unseen_seconds = self.unseen_seconds(&rows);
        let decide = |inspected: &HashMap<ContainerId, Inspected>| {
            let view = View {
                provider: self.provider.name(),
                create_is_idempotent: capabilities.create_is_idempotent,
                create_settles_seconds: i64::from(capabilities.create_settles_seconds),
                unseen_seconds: &unseen_seconds,
                answer: &answer,
                rows: &rows,
                inspected,
                memory: &memory,
                ours: &ours,
                known_foreign: &known_foreign,
                settings: &self.context.config.reconciler,
                prices: &self.prices,
                observer_seconds: self.context.observer.watching_seconds(),
                resumption_seconds: self.context.config.health.resumption_window_seconds as f64,
            };
            plan(&view, self.context.clock.now())
        };
        let mut decided = decide(&HashMap::new());
        let found = |action: &Action| matches!(action, Action::Register { .. });
        let strangers = !decided.inspect.is_empty() && decided.actions.iter().any(found);
        if strangers && !self.hurried.swap(true, Ordering::Relaxed) {
            // What has no record gets one first: to ask about the others may take as long as a provider can hang.
            decided.actions.retain(found);
            decided.inspect.clear();
            decided.busy = true;
            decided.wake_at = Some(self.context.clock.now());
            return Ok(Seen { answer, rows, plan: decided });
        }
        self.hurried.store(false, Ordering::Relaxed);
        if !decided.inspect.is_empty() {
            let inspected = self.inspect(std::mem::take(&mut decided.inspect)).await;
            decided = decide(&inspected);
            decided.busy |= inspected.values().any(|answer| *answer == Inspected::NotAsked);
        }
        Ok(Seen { answer, rows, plan: decided })
    }

    /// For how long we have known of each create that was sent and not seen: on our own clock, which nobody sets.
    fn unseen_seconds(&self, rows: &[Tracked]) -> HashMap<ContainerId, f64> {
        let now = self.context.clock.monotonic();
        let mut unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
        let known =
            |row: &Tracked| unseen.get(&row.id).filter(|(attempt, _)| *attempt == row.create_attempts);
        let current: HashMap<ContainerId, (i64, Duration)> = rows
            .iter()
            .filter(|row| row.state == ContainerState::Created && row.create_attempts > 0)
            .map(|row| (row.id.clone(), known(row).copied().unwrap_or((row.create_attempts, now))))
            .collect();
        *unseen = current;
        unseen.iter().map(|(id, (_, since))| (id.clone(), now.saturating_sub(*since).as_secs_f64())).collect()
    }

    /// Asks about each, for as long as one call of the provider may take: one that hangs must not hold up what has to end.
    /// Whoever is left has its turn in the next pass.
    async fn inspect(
        &self,
        mut wanted: Vec<(ContainerId, Option<String>)>,
    ) -> HashMap<ContainerId, Inspected> {
        let first = self.unasked.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(at) = first.and_then(|first| wanted.iter().position(|(id, _)| *id == first)) {
            wanted.rotate_left(at);
        }
        let clock = &self.context.clock;
        let patience = Duration::from_secs(self.context.config.reconciler.provider_timeout_seconds);
        let until = clock.monotonic() + patience;
        let asking: Vec<BoxFuture<'_, _>> = wanted
            .iter()
            .map(|(container_id, sandbox_id)| {
                let sandbox =
                    SandboxRef { container_id: container_id.clone(), sandbox_id: sandbox_id.clone() };
                async move {
                    match clock.monotonic() < until {
                        true => self.inspect_one(sandbox).await,
                        false => (sandbox.container_id, Inspected::NotAsked),
                    }
                }
                .boxed()
            })
            .collect();
        let inspected: HashMap<ContainerId, Inspected> =
            futures::stream::iter(asking).buffer_unordered(PROVIDER_CALLS).collect().await;
        let left = wanted.into_iter().map(|(id, _)| id).find(|id| inspected[id] == Inspected::NotAsked);
        *self.unasked.lock().unwrap_or_else(PoisonError::into_inner) = left;
        inspected
    }

    async fn inspect_one(&self, sandbox: SandboxRef) -> (ContainerId, Inspected) {
        let answer = match self.in_time("inspect", self.provider.inspect(&sandbox)).await {
            Ok(Inspection::Absent) => Inspected::Absent,
            Ok(Inspection::Present(found)) => Inspected::Present(found),
            Err(why) => Inspected::Unknown { why },
        };
        (sandbox.container_id, answer)
    }

    fn call_span(&self, call: &'static str) -> Span {
        info_span!(target: TRACES, "provider", otel.kind = "client", provider = self.provider.name(), call)
    }

    /// A provider that does not answer in time has not answered.
    async fn in_time<T, E: std::fmt::Display>(
        &self,
        what: &'static str,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, String> {
        let seconds = self.context.config.reconciler.provider_timeout_seconds;
        match tokio::time::timeout(Duration::from_secs(seconds), call).instrument(self.call_span(what)).await
        {
            Ok(answer) => answer.map_err(|e| e.to_string()),
            Err(_) => Err(format!("no answer within {seconds}s")),
        }
    }

    /// Performs the plan. A failed action is counted and planned again; losing the lead ends the pass.
    async fn act(&self, seen: &Seen) -> Result<i64, StoreError> {
        let rows: HashMap<&ContainerId, &Tracked> = seen.rows.iter().map(|r| (&r.id, r)).collect();
        let (calls, writes): (Vec<_>, Vec<_>) =
            seen.plan.actions.iter().partition(|a| matches!(a, Action::Create { .. } | Action::Stop { .. }));
        let mut failures = 0;
        for (actions, at_once) in [(writes, STORE_WRITES), (calls, PROVIDER_CALLS)] {
            let work: Vec<BoxFuture<'_, _>> =
                actions.into_iter().map(|action| self.perform(action, &rows, seen).boxed()).collect();
            let mut results = futures::stream::iter(work).buffer_unordered(at_once);
            while let Some(result) = results.next().await {
                match result {
                    Ok(()) => {}
                    Err(e @ (StoreError::Fenced { .. } | StoreError::Unavailable { .. })) => return Err(e),
                    Err(e) => {
                        failures += 1;
                        warn!(provider = self.provider.name(), error = %e, "an action was not recorded; it is planned again");
                    }
                }
            }
        }
        Ok(failures)
    }

    /// Ended sandboxes whose end is recorded and whose time is over. Gives when the next one's will be.
    async fn remove_ended(&self, seen: &Seen) -> Result<Option<Timestamp>, StoreError> {
        let (Some(keep_seconds), Answer::Listed(listing)) =
            (self.provider.keeps_ended_seconds(), &seen.answer)
        else {
            return Ok(None);
        };
        // What was found at the start must be decided before anything that could prove it goes.
        if self.jobs.as_ref().is_some_and(|jobs| !jobs.recovered()) {
            return Ok(None);
        }
        let ended = listing.sandboxes.iter().filter(|s| matches!(s.phase, Phase::Exited(_)));
        let sandbox_ids: Vec<String> = ended.map(|s| s.sandbox_id.clone()).collect();
        if sandbox_ids.is_empty() {
            return Ok(None);
        }
        // Read after the plan was carried out: an end that was recorded just now counts.
        let rows = self.context.store.tracked_by_ids(self.provider.name(), &[], &sandbox_ids).await?;
        let due = removals(listing, &rows, keep_seconds, self.context.clock.now());
        let batch = self.context.config.reconciler.max_reconcile_batch as usize;
        let work: Vec<BoxFuture<'_, ()>> =
            due.now.iter().take(batch).map(|sandbox| self.remove(sandbox).boxed()).collect();
        futures::stream::iter(work).buffer_unordered(PROVIDER_CALLS).collect::<Vec<()>>().await;
        Ok(due.next_at)
    }

    /// A failure is told in the log; the next pass tries again.
    async fn remove(&self, sandbox: &Sandbox) {
        let named = SandboxRef {
            container_id: sandbox.tags.container.clone(),
            sandbox_id: Some(sandbox.sandbox_id.clone()),
        };
        match self.clean_job(&named).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(e) => {
                warn!(container = %named.container_id, error = %e, "its removal was not recorded; it stays");
                return;
            }
        }
        match self.in_time("remove", self.provider.remove(&named)).await {
            Ok(()) => info!(container = %named.container_id, "removed: its end is recorded"),
            Err(why) => warn!(container = %named.container_id, %why, "could not be removed"),
        }
    }

    /// Records that the directory of its job goes; false when it must stay: nobody knows yet how that job ended.
    async fn clean_job(&self, named: &SandboxRef) -> Result<bool, StoreError> {
        let Context { store, fence, clock, .. } = &self.context;
        let Some(job) = store.job_of_container(&named.container_id).await? else { return Ok(true) };
        if !job.status.is_over() {
            // Without a directory here there is nothing that a late look at the job could need.
            return Ok(self.provider.job_directory(&named.container_id).is_none());
        }
        if job.cleaned_at.is_none() {
            let event = cleaned(&job, Source::Reconciler, "reconciler");
            store.clean_job(Some(fence), job.id, clock.now(), event).await?;
        }
        Ok(true)
    }

    async fn perform(
        &self,
        action: &Action,
        rows: &HashMap<&ContainerId, &Tracked>,
        seen: &Seen,
    ) -> Result<(), StoreError> {
        let Context { store, fence, clock, .. } = &self.context;
        let now = clock.now();
        match action {
            Action::Record { id, expect, observed, events } => {
                store.observe(fence, id, *expect, observed, events.clone(), now).await
            }
            Action::Register { found, events } => {
                let id = found.id.clone().unwrap_or_else(|| self.context.entropy.container_id(now));
                let mut events = events.clone();
                for event in &mut events {
                    event.container_id = Some(id.to_string());
                }
                let row = NewContainer::found(id, self.provider.name(), found);
                store.register_found(fence, row, events, now).await
            }
            Action::Foreign { sandbox, identity, event } => {
                store.upsert_foreign(fence, self.provider.name(), identity, sandbox, now, event.clone()).await
            }
            Action::ForeignGone { sandbox_id } => {
                store.foreign_gone(fence, self.provider.name(), sandbox_id, now).await
            }
            Action::Desire { id, reason, grace_seconds, message } => {
                let event = NewEvent::new(EventType::StopRequested, Source::Reconciler, message)
                    .container(id)
                    .task(rows.get(id).and_then(|r| r.task_id.as_deref()))
                    .details(json!({ "by": "reconciler", "reason": reason, "grace_seconds": grace_seconds }));
                let wish = Wish { by: "reconciler", reason: *reason, grace_seconds: *grace_seconds, event };
                let wanted = match (reason, rows.get(id)) {
                    (TerminationReason::Stale | TerminationReason::Silent, Some(row)) => {
                        // While the provider kept us waiting it may have been heard, or we may have been stopped; and
                        // the times in the rows are those of a clock that may have been set.
                        let Context { observer, config, .. } = &self.context;
                        let least = config.reconciler.stale_threshold_seconds as f64;
                        let heard = observer.silent_seconds(id).is_some_and(|seconds| seconds < least);
                        if heard || observer.is_just_back(config) {
                            debug!(container = %id, "it was heard, or we were away: its silence is judged again first");
                            return Ok(());
                        }
                        let known = Silence { heard: row.last_heartbeat_at, health: row.health };
                        store.desire_end_of_silent(fence, id, known, wish, now).await
                    }
                    _ => store.desire_termination(Some(fence), id, wish, now).await,
                };
                wanted.map(drop)
            }
            Action::Create { id, attempt } => match rows.get(id) {
                Some(row) => self.create(row, *attempt, seen).await,
                None => Ok(()),
            },
            Action::CreateLost { id, observed, event } => self.create_lost(id, observed, event).await,
            Action::Stop { id, sandbox_id, grace_seconds, attempt } => {
                let task = rows.get(id).and_then(|r| r.task_id.as_deref());
                self.stop(id, sandbox_id.clone(), *grace_seconds, *attempt, task).await
            }
            Action::AlertSilent { id, event } => store.alert_silent(fence, id, now, event.clone()).await,
            // Told together with the memory that it changes, in `record`.
            Action::Announce { .. } => Ok(()),
        }
    }

    /// The attempt is claimed and committed before the provider is asked.
    async fn create(&self, row: &Tracked, attempt: i64, seen: &Seen) -> Result<(), StoreError> {
        let Context { store, fence, clock, .. } = &self.context;
        let Answer::Listed(listing) = &seen.answer else { return Ok(()) };
        let identity = listing.identity.as_str();
        let (now, claimed) = (clock.now(), clock.monotonic());
        let secret = if self.provider.wants_secret() { Some(self.context.entropy.token()) } else { None };
        let token = secret.as_deref().map(|secret| (self.token_of(&row.id, now), secret_hash(secret)));
        store.claim_create(fence, &row.id, attempt - 1, identity, token.as_ref(), now).await?;
        let Some(spec) = store.container(&row.id).await?.and_then(|c| c.spec) else {
            return Ok(());
        };
        // Everybody counts on it that a create which was claimed can no longer arrive after this long. Whoever was
        // stopped meanwhile must not send it any more: another may lead, and have made it already.
        let settles = Duration::from_secs(u64::from(self.provider.capabilities().create_settles_seconds));
        if clock.monotonic().saturating_sub(claimed) > settles {
            warn!(container = %row.id, attempt, "held up after the claim of a create; it is not sent any more");
            return Ok(());
        }
        let seconds = self.context.config.reconciler.provider_timeout_seconds;
        let created = match &secret {
            Some(secret) => self.provider.create_with_secret(&spec, secret),
            None => self.provider.create(&spec),
        };
        let outcome = tokio::time::timeout(Duration::from_secs(seconds), created)
            .instrument(self.call_span("create"))
            .await;
        let now = clock.now();
        match outcome {
            Ok(Ok(sandbox)) => store.record_created(fence, &row.id, &sandbox.sandbox_id, identity, now).await,
            Ok(Err(CreateError::Rejected(why))) => {
                let mut observed = Observed::of(row);
                observed.state = ContainerState::Terminated;
                observed.terminated_at = Some(now);
                observed.termination_reason = Some(TerminationReason::CreateFailed);
                let event = NewEvent::new(EventType::CreateFailed, Source::Reconciler, why)
                    .container(&row.id)
                    .task(row.task_id.as_deref())
                    .change(row.state, ContainerState::Terminated)
                    .details(json!({ "attempt": attempt, "provider": self.provider.name() }))
                    .recording(&Recorded::of(&observed, now));
                store.observe(fence, &row.id, row.state, &observed, vec![event], now).await
            }
            Ok(Err(CreateError::Unknown(why))) => {
                warn!(container = %row.id, attempt, %why, "the outcome of a create is unknown; observing will tell");
                Ok(())
            }
            Err(_) => {
                warn!(container = %row.id, attempt, seconds, "no answer to a create in time; observing will tell");
                Ok(())
            }
        }
    }

    /// What the sandbox of this attempt proves itself with: about itself, and nothing else.
    fn token_of(&self, container: &ContainerId, now: Timestamp) -> Token {
        Token {
            id: self.context.entropy.token_id(now),
            subject: container.to_string(),
            role: Role::Worker,
            container_id: Some(container.clone()),
            created_at: now,
            created_by: "reconciler".to_owned(),
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
        }
    }

    async fn create_lost(
        &self,
        id: &ContainerId,
        observed: &Observed,
        event: &NewEvent,
    ) -> Result<(), StoreError> {
        let Context { store, fence, clock, entropy, .. } = &self.context;
        let now = clock.now();
        let Some(lost) = store.container(id).await? else { return Ok(()) };
        let successor_id = entropy.container_id(now);
        let Some(mut spec) = lost.spec.clone() else { return Ok(()) };
        spec.container_id = successor_id.clone();
        let successor = NewContainer {
            keep: lost.keep,
            cost_rate_per_hour: lost.cost_rate_per_hour,
            create_attempts: 0,
            metadata: json!({ "successor_of": id }),
            ..NewContainer::intent(self.provider.name(), spec, now)
        };
        let message = format!("Container created in place of {id}, whose creation was lost");
        let created = NewEvent::new(EventType::ContainerCreated, Source::Reconciler, message)
            .container(&successor_id)
            .task(lost.task_id.as_deref())
            .change("none", ContainerState::Created)
            .details(json!({ "successor_of": id }))
            .recording(&Recorded::intent(lost.cost_rate_per_hour, now));
        let mut event = event.clone();
        if let Some(details) = event.details.as_object_mut() {
            details.insert("successor".to_owned(), json!(successor_id));
        }
        store
            .create_lost(fence, id, ContainerState::Created, observed, event, successor, vec![created], now)
            .await
    }

    /// `seen` is committed before the provider is told, `sent` after it has taken the request.
    async fn stop(
        &self,
        id: &ContainerId,
        sandbox_id: Option<String>,
        grace_seconds: i64,
        attempt: i64,
        task: Option<&str>,
    ) -> Result<(), StoreError> {
        let Context { store, fence, clock, .. } = &self.context;
        let event = |kind, message: String| {
            NewEvent::new(kind, Source::Reconciler, message)
                .container(id)
                .task(task)
                .details(json!({ "attempt": attempt, "grace_seconds": grace_seconds }))
        };
        let first = (attempt == 1).then(|| event(EventType::StopSeen, "Stop request seen".to_owned()));
        store.stop_seen(fence, id, attempt, clock.now(), first).await?;
        let sandbox = SandboxRef { container_id: id.clone(), sandbox_id };
        let grace = u32::try_from(grace_seconds).unwrap_or(0);
        let result = self.in_time("stop", self.provider.stop(&sandbox, grace)).await;
        let told = match &result {
            Ok(()) if grace == 0 => event(EventType::StopSent, "Told to stop at once".to_owned()),
            Ok(()) => event(EventType::StopSent, format!("Told to stop within {grace}s")),
            Err(why) => event(EventType::StopFailed, format!("Could not be told to stop: {why}")),
        };
        store.stop_result(fence, id, attempt, result, clock.now(), Some(told)).await
    }

    async fn record(
        &self,
        trigger: &str,
        started_at: Timestamp,
        began: Duration,
        seen: &Seen,
        failures: i64,
    ) -> Result<(), StoreError> {
        let Context { store, fence, clock, config, .. } = &self.context;
        let plan = &seen.plan;
        let now = clock.now();
        let (outcome, error) = match &seen.answer {
            Answer::Listed(_) => (CycleOutcome::Ok, None),
            Answer::Unreachable { error } => (CycleOutcome::Unreachable, Some(error.clone())),
        };
        let poll = parhelia_core::time::plus_seconds(now, config.reconciler.poll_interval_seconds as i64);
        let cycle = NewCycle {
            trigger: trigger.to_owned(),
            started_at,
            finished_at: now,
            duration_ms: i64::try_from(clock.monotonic().saturating_sub(began).as_millis())
                .unwrap_or(i64::MAX),
            outcome,
            error,
            counts: plan.counts.clone(),
            actions: plan.actions.len() as i64,
            failures,
            waiting: plan.waiting.iter().take(100).cloned().collect(),
            next_at: Some(plan.wake_at.map_or(poll, |at| at.min(poll))),
        };
        let quarantined = {
            let mut untold = self.quarantined.lock().unwrap_or_else(PoisonError::into_inner);
            untold.extend(self.provider.take_quarantined());
            untold.clone()
        };
        let told = quarantined.len();
        let quarantined = quarantined.into_iter().map(|what| {
            NewEvent::new(EventType::SandboxQuarantined, Source::Reconciler, what)
                .details(json!({ "provider": self.provider.name() }))
        });
        let announced = plan.actions.iter().filter_map(|action| match action {
            Action::Announce { event } => Some(event.clone()),
            _ => None,
        });
        let events = announced.chain(quarantined).collect();
        store.save_cycle(fence, self.provider.name(), &plan.memory, &cycle, events, now).await?;
        self.quarantined.lock().unwrap_or_else(PoisonError::into_inner).drain(..told);
        Ok(())
    }
}
