//! What becomes of each job after a start of the server. Finished while nobody watched, alive and found again, gone
//! for certain, or uncertain: then it is watched for some minutes. Asked again until nothing is uncertain any more;
//! asking again about the same world gives the same answer.

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::classify::{Evidence, Judgement, Proof, Rules, alive, over, told};
use super::{JobNote, JobStatus};
use crate::state::TerminationReason;
use crate::time::{human_age, seconds_between};

/// An uncertain job whose heartbeat is younger than this is alive.
pub const REATTACHED_BELOW_SECONDS: f64 = 60.0;
/// One that is older than this is not waited for.
pub const WATCHED_UP_TO_SECONDS: f64 = 1800.0;

#[derive(Debug, Clone)]
pub struct RecoveryView<'v> {
    /// Those that are not decided yet.
    pub jobs: &'v [Evidence],
    pub rules: &'v Rules,
    /// Since the recovery began, on the observer's monotonic clock.
    pub since_seconds: f64,
    /// Since the server began to start.
    pub started_ms: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Fate {
    /// It ended while nobody watched: its true end.
    Finished(Judgement),
    Reattached(Judgement),
    /// Nobody can tell yet.
    Watch {
        until: Timestamp,
        why: String,
    },
    /// Gone: proven, or silent for too long.
    Dead(Judgement),
    /// Not started yet: nothing to recover.
    Pending,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecoveryPlan {
    pub fates: Vec<(Uuid, Fate)>,
    /// What it still waits for, and why.
    pub waiting: Vec<String>,
    pub wake_at: Option<Timestamp>,
}

pub fn plan_recovery(view: &RecoveryView<'_>, now: Timestamp) -> RecoveryPlan {
    let mut plan = RecoveryPlan::default();
    for evidence in view.jobs {
        let fate = fate(view, evidence, now);
        if let Fate::Watch { until, why } = &fate {
            plan.waiting.push(format!("{}: {why}; watched until {until}", evidence.job.id));
            plan.wake_at = Some(plan.wake_at.map_or(*until, |at| at.min(*until)));
        }
        plan.fates.push((evidence.job.id, fate));
    }
    plan
}

fn fate(view: &RecoveryView<'_>, evidence: &Evidence, now: Timestamp) -> Fate {
    match evidence.proof() {
        Proof::NotBegun => Fate::Pending,
        Proof::Alive => reattached(view, evidence, now),
        Proof::Over(ending) => {
            let judged = over(evidence, &ending, view.rules, now);
            match ending.reason {
                TerminationReason::SupervisorLost | TerminationReason::HostRebooted => Fate::Dead(judged),
                _ => Fate::Finished(judged),
            }
        }
        // Its container's record and health are all there is: the ordinary judgement knows as much.
        Proof::Nothing { .. } if evidence.files.is_none() => Fate::Pending,
        Proof::Nothing { why } => uncertain(view, evidence, &why, now),
    }
}

fn uncertain(view: &RecoveryView<'_>, evidence: &Evidence, why: &str, now: Timestamp) -> Fate {
    // The wall clock is all that says how long it was silent while nobody watched. A heartbeat from the future
    // counts as just now.
    let age = evidence.beat().map(|beat| seconds_between(beat.heartbeat_at, now).max(0.0));
    if evidence.heard || age.is_some_and(|age| age < REATTACHED_BELOW_SECONDS) {
        return reattached(view, evidence, now);
    }
    if let Some(age) = age.filter(|age| *age > WATCHED_UP_TO_SECONDS) {
        let reason = format!("its last heartbeat was {} before this start, and {why}", human_age(age));
        return dead(view, evidence, reason, now);
    }
    let left = view.rules.watch_seconds - view.since_seconds;
    if left <= 0.0 {
        let watched = human_age(view.rules.watch_seconds);
        return dead(view, evidence, format!("no heartbeat within {watched} of this start, and {why}"), now);
    }
    let left = SignedDuration::from_millis((left * 1000.0).ceil() as i64);
    Fate::Watch { until: now.saturating_add(left).unwrap_or(Timestamp::MAX), why: why.to_owned() }
}

fn dead(view: &RecoveryView<'_>, evidence: &Evidence, reason: String, now: Timestamp) -> Fate {
    let note = alive(evidence, JobStatus::Dead, Some(reason), view.rules, now);
    let events = told(evidence, &note);
    Fate::Dead(Judgement { note, events })
}

fn reattached(view: &RecoveryView<'_>, evidence: &Evidence, now: Timestamp) -> Fate {
    let note = alive(evidence, JobStatus::Reattached, None, view.rules, now);
    let note = JobNote {
        status_at: now,
        reattached_at: Some(now),
        reattached_count: evidence.job.reattached_count + 1,
        reattach_ms: Some(view.started_ms),
        ..note
    };
    let events = told(evidence, &note);
    Fate::Reattached(Judgement { note, events })
}
