//! The jobs loop of one provider: reads what the files of its jobs say, lets `core` judge, and writes the verdict with
//! its events. After a start it first finds out what became of every job; until that is over nobody dies of silence.
//!
//! It owns the columns of jobs that are not the intent's. The container is the reconciler's: the loop only follows it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use parhelia_core::Timestamp;
use parhelia_core::event::EventType;
use parhelia_core::heartbeat::Sample;
use parhelia_core::ids::ContainerId;
use parhelia_core::job::classify::{
    ContainerSeen, Evidence, JobFacts, Judgement, LockSeen, Proof, ResultSeen, Rules, SentinelSeen, event,
    judge,
};
use parhelia_core::job::recovery::{Fate, RecoveryView, plan_recovery};
use parhelia_core::job::{Job, StartStep};
use parhelia_core::state::TerminationReason;
use parhelia_core::time::seconds_between;
use parhelia_providers::Provider;
use parhelia_providers::process::jobs::JobFiles;
use parhelia_store::StoreError;
use serde_json::json;
use tokio::sync::watch;
use tracing::{error, info, warn};
use uuid::Uuid;

use super::driver::{BUSY_PERIOD, Ended, LEAST_PAUSE};
use super::{Context, stopped};
use crate::startup::{Said, StartLog};

/// Store writes under way at once: enough for one group commit to take many.
const STORE_WRITES: usize = 64;
/// A pass that comes this much later than three periods: the process itself was stopped meanwhile.
const FROZEN: Duration = Duration::from_secs(20);
/// However long a pass took, news is not kept waiting for longer than this.
const MOST_DEAF: Duration = Duration::from_secs(1);
/// How many senders the intake remembers; beyond that it begins anew, and some passes come for nothing.
const SAID_MAX: usize = 65_536;

/// What makes the jobs loops look at once, and how far the recovery is. Shared with the service and the reconcilers.
#[derive(Debug)]
pub struct JobNews {
    news: watch::Sender<u64>,
    /// What each supervisor's heartbeat last said of its job, as a fingerprint.
    said: Mutex<HashMap<ContainerId, u64>>,
    progress: Mutex<Progress>,
}

impl Default for JobNews {
    fn default() -> Self {
        Self { news: watch::Sender::new(0), said: Mutex::default(), progress: Mutex::default() }
    }
}

/// How far the recovery of this start is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    pub began_at: Option<Timestamp>,
    /// Every job has been looked at once.
    pub classified_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// What was found of each job that was not over before.
    pub found: BTreeMap<Uuid, Found>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    Reattached,
    /// It had ended, with a result.
    Ended,
    Gone,
    Watched {
        until: Timestamp,
        why: String,
    },
}

/// How many of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub total: usize,
    pub reattached: usize,
    pub ended: usize,
    pub gone: usize,
    pub watched: usize,
}

impl Progress {
    pub fn tally(&self) -> Tally {
        let mut tally = Tally { total: self.found.len(), ..Tally::default() };
        for found in self.found.values() {
            *match found {
                Found::Reattached => &mut tally.reattached,
                Found::Ended => &mut tally.ended,
                Found::Gone => &mut tally.gone,
                Found::Watched { .. } => &mut tally.watched,
            } += 1;
        }
        tally
    }
}

impl JobNews {
    /// Something of some job may have changed: look soon.
    pub fn poke(&self) {
        self.news.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// A heartbeat that says something else of its job than the one before makes the loop look at the job itself.
    pub fn heard<'s>(&self, samples: impl Iterator<Item = &'s Sample>) {
        let mut news = false;
        {
            let mut said = locked(&self.said);
            for sample in samples {
                let Some(now) = sample.metadata.as_ref().and_then(fingerprint) else { continue };
                if said.len() >= SAID_MAX {
                    said.clear();
                }
                news |= said.insert(sample.container_id.clone(), now) != Some(now);
            }
        }
        if news {
            self.poke();
        }
    }

    /// Every job that was there at the start is decided.
    pub fn recovered(&self) -> bool {
        locked(&self.progress).finished_at.is_some()
    }

    pub fn progress(&self) -> Progress {
        locked(&self.progress).clone()
    }
}

fn fingerprint(metadata: &serde_json::Map<String, serde_json::Value>) -> Option<u64> {
    use std::hash::{Hash, Hasher};
    metadata.get("job_status")?;
    let mut hasher = std::hash::DefaultHasher::new();
    for key in ["job_status", "waiting_reason", "agent_session"] {
        metadata.get(key).and_then(|value| value.as_str()).hash(&mut hasher);
    }
    Some(hasher.finish())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When this process last saw a new heartbeat of a job, on its own monotonic clock.
#[derive(Debug, Clone, Copy)]
struct Ear {
    at: Duration,
    beat: Option<Timestamp>,
    heard: bool,
}

#[derive(Debug)]
enum Recovery {
    /// Nobody has looked yet.
    Unbegun,
    Watching {
        since: Duration,
        undecided: HashSet<Uuid>,
    },
    Over,
}

#[derive(Debug)]
pub struct JobsLoop {
    context: Context,
    provider: Arc<dyn Provider>,
    files: Option<JobFiles>,
    news: Arc<JobNews>,
    start: Arc<StartLog>,
    rules: Rules,
    ears: HashMap<Uuid, Ear>,
    recovery: Recovery,
    last_pass: Duration,
    /// Sentinels that cannot be read, with what is still to be told of them.
    damaged: HashMap<Uuid, Option<String>>,
    /// Warned of already, until their clocks are right again.
    ahead: HashSet<Uuid>,
}

/// A verdict, and the evidence that it is from.
type Verdict<'e> = (&'e Evidence, Judgement);

impl JobsLoop {
    pub fn new(
        context: Context,
        provider: Arc<dyn Provider>,
        news: Arc<JobNews>,
        start: Arc<StartLog>,
    ) -> Self {
        let files = provider.job_files();
        let recovery = if files.is_some() { Recovery::Unbegun } else { Recovery::Over };
        let (rules, last_pass) = (context.config.job_rules(), context.clock.monotonic());
        Self {
            context,
            provider,
            files,
            news,
            start,
            rules,
            ears: HashMap::new(),
            recovery,
            last_pass,
            damaged: HashMap::new(),
            ahead: HashSet::new(),
        }
    }

    fn period(&self) -> Duration {
        Duration::from_secs(self.context.config.jobs.check_seconds)
    }

    pub async fn run(mut self, mut shutdown: watch::Receiver<bool>) -> Ended {
        let clock = self.context.clock.clone();
        let meter = self.context.metrics.loops.meter("jobs", self.provider.name());
        let mut news = self.news.news.subscribe();
        loop {
            news.mark_unchanged();
            let began = clock.monotonic();
            let pass = meter.begin(clock.as_ref());
            let passed = self.pass().await;
            pass.end(passed.is_ok());
            let pause = match passed {
                Ok(wake_at) => wake_at.map_or(self.period(), |at| {
                    let seconds = seconds_between(clock.now(), at).clamp(0.0, 86_400.0);
                    self.period().min(Duration::from_secs_f64(seconds))
                }),
                Err(StoreError::Fenced { .. }) => return Ended::Fenced,
                Err(e) => {
                    error!(provider = self.provider.name(), error = %e, "a look at the jobs failed; the next one starts afresh");
                    BUSY_PERIOD.min(self.period())
                }
            };
            let took = clock.monotonic().saturating_sub(began);
            tokio::select! {
                () = stopped(&mut shutdown) => return Ended::Shutdown,
                () = tokio::time::sleep(took.clamp(LEAST_PAUSE, MOST_DEAF)) => {}
            }
            tokio::select! {
                () = stopped(&mut shutdown) => return Ended::Shutdown,
                () = tokio::time::sleep(pause) => {}
                // The sender is in `self.news`, so it cannot be gone.
                _ = news.changed() => {}
            }
        }
    }

    /// One look at every job that is not known to have ended. Gives when to look again at the latest.
    pub async fn pass(&mut self) -> Result<Option<Timestamp>, StoreError> {
        self.notice_own_absence();
        let rows = self.context.store.jobs_watched(Some(self.provider.name())).await?;
        let evidence = self.gather(rows).await?;
        let now = self.context.clock.now();
        let mut verdicts: Vec<Verdict<'_>> = Vec::new();
        let (wake_at, open) = self.recover(&evidence, now, &mut verdicts);
        let settled = matches!(self.recovery, Recovery::Over);
        for one in evidence.iter().filter(|one| !open.contains(&one.job.id)) {
            verdicts.extend(judge(one, &self.rules, settled, now).map(|judged| (one, judged)));
        }
        self.warn_of_clocks(&evidence, now);
        self.keep_damaged(&evidence, &mut verdicts).await;
        let (lost, written) = self.write(verdicts, now).await;
        self.take_back(&lost);
        written?;
        self.tell_progress().await?;
        Ok(wake_at)
    }

    /// A pass that comes far too late was held up together with everything else here: nobody is older for that.
    fn notice_own_absence(&mut self) {
        let now = self.context.clock.monotonic();
        if now.saturating_sub(self.last_pass) > self.period() * 3 + FROZEN {
            for ear in self.ears.values_mut() {
                (ear.at, ear.heard) = (now, false);
            }
        }
        self.last_pass = now;
    }

    async fn gather(&mut self, rows: Vec<(Job, ContainerSeen)>) -> Result<Vec<Evidence>, StoreError> {
        let ids: Vec<Uuid> = rows.iter().map(|(job, _)| job.id).collect();
        let facts: Vec<Option<JobFacts>> = match &self.files {
            None => vec![None; ids.len()],
            Some(files) => match files.facts(ids.clone()).await {
                Ok(facts) => facts.into_iter().map(Some).collect(),
                Err(error) => vec![Some(nothing(&error.to_string())); ids.len()],
            },
        };
        let now = self.context.clock.monotonic();
        let mut ears = HashMap::with_capacity(rows.len());
        let mut all = Vec::with_capacity(rows.len());
        for ((job, container), files) in rows.into_iter().zip(facts) {
            let mut one = Evidence {
                job,
                container,
                files,
                silent_seconds: 0.0,
                heard: false,
                waiting_codes: Vec::new(),
            };
            let beat = one.beat().map(|beat| beat.heartbeat_at);
            let known = self.ears.get(&one.job.id).copied();
            let mut ear = known.unwrap_or(Ear { at: now, beat, heard: false });
            // Not only forward: the wall clock of its machine may have been set back.
            if beat.is_some() && beat != ear.beat {
                ear = Ear { at: now, beat, heard: true };
            }
            ears.insert(one.job.id, ear);
            one.silent_seconds = now.saturating_sub(ear.at).as_secs_f64();
            one.heard = ear.heard;
            if let Proof::Over(ending) = one.proof()
                && ending.reason == TerminationReason::Failed
            {
                let spec = self.context.store.container(&one.container.id).await?.and_then(|row| row.spec);
                one.waiting_codes =
                    spec.and_then(|spec| spec.job).map_or_else(Vec::new, |ask| ask.waiting_codes);
            }
            all.push(one);
        }
        self.ears = ears;
        Ok(all)
    }

    /// What the start makes of those that are not decided yet; these are left out of the ordinary judgement.
    fn recover<'e>(
        &mut self,
        evidence: &'e [Evidence],
        now: Timestamp,
        verdicts: &mut Vec<Verdict<'e>>,
    ) -> (Option<Timestamp>, HashSet<Uuid>) {
        let clock = &self.context.clock;
        if matches!(self.recovery, Recovery::Unbegun) {
            let undecided: HashSet<Uuid> =
                evidence.iter().filter(|one| !one.job.status.is_over()).map(|one| one.job.id).collect();
            self.recovery = Recovery::Watching { since: clock.monotonic(), undecided };
            let mut progress = locked(&self.news.progress);
            *progress = Progress { began_at: Some(self.start.started_at()), ..Progress::default() };
        }
        let Recovery::Watching { since, undecided } = &mut self.recovery else {
            return (None, HashSet::new());
        };
        let jobs: Vec<Evidence> =
            evidence.iter().filter(|one| undecided.contains(&one.job.id)).cloned().collect();
        let view = RecoveryView {
            jobs: &jobs,
            rules: &self.rules,
            since_seconds: clock.monotonic().saturating_sub(*since).as_secs_f64(),
            started_ms: self.start.elapsed_ms(clock.as_ref()),
        };
        let plan = plan_recovery(&view, now);
        let by_id: HashMap<Uuid, &Evidence> = evidence.iter().map(|one| (one.job.id, one)).collect();
        let mut open = HashSet::new();
        let mut progress = locked(&self.news.progress);
        for (id, fate) in plan.fates {
            let Some(one) = by_id.get(&id) else { continue };
            let (found, judged) = match fate {
                Fate::Pending => {
                    undecided.remove(&id);
                    continue;
                }
                Fate::Watch { until, why } => (Found::Watched { until, why }, None),
                Fate::Reattached(judged) => (Found::Reattached, Some(judged)),
                Fate::Finished(judged) => (Found::Ended, Some(judged)),
                Fate::Dead(judged) => (Found::Gone, Some(judged)),
            };
            progress.found.insert(id, found);
            open.insert(id);
            if let Some(judged) = judged {
                undecided.remove(&id);
                verdicts.push((one, judged));
            }
        }
        // Those whose rows are gone are nobody's any more.
        undecided.retain(|id| by_id.contains_key(id));
        if undecided.is_empty() {
            self.recovery = Recovery::Over;
        }
        (plan.wake_at, open)
    }

    /// Once what was decided is written down: the first time that is the step of the start.
    async fn tell_progress(&mut self) -> Result<(), StoreError> {
        if self.files.is_none() {
            return Ok(());
        }
        let clock = self.context.clock.clone();
        let (said, first) = {
            let mut progress = locked(&self.news.progress);
            let first = progress.classified_at.is_none();
            progress.classified_at.get_or_insert(clock.now());
            if matches!(self.recovery, Recovery::Over) {
                progress.finished_at.get_or_insert(clock.now());
            }
            let Tally { total, reattached, ended, gone, watched } = progress.tally();
            let uncertain = progress.found.iter().filter(|(_, found)| matches!(found, Found::Watched { .. }));
            let message = format!(
                "{total} jobs: {reattached} reattached, {ended} ended meanwhile, {gone} gone, {watched} watched"
            );
            let details = json!({
                "total": total,
                "reattached": reattached,
                "ended": ended,
                "gone": gone,
                "watched": uncertain.map(|(id, _)| id).collect::<Vec<_>>(),
                "quarantined": self.damaged.keys().collect::<Vec<_>>(),
            });
            (Said { ok: true, message, details }, first)
        };
        if first {
            self.start.step(StartStep::Jobs, said, clock.as_ref()).await?;
        }
        Ok(())
    }

    fn warn_of_clocks(&mut self, evidence: &[Evidence], now: Timestamp) {
        for one in evidence {
            match one.ahead_seconds(&self.rules, now) {
                Some(ahead) if self.ahead.insert(one.job.id) => warn!(
                    job = %one.job.id,
                    "its heartbeat is {ahead:.0} s ahead of the clock here: it counts as just now"
                ),
                Some(_) => {}
                None => drop(self.ahead.remove(&one.job.id)),
            }
        }
    }

    /// A sentinel that cannot be read is kept aside and told of, once; everything else goes on.
    async fn keep_damaged<'e>(&mut self, evidence: &'e [Evidence], verdicts: &mut Vec<Verdict<'e>>) {
        let Some(files) = self.files.clone() else { return };
        let present: HashSet<Uuid> =
            evidence.iter().filter(|one| one.damage().is_some()).map(|one| one.job.id).collect();
        self.damaged.retain(|id, _| present.contains(id));
        for one in evidence {
            let Some(why) = one.damage() else { continue };
            if let Entry::Vacant(unknown) = self.damaged.entry(one.job.id) {
                let kept = match files.keep_damaged(one.job.id).await {
                    Ok(Some(copy)) => Some(format!("a copy is kept at {}", copy.display())),
                    // This very content was told of before this server was.
                    Ok(None) => None,
                    Err(error) => Some(error.to_string()),
                };
                let message = kept.map(|kept| {
                    format!("Sentinel of the job cannot be read ({why}); {kept}; its lock decides")
                });
                unknown.insert(message);
            }
            let Some(Some(message)) = self.damaged.get(&one.job.id) else { continue };
            let place = verdicts.iter().position(|(other, _)| other.job.id == one.job.id);
            let place = place.unwrap_or_else(|| {
                verdicts.push((one, Judgement { note: one.job.note(), events: Vec::new() }));
                verdicts.len() - 1
            });
            let judged = &mut verdicts[place].1;
            let told = event(one, &judged.note, EventType::JobQuarantined, message.clone());
            judged.events.push(told);
        }
    }

    /// Which verdicts could not be written: they come again with the next pass. Losing the fence ends this one.
    async fn write(&self, verdicts: Vec<Verdict<'_>>, now: Timestamp) -> (Vec<Uuid>, Result<(), StoreError>) {
        let Context { store, fence, .. } = &self.context;
        let work: Vec<BoxFuture<'_, _>> = verdicts
            .into_iter()
            .map(|(one, judged)| {
                async move {
                    for told in &judged.events {
                        info!(job = %one.job.id, "{}: {}", told.event_type, told.message);
                    }
                    let expect = one.job.status;
                    let noted = store.note_job(fence, one.job.id, expect, &judged.note, judged.events, now);
                    (one.job.id, noted.await)
                }
                .boxed()
            })
            .collect();
        let mut results = futures::stream::iter(work).buffer_unordered(STORE_WRITES);
        let (mut lost, mut outcome) = (Vec::new(), Ok(()));
        while let Some((id, result)) = results.next().await {
            match result {
                Ok(()) => {}
                // Somebody else changed it at the same moment: look again.
                Err(StoreError::Conflict { .. }) => lost.push(id),
                Err(e @ StoreError::Fenced { .. }) => return (lost, Err(e)),
                Err(e) => {
                    lost.push(id);
                    outcome = Err(e);
                }
            }
        }
        (lost, outcome)
    }

    /// What the start decided and could not write down is not decided.
    fn take_back(&mut self, lost: &[Uuid]) {
        for (_, unsaid) in self.damaged.iter_mut().filter(|(id, _)| !lost.contains(id)) {
            *unsaid = None;
        }
        let mut progress = locked(&self.news.progress);
        if progress.finished_at.is_some() {
            return;
        }
        let again: HashSet<Uuid> =
            lost.iter().filter(|id| progress.found.remove(id).is_some()).copied().collect();
        if again.is_empty() {
            return;
        }
        match &mut self.recovery {
            Recovery::Watching { undecided, .. } => undecided.extend(again),
            recovery => {
                *recovery = Recovery::Watching { since: self.context.clock.monotonic(), undecided: again };
            }
        }
    }
}

/// When even the jobs directory could not be asked.
fn nothing(why: &str) -> JobFacts {
    JobFacts {
        sentinel: SentinelSeen::Missing,
        lock: LockSeen::Unknown { why: why.to_owned() },
        result: ResultSeen::Missing,
    }
}
