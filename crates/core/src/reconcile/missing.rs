//! Rows that no listed sandbox matched. Absence is believed only when the listing was complete, the same
//! provider answered, and an inspection by id agrees; and a mass disappearance is not believed at once.

use jiff::Timestamp;
use serde_json::json;

use super::{Action, Inspected, Observed, Plan, Tracked, View, Waiting, row};
use crate::event::{EventType, NewEvent, Source};
use crate::history::Recorded;
use crate::sandbox::{Exit, Listing};
use crate::state::{ContainerState, Desired, TerminationReason};
use crate::time::{due_at, plus_seconds};

/// The breaker opens when more than half of at least this many vanish at once…
const BREAKER_AT_LEAST: usize = 4;
/// …and closes when this many complete listings, this far apart, agree with the inspections.
const BREAKER_AGREEING: i64 = 3;
const BREAKER_APART_SECONDS: i64 = 10;
/// How often the provider is asked for one container before its intent is given up.
const CREATE_ATTEMPTS: i64 = 5;

pub(super) fn plan(
    view: &View<'_>,
    listing: &Listing,
    unmatched: &[&Tracked],
    now: Timestamp,
    plan: &mut Plan,
) {
    let mut vanished: Vec<&Tracked> = Vec::new();
    for &row in unmatched {
        if row.state == ContainerState::Terminated {
            continue;
        }
        if let Some(identity) = row.provider_identity.as_ref().filter(|i| **i != listing.identity) {
            plan.wait(
                &row.id,
                format!("its provider was {identity}, and another one answers now ({})", listing.identity),
            );
            row::unheard(view, row, now, plan);
        } else if row.state == ContainerState::Created && row.create_attempts == 0 {
            never_asked(row, now, plan);
        } else if !listing.complete {
            plan.wait(&row.id, "the listing was incomplete; absence from it means nothing");
            row::unseen(view, row, now, plan);
        } else {
            vanished.push(row);
        }
    }
    let unanswered: Vec<_> = vanished.iter().filter(|r| !view.inspected.contains_key(&r.id)).collect();
    if !unanswered.is_empty() {
        plan.inspect = unanswered.iter().map(|r| (r.id.clone(), r.sandbox_id.clone())).collect();
        return;
    }
    if listing.complete && breaker_holds(view, listing, &vanished, now, plan) {
        for row in vanished.iter().filter(|r| surprising(r)) {
            plan.wait(
                &row.id,
                "too many vanished at once; waiting until three listings and the inspections agree",
            );
            row::unheard(view, row, now, plan);
        }
        vanished.retain(|r| !surprising(r));
    }
    for row in vanished {
        match view.inspected.get(&row.id) {
            Some(Inspected::Absent) => absent(view, row, &listing.identity, now, plan),
            Some(Inspected::Present(sandbox)) => row::plan(view, row, sandbox, &listing.identity, now, plan),
            Some(Inspected::Unknown { why }) => {
                plan.wait(&row.id, format!("not listed, and could not be inspected: {why}"));
                // It is being started, and may arrive at any moment.
                plan.busy |= row.state == ContainerState::Created;
                row::unseen(view, row, now, plan);
            }
            Some(Inspected::NotAsked) => {
                plan.wait(
                    &row.id,
                    "not listed, and asked about in one of the next passes, as there are many",
                );
                row::unseen(view, row, now, plan);
            }
            None => {}
        }
    }
}

/// Nobody asked for its end, it was seen before, and it had not ended: its absence is news.
fn surprising(row: &Tracked) -> bool {
    let ended = matches!(row.state, ContainerState::Stopped | ContainerState::Terminated);
    row.desired == Desired::Running && row.sandbox_id.is_some() && !ended
}

fn never_asked(row: &Tracked, now: Timestamp, plan: &mut Plan) {
    if row.desired == Desired::Running {
        create(row, now, plan);
    } else {
        close(
            row,
            row.desired_reason.unwrap_or(TerminationReason::Manual),
            "It was never created",
            now,
            plan,
        );
    }
}

/// The next pass comes at once: only seeing it makes it true.
fn create(row: &Tracked, now: Timestamp, plan: &mut Plan) {
    plan.busy = true;
    plan.wake(now);
    plan.actions.push(Action::Create { id: row.id.clone(), attempt: row.create_attempts + 1 });
}

fn absent(view: &View<'_>, row: &Tracked, identity: &str, now: Timestamp, plan: &mut Plan) {
    if row.state == ContainerState::Created {
        if may_still_arrive(view, row, now, plan) {
            return;
        }
        if row.sandbox_id.is_none() {
            return create_unconfirmed(view, row, now, plan);
        }
    }
    let exit = Exit {
        code: None,
        reason: TerminationReason::External,
        at: None,
        message: Some(format!(
            "{} no longer running in {}",
            row.sandbox_id.as_deref().unwrap_or(row.id.as_str()),
            view.provider
        )),
    };
    row::exited(view, row, None, &exit, identity, now, plan);
}

/// Asked for a moment ago and never seen yet. Also where the create was answered: a provider may name a
/// sandbox before it shows it.
fn may_still_arrive(view: &View<'_>, row: &Tracked, now: Timestamp, plan: &mut Plan) -> bool {
    let Some(left) = unsettled_seconds(view, row) else { return false };
    plan.busy = true;
    plan.wake(plus_seconds(now, left));
    plan.wait(&row.id, format!("its creation may still arrive; decided in {left}s"));
    true
}

/// How much longer a create that was sent may still arrive.
fn unsettled_seconds(view: &View<'_>, row: &Tracked) -> Option<i64> {
    let known = view.unseen_seconds.get(&row.id).copied().unwrap_or(0.0);
    let left = (view.create_settles_seconds as f64 - known).ceil() as i64;
    (left > 0).then_some(left)
}

/// The provider was asked, the answer was lost, and it says now that it has nothing of that name.
fn create_unconfirmed(view: &View<'_>, row: &Tracked, now: Timestamp, plan: &mut Plan) {
    if row.desired == Desired::Terminated {
        let reason = row.desired_reason.unwrap_or(TerminationReason::Manual);
        return close(row, reason, "Its creation never arrived", now, plan);
    }
    if row.create_attempts >= CREATE_ATTEMPTS {
        let message = format!(
            "{} gave no sandbox after {CREATE_ATTEMPTS} attempts; check that it answers",
            view.provider
        );
        return close(row, TerminationReason::CreateFailed, &message, now, plan);
    }
    if view.create_is_idempotent {
        create(row, now, plan);
    } else {
        plan.busy = true;
        plan.wake(now);
        let mut observed = Observed::of(row);
        observed.state = ContainerState::Terminated;
        observed.terminated_at = Some(now);
        observed.termination_reason = Some(TerminationReason::CreateLost);
        let message = "Nobody can say whether it was created; a successor takes its place, and a late arrival will be an orphan";
        let event = NewEvent::new(EventType::CreateLost, Source::Reconciler, message)
            .container(&row.id)
            .task(row.task_id.as_deref())
            .change(row.state, ContainerState::Terminated)
            .recording(&Recorded::of(&observed, now));
        plan.actions.push(Action::CreateLost { id: row.id.clone(), observed, event });
    }
}

/// Made and never started: whoever asked for it died, or was not answered, between the two. Where a second
/// create cannot make a second sandbox, it finishes the first. True when that is planned.
pub(super) fn finish_create(view: &View<'_>, row: &Tracked, now: Timestamp, plan: &mut Plan) -> bool {
    let unanswered = row.sandbox_id.is_none() && (1..CREATE_ATTEMPTS).contains(&row.create_attempts);
    if !view.create_is_idempotent || !unanswered {
        return false;
    }
    if let Some(left) = unsettled_seconds(view, row) {
        plan.wake(plus_seconds(now, left));
        return false;
    }
    create(row, now, plan);
    true
}

fn close(row: &Tracked, reason: TerminationReason, message: &str, now: Timestamp, plan: &mut Plan) {
    let mut observed = Observed::of(row);
    observed.state = ContainerState::Terminated;
    observed.terminated_at = Some(now);
    observed.termination_reason = Some(reason);
    if row.desired == Desired::Terminated {
        observed.stop_confirmed_at = Some(now);
    }
    let kind = match reason {
        TerminationReason::CreateFailed => EventType::CreateFailed,
        _ => EventType::ContainerTerminated,
    };
    let event = NewEvent::new(kind, Source::Reconciler, message)
        .container(&row.id)
        .task(row.task_id.as_deref())
        .change(row.state, ContainerState::Terminated)
        .details(json!({ "reason": reason }))
        .recording(&Recorded::of(&observed, now));
    plan.counts.terminated += 1;
    plan.actions.push(Action::Record {
        id: row.id.clone(),
        expect: row.state,
        observed,
        events: vec![event],
    });
}

/// True while a mass disappearance is not yet believed. Once it is open, it stays so until all of them are
/// there again or are agreed to be gone: that fewer are missing now makes the provider no more credible.
fn breaker_holds(
    view: &View<'_>,
    listing: &Listing,
    vanished: &[&Tracked],
    now: Timestamp,
    plan: &mut Plan,
) -> bool {
    let inspected = |row: &Tracked| view.inspected.get(&row.id);
    let gone: Vec<_> = vanished.iter().filter(|r| surprising(r)).collect();
    let concerned = |r: &&Tracked| r.provider_identity.as_ref().is_none_or(|i| *i == listing.identity);
    let known = view.rows.iter().filter(concerned).filter(|r| surprising(r)).count();
    let mass = known >= BREAKER_AT_LEAST && gone.len() * 2 > known;
    let open = plan.memory.breaker_since.is_some();
    let all_there = gone.iter().all(|r| matches!(inspected(r), Some(Inspected::Present(_))));
    if !mass && (!open || all_there) {
        if open {
            release(view, "what had vanished is listed again", plan);
        }
        return false;
    }
    if !open {
        plan.memory.breaker_since = Some(now);
        plan.memory.breaker_agreed = 0;
        plan.memory.breaker_agreed_at = None;
        let message = format!(
            "{} of {known} containers vanished from {} at once: nothing is changed until {BREAKER_AGREEING} listings and the inspections agree",
            gone.len(),
            view.provider
        );
        let event = NewEvent::new(EventType::BreakerTripped, Source::Reconciler, message)
            .details(json!({ "provider": view.provider, "vanished": gone.len(), "known": known }));
        plan.actions.push(Action::Announce { event });
    }
    // Who was not asked yet says nothing: without an answer of its own it stays as it is anyway.
    let asked: Vec<_> =
        gone.iter().filter_map(|r| inspected(r)).filter(|i| **i != Inspected::NotAsked).collect();
    if mass && asked.iter().any(|i| **i != Inspected::Absent) {
        plan.memory.breaker_agreed = 0;
        plan.memory.breaker_agreed_at = None;
    } else if (!mass || !asked.is_empty())
        && plan.memory.breaker_agreed_at.is_none_or(|at| due_at(at, BREAKER_APART_SECONDS, now) <= now)
    {
        plan.memory.breaker_agreed += 1;
        plan.memory.breaker_agreed_at = Some(now);
    }
    if plan.memory.breaker_agreed >= BREAKER_AGREEING {
        release(view, "three complete listings and the inspections agree", plan);
        return false;
    }
    plan.wake(plus_seconds(plan.memory.breaker_agreed_at.unwrap_or(now), BREAKER_APART_SECONDS));
    let why = format!("breaker open: {} of {BREAKER_AGREEING} listings agree", plan.memory.breaker_agreed);
    plan.waiting.push(Waiting { id: None, why });
    true
}

fn release(view: &View<'_>, why: &str, plan: &mut Plan) {
    let since = plan.memory.breaker_since.take();
    plan.memory.breaker_agreed = 0;
    plan.memory.breaker_agreed_at = None;
    let event =
        NewEvent::new(EventType::BreakerReleased, Source::Reconciler, format!("Breaker released: {why}"))
            .details(json!({ "provider": view.provider, "since": since }));
    plan.actions.push(Action::Announce { event });
}
