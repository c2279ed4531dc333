//! How a job is, from what its files, its lock and its container say. Pure: the loop gathers the evidence and writes
//! what comes out of it.
//!
//! A lock that is held proves life, so such a job is at worst stale; one that is free on this machine proves its end
//! at once. Only where the lock says nothing does silence decide, by the observer's own clock.

use jiff::Timestamp;

use super::{Job, JobActivity, JobNote, JobStatus};
use crate::event::{EventType, NewEvent, Source};
use crate::ids::ContainerId;
use crate::state::{ContainerState, Health, TerminationReason};
use crate::time::{human_age, plus_seconds, seconds_between};

/// A heartbeat that other changes do not write down is written down when the noted one is this much older.
const NOTED_EVERY_SECONDS: f64 = 300.0;
const DETAIL_CHARS: usize = 500;

/// What stands in a sentinel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    pub heartbeat_at: Timestamp,
    pub started_at: Timestamp,
    pub activity: JobActivity,
    pub waiting_reason: Option<String>,
    pub session: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SentinelSeen {
    Missing,
    Empty,
    Corrupt { why: String },
    Read(Beat),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockSeen {
    Held,
    Free { rebooted: bool },
    Unknown { why: String },
}

/// How it ended, from its result or from its container's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub exit_code: Option<i64>,
    pub reason: TerminationReason,
    pub message: Option<String>,
    pub at: Timestamp,
    /// It ended because it needs a person.
    pub waiting_reason: Option<String>,
    /// The agent's own session, where the end names it.
    pub session: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultSeen {
    Missing,
    /// No result, but proof of a start.
    Unreadable,
    Read(Ending),
}

/// One look at the files of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFacts {
    pub sentinel: SentinelSeen,
    pub lock: LockSeen,
    pub result: ResultSeen,
}

/// What the reconciler and the health loop have recorded of its container.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerSeen {
    pub id: ContainerId,
    pub provider: String,
    pub last_heartbeat_at: Option<Timestamp>,
    pub task_id: Option<String>,
    pub state: ContainerState,
    pub health: Health,
    pub exit_code: Option<i64>,
    pub reason: Option<TerminationReason>,
    pub terminated_at: Option<Timestamp>,
    pub desired_by: Option<String>,
    /// Why its provider did not make it.
    pub refusal: Option<String>,
}

/// All that is known of one job now.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    pub job: Job,
    pub container: ContainerSeen,
    /// `None`: its provider keeps no files of it, and the container's record is all there is.
    pub files: Option<JobFacts>,
    /// Since this observer last saw a new heartbeat, or first saw the job.
    pub silent_seconds: f64,
    /// This observer has seen a new heartbeat.
    pub heard: bool,
    /// Exit codes that mean: it needs a person.
    pub waiting_codes: Vec<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    pub stale_seconds: f64,
    pub dead_seconds: f64,
    /// A heartbeat from further in the future is warned of.
    pub future_seconds: f64,
    /// How long an uncertain one is watched after a start.
    pub watch_seconds: f64,
    /// How long its directory is kept after its end.
    pub keep_seconds: i64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            stale_seconds: 120.0,
            dead_seconds: 600.0,
            future_seconds: 60.0,
            watch_seconds: 300.0,
            keep_seconds: 7 * 86_400,
        }
    }
}

/// What the evidence proves, before any clock is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Proof {
    /// Nothing of it was ever started, as far as anybody can see.
    NotBegun,
    Alive,
    /// Only its heartbeats can tell.
    Nothing {
        why: String,
    },
    Over(Ending),
}

impl Evidence {
    pub fn beat(&self) -> Option<&Beat> {
        match self.files.as_ref().map(|files| &files.sentinel) {
            Some(SentinelSeen::Read(beat)) => Some(beat),
            _ => None,
        }
    }

    /// What is wrong with a sentinel that is there and says nothing.
    pub fn damage(&self) -> Option<&str> {
        match self.files.as_ref().map(|files| &files.sentinel) {
            Some(SentinelSeen::Empty) => Some("it is empty"),
            Some(SentinelSeen::Corrupt { why }) => Some(why),
            _ => None,
        }
    }

    /// How far its heartbeat is ahead of the clock here, when that is more than a difference of clocks.
    pub fn ahead_seconds(&self, rules: &Rules, now: Timestamp) -> Option<f64> {
        let ahead = seconds_between(now, self.beat()?.heartbeat_at);
        (ahead > rules.future_seconds).then_some(ahead)
    }

    pub fn proof(&self) -> Proof {
        let Some(files) = &self.files else { return self.proof_of_container() };
        let began = self.job.status != JobStatus::Pending
            || files.sentinel != SentinelSeen::Missing
            || files.result != ResultSeen::Missing;
        match (&files.result, &files.lock) {
            (ResultSeen::Read(ending), _) => Proof::Over(ending.clone()),
            (_, LockSeen::Held) => Proof::Alive,
            (_, LockSeen::Free { .. } | LockSeen::Unknown { .. }) if self.is_recorded_over() => {
                Proof::Over(self.recorded_end())
            }
            (_, LockSeen::Free { rebooted }) if began => Proof::Over(self.lost(*rebooted)),
            (_, LockSeen::Free { .. }) => Proof::NotBegun,
            (_, LockSeen::Unknown { .. }) if !began => Proof::NotBegun,
            (_, LockSeen::Unknown { why }) => Proof::Nothing { why: why.clone() },
        }
    }

    fn proof_of_container(&self) -> Proof {
        match self.container.state {
            _ if self.is_recorded_over() => Proof::Over(self.recorded_end()),
            ContainerState::Created => Proof::NotBegun,
            ContainerState::Unknown if self.job.status == JobStatus::Pending => Proof::NotBegun,
            _ => Proof::Nothing { why: "only its container's health can tell".to_owned() },
        }
    }

    fn is_recorded_over(&self) -> bool {
        matches!(self.container.state, ContainerState::Terminated | ContainerState::Stopped)
    }

    fn recorded_end(&self) -> Ending {
        let last = self.beat().map(|beat| beat.heartbeat_at).or(self.job.heartbeat_at);
        Ending {
            exit_code: self.container.exit_code,
            reason: self.container.reason.unwrap_or(TerminationReason::External),
            message: self.container.refusal.clone(),
            session: None,
            at: self.container.terminated_at.or(last).unwrap_or(self.job.status_at),
            waiting_reason: None,
        }
    }

    fn lost(&self, rebooted: bool) -> Ending {
        let reason =
            if rebooted { TerminationReason::HostRebooted } else { TerminationReason::SupervisorLost };
        let last = self.beat().map(|beat| beat.heartbeat_at).or(self.job.heartbeat_at);
        let at = last.unwrap_or(self.job.status_at);
        Ending { exit_code: None, reason, message: None, at, waiting_reason: None, session: None }
    }
}

/// What to write down of a job, and what to tell with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    pub note: JobNote,
    pub events: Vec<NewEvent>,
}

/// How a job is in the ordinary course of things; `None` when everything is as it was noted. `settled`: the recovery
/// after the start is over, so that silence may be believed.
pub fn judge(evidence: &Evidence, rules: &Rules, settled: bool, now: Timestamp) -> Option<Judgement> {
    let job = &evidence.job;
    if matches!(job.status, JobStatus::Finished | JobStatus::Failed) {
        return None;
    }
    let (status, reason) = match evidence.proof() {
        Proof::Over(ending) => return Some(over(evidence, &ending, rules, now)),
        Proof::NotBegun => return None,
        Proof::Alive => by_silence(evidence, rules, true, now),
        Proof::Nothing { .. } if evidence.files.is_none() => by_health(evidence),
        Proof::Nothing { .. } if !settled => unsettled(evidence),
        Proof::Nothing { .. } => by_silence(evidence, rules, false, now),
    };
    changed(evidence, alive(evidence, status, reason, rules, now))
}

/// Before the recovery is over nobody becomes worse by silence alone; what it has decided stays, with its reason.
fn unsettled(evidence: &Evidence) -> (JobStatus, Option<String>) {
    match evidence.job.status {
        JobStatus::Pending if evidence.beat().is_some() => (JobStatus::Fresh, None),
        status => (status, evidence.job.status_reason.clone()),
    }
}

fn by_silence(
    evidence: &Evidence,
    rules: &Rules,
    lives: bool,
    now: Timestamp,
) -> (JobStatus, Option<String>) {
    let silent = evidence.silent_seconds;
    if silent > rules.dead_seconds && !lives {
        // Not the age itself: a sentence that grew older would be written again at every look.
        let longest = human_age(rules.dead_seconds);
        return (JobStatus::Dead, Some(format!("no heartbeat for more than {longest}")));
    }
    if silent >= rules.stale_seconds {
        let proven = if lives { "; its lock is held, so it lives" } else { "" };
        let what = match evidence.damage() {
            Some(_) => "its sentinel cannot be read, and there was",
            None if evidence.beat().is_none() => "it has no sentinel, and there was",
            None => "there was",
        };
        let since = human_age(rules.stale_seconds);
        return (JobStatus::Stale, Some(format!("{what} no heartbeat for {since} or more{proven}")));
    }
    let reason = evidence
        .ahead_seconds(rules, now)
        .map(|_| "its heartbeat is from the future: compare the clock of its machine".to_owned());
    let status = match evidence.job.status {
        JobStatus::Reattached => JobStatus::Reattached,
        // Its supervisor is there and has not said anything yet.
        JobStatus::Pending if evidence.beat().is_none() => JobStatus::Pending,
        // Not being able to read it is no news: it gets better when it is heard.
        status @ (JobStatus::Stale | JobStatus::Dead) if !evidence.heard => status,
        _ => JobStatus::Fresh,
    };
    let reason = if status == evidence.job.status && matches!(status, JobStatus::Stale | JobStatus::Dead) {
        evidence.job.status_reason.clone()
    } else {
        reason
    };
    (status, reason)
}

fn by_health(evidence: &Evidence) -> (JobStatus, Option<String>) {
    match evidence.container.health {
        // Its provider says that it runs.
        Health::Unknown if evidence.job.status == JobStatus::Pending => (JobStatus::Fresh, None),
        Health::Unknown => (evidence.job.status, evidence.job.status_reason.clone()),
        Health::Healthy => (JobStatus::Fresh, None),
        health @ (Health::Degraded | Health::Unhealthy) => {
            (JobStatus::Stale, Some(format!("its container is {health}")))
        }
        Health::Dead => (JobStatus::Dead, Some("its container is dead".to_owned())),
    }
}

/// The note of a job that is not over.
pub(super) fn alive(
    evidence: &Evidence,
    status: JobStatus,
    reason: Option<String>,
    rules: &Rules,
    now: Timestamp,
) -> JobNote {
    let mut note = evidence.job.note();
    if status != note.status {
        note.status_at = now;
    }
    note.status = status;
    note.status_reason = reason;
    (note.ended_at, note.cleanup_at) = (None, None);
    if status == JobStatus::Dead {
        note.cleanup_at = evidence.job.cleanup_at.or(Some(plus_seconds(now, rules.keep_seconds)));
        note.ended_at = evidence.job.ended_at.or(note.heartbeat_at).or(Some(now));
    }
    match evidence.beat() {
        Some(beat) => {
            wait(&mut note, beat.activity, beat.waiting_reason.as_deref(), now);
            note.heartbeat_at = Some(beat.heartbeat_at);
            if beat.session.is_some() {
                note.agent_session = beat.session.clone();
            }
        }
        None if evidence.files.is_none() => wait(&mut note, JobActivity::Running, None, now),
        None => {}
    }
    note
}

fn wait(note: &mut JobNote, activity: JobActivity, reason: Option<&str>, now: Timestamp) {
    let waits = activity == JobActivity::Waiting;
    if waits && note.activity != JobActivity::Waiting {
        note.waiting_since = Some(now);
    }
    if !waits {
        note.waiting_since = None;
    }
    note.activity = activity;
    note.waiting_reason = waits.then(|| short(reason.unwrap_or("it needs a person")));
}

/// The note of a job that has ended, and what is told of it.
pub(super) fn over(evidence: &Evidence, ending: &Ending, rules: &Rules, now: Timestamp) -> Judgement {
    let mut note = evidence.job.note();
    let waits = ending.waiting_reason.is_some()
        || (ending.reason == TerminationReason::Failed
            && ending.exit_code.is_some_and(|code| evidence.waiting_codes.contains(&code)));
    let success = ending.reason == TerminationReason::Completed || waits;
    note.status = if success { JobStatus::Finished } else { JobStatus::Failed };
    note.status_at = now;
    note.exit_code = ending.exit_code;
    note.ended_at = Some(ending.at);
    note.cleanup_at = Some(plus_seconds(now, rules.keep_seconds));
    if let Some(beat) = evidence.beat() {
        note.heartbeat_at = Some(beat.heartbeat_at);
        note.agent_session = beat.session.clone().or(note.agent_session);
    }
    note.agent_session = ending.session.clone().or(note.agent_session);
    if waits {
        let code = ending.exit_code.map_or_else(String::new, |code| format!(" with code {code}"));
        let said = ending.waiting_reason.clone().or_else(|| note.waiting_reason.clone());
        let sentence = format!("it ended{code}, which means that it needs a person");
        wait(&mut note, JobActivity::Waiting, Some(said.as_deref().unwrap_or(&sentence)), now);
        note.status_reason = Some(match &said {
            Some(said) => format!("it ended{code} and needs a person: {}", short(said)),
            None => sentence,
        });
    } else {
        // What has ended does nothing, and waits for nobody.
        wait(&mut note, JobActivity::Processing, None, now);
        note.status_reason = Some(why_it_ended(evidence, ending));
    }
    let mut events = told(evidence, &note);
    if ending.reason == TerminationReason::Manual {
        // Whoever wanted it need not be told that something went wrong.
        for event in events.iter_mut().filter(|event| event.event_type == EventType::JobFailed) {
            event.event_type = EventType::JobCancelled;
            event.message = format!("Job {}", note.status_reason.as_deref().unwrap_or("cancelled"));
        }
    }
    Judgement { note, events }
}

fn why_it_ended(evidence: &Evidence, ending: &Ending) -> String {
    use TerminationReason as R;
    let message = ending.message.as_deref().filter(|text| !text.is_empty());
    let code = ending.exit_code.map_or_else(String::new, |code| format!(" with code {code}"));
    let sentence = match ending.reason {
        R::Completed => return "it ended by itself with code 0".to_owned(),
        R::Failed => format!("it ended by itself{code}"),
        R::Crash => "a signal ended it".to_owned(),
        R::Oom => "it had no memory left".to_owned(),
        R::IdleTimeout => "it was idle for too long".to_owned(),
        R::Manual => {
            let by = evidence.container.desired_by.as_deref();
            return by.map_or_else(|| "cancelled".to_owned(), |by| format!("cancelled by {by}"));
        }
        R::External => "it disappeared, and nobody asked for that".to_owned(),
        R::SupervisorLost => "its supervisor died without a result".to_owned(),
        R::HostRebooted => "its machine was restarted".to_owned(),
        R::StartFailed | R::CreateFailed => "it could not be started".to_owned(),
        other => format!("it was ended ({other})"),
    };
    match message {
        Some(message) => format!("{sentence}: {}", short(message)),
        None => sentence,
    }
}

fn short(text: &str) -> String {
    text.chars().take(DETAIL_CHARS).collect()
}

/// `None` when nothing worth writing has changed.
fn changed(evidence: &Evidence, note: JobNote) -> Option<Judgement> {
    let before = evidence.job.note();
    let apart = match (before.heartbeat_at, note.heartbeat_at) {
        (Some(before), Some(after)) => seconds_between(before, after).abs() >= NOTED_EVERY_SECONDS,
        (before, after) => before != after,
    };
    let same = JobNote { heartbeat_at: before.heartbeat_at, ..note.clone() } == before;
    if same && !apart {
        return None;
    }
    let events = told(evidence, &note);
    Some(Judgement { note, events })
}

/// The events of going from what was noted to `note`.
pub(super) fn told(evidence: &Evidence, note: &JobNote) -> Vec<NewEvent> {
    use JobStatus::*;
    let job = &evidence.job;
    let because = |text: &str| match &note.status_reason {
        Some(reason) => format!("{text}: {reason}"),
        None => text.to_owned(),
    };
    let mut events = Vec::new();
    let mut tell = |kind: EventType, message: String| events.push(event(evidence, note, kind, message));
    match (job.status, note.status) {
        (_, Reattached) if note.reattached_count > job.reattached_count => {
            tell(EventType::JobReattached, because("Job found alive after a start of the server"));
        }
        (from, to) if from == to => {}
        (Pending, Fresh) => tell(EventType::JobStarted, "Job started".to_owned()),
        (_, Fresh) => tell(EventType::JobRecovered, "Job is heard again".to_owned()),
        (_, Stale) => tell(EventType::JobStale, because("Job is silent")),
        (_, Dead) => tell(EventType::JobDead, because("Job is dead")),
        (_, Finished) => tell(EventType::JobFinished, because("Job finished")),
        (_, Failed) => tell(EventType::JobFailed, because("Job failed")),
        (_, Pending | Reattached) => {}
    }
    let (waited, waits) = (job.activity == JobActivity::Waiting, note.activity == JobActivity::Waiting);
    if waits && (!waited || job.waiting_reason != note.waiting_reason) {
        let reason = note.waiting_reason.as_deref().unwrap_or_default();
        tell(EventType::JobWaiting, format!("Job needs a person: {reason}"));
    }
    if waited && !waits && !note.status.is_over() {
        tell(EventType::JobWorking, "Job goes on and needs nobody any more".to_owned());
    }
    events
}

/// An event of a job, with what people and programs look for in it.
pub fn event(evidence: &Evidence, note: &JobNote, kind: EventType, message: String) -> NewEvent {
    let job = &evidence.job;
    let details = serde_json::json!({
        "job_id": job.id,
        "name": job.name,
        "engine": job.engine,
        "exit_code": note.exit_code,
        "waiting_reason": note.waiting_reason,
    });
    NewEvent::new(kind, Source::HealthMonitor, message)
        .container(&evidence.container.id)
        .task(evidence.container.task_id.as_deref())
        .change(job.status, note.status)
        .details(details)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
