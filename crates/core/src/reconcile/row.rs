//! One row beside the sandbox that it belongs to.

use jiff::Timestamp;
use serde_json::json;

use super::{Action, Observed, Plan, Tracked, View, missing, plan::grace_expiry, stop};
use crate::event::{EventType, NewEvent, Source};
use crate::history::Recorded;
use crate::sandbox::{Exit, Phase, Sandbox};
use crate::state::{ContainerState, CostSource, Desired, Health, TerminationReason};
use crate::time::{human_age, plus_seconds, seconds_between};

/// A running container's cost is written down when it has grown by this much of an hour.
const COST_CHECKPOINT_HOURS: f64 = 5.0 / 60.0;

pub(super) fn plan(
    view: &View<'_>,
    row: &Tracked,
    sandbox: &Sandbox,
    identity: &str,
    now: Timestamp,
    plan: &mut Plan,
) {
    match &sandbox.phase {
        Phase::Unknown { why } => {
            plan.wait(&row.id, format!("the provider cannot say how it is: {why}"));
            if row.desired == Desired::Terminated && row.state.is_active() {
                stop::plan(row, now, plan);
            } else {
                unseen(view, row, now, plan);
            }
        }
        Phase::Starting if row.state == ContainerState::Created => {
            plan.busy = true;
            if row.desired == Desired::Terminated {
                plan.wait(&row.id, "the provider is starting it");
                stop::plan(row, now, plan);
            } else if !missing::finish_create(view, row, now, plan) {
                plan.wait(&row.id, "the provider is starting it");
                policies(view, row, &Observed::of(row), now, plan);
            }
        }
        Phase::Starting | Phase::Running => alive(view, row, sandbox, identity, now, plan),
        Phase::Broken { reason } => {
            alive(view, row, sandbox, identity, now, plan);
            if row.desired == Desired::Running {
                let message =
                    "Its supervisor is gone and something of it still runs: it is swept away".to_owned();
                plan.actions.push(Action::Desire {
                    id: row.id.clone(),
                    reason: *reason,
                    grace_seconds: 0,
                    message,
                });
                plan.busy = true;
            }
        }
        Phase::Exited(exit) => exited(view, row, Some(sandbox), exit, identity, now, plan),
    }
}

fn alive(view: &View<'_>, row: &Tracked, sandbox: &Sandbox, identity: &str, now: Timestamp, plan: &mut Plan) {
    let mut next = Observed::of(row);
    let mut events = Vec::new();
    let event = |kind, message: String| {
        NewEvent::new(kind, Source::Reconciler, message).container(&row.id).task(row.task_id.as_deref())
    };
    next.provider_identity = Some(identity.to_owned());
    next.sandbox_id = Some(sandbox.sandbox_id.clone());
    next.started_at = row.started_at.or(sandbox.started_at).or(Some(now));
    facts(&mut next, sandbox);
    let details = json!({ "sandbox_id": sandbox.sandbox_id, "provider": view.provider });
    match row.state {
        ContainerState::Created => {
            next.state = ContainerState::Running;
            plan.counts.started += 1;
            let started = format!("Sandbox {} started at {}", sandbox.sandbox_id, view.provider);
            events.push(if row.sandbox_id.is_some() {
                event(EventType::ContainerStarted, started)
            } else {
                plan.counts.adopted += 1;
                event(
                    EventType::ContainerAdopted,
                    format!("{started}; its creation was never confirmed to us"),
                )
            });
        }
        ContainerState::Stopped | ContainerState::Terminated => {
            next.state = ContainerState::Running;
            next.terminated_at = None;
            next.exit_code = None;
            next.termination_reason = None;
            next.stop_confirmed_at = None;
            plan.counts.corrections += 1;
            let message =
                format!("Container state corrected: {} -> running (its sandbox is alive)", row.state);
            events.push(event(EventType::StateDriftCorrected, message));
        }
        ContainerState::Unknown => {
            let seen = row.suspected_at.unwrap_or(row.created_at);
            let expires = grace_expiry(row.created_at, seen, view.settings.orphan_grace_period_seconds);
            if expires <= now {
                next.state = ContainerState::Orphaned;
                plan.counts.orphans += 1;
                events.push(
                    orphan_event(&sandbox.sandbox_id, row.task_id.as_deref(), row.state.as_str())
                        .container(&row.id),
                );
                plan.busy |= view.settings.auto_terminate_orphans;
            } else {
                plan.wake(expires);
                let left = seconds_between(now, expires).ceil();
                plan.wait(&row.id, format!("suspected: an orphan in {left}s unless something claims it"));
            }
        }
        ContainerState::Running | ContainerState::Orphaned => {}
    }
    if next.state != row.state {
        for e in &mut events {
            e.old_value = Some(row.state.to_string());
            e.new_value = Some(next.state.to_string());
            if e.details == json!({}) {
                e.details = details.clone();
            }
        }
    }
    price(view, &mut next, sandbox.reported_cost_usd, now);
    if events.is_empty() && only_cost_grew(row, &next) {
        next.cost_accrued_usd = row.cost_accrued_usd;
    }
    if events.is_empty() && counts_otherwise(row, &next) {
        events.push(cost_corrected(row, &next, "Cost corrected: its rate, its start or the provider's bill"));
    }
    if next != Observed::of(row) {
        let observed = next.clone();
        let record = Recorded::of(&observed, now);
        events.iter_mut().for_each(|event| event.record(&record));
        plan.actions.push(Action::Record { id: row.id.clone(), expect: row.state, observed, events });
    }
    if row.desired == Desired::Terminated {
        stop::plan(row, now, plan);
    } else {
        policies(view, row, &next, now, plan);
    }
}

/// What may end a container although nobody asked: each only sets the desired state.
fn policies(view: &View<'_>, row: &Tracked, next: &Observed, now: Timestamp, plan: &mut Plan) {
    let settings = view.settings;
    // The grace of a suspect protects from being ended, not from being seen.
    let spared = row.keep || next.state == ContainerState::Unknown;
    let mut desire = |reason, grace_seconds, message: String| {
        plan.actions.push(Action::Desire { id: row.id.clone(), reason, grace_seconds, message });
        plan.busy = true;
    };
    if row.state == ContainerState::Orphaned && settings.auto_terminate_orphans {
        return desire(
            TerminationReason::OrphanCleanup,
            10,
            "Orphan terminated: auto_terminate_orphans is on".into(),
        );
    }
    let resumed = view.observer_seconds >= view.resumption_seconds;
    // A heartbeat that has just become durable may not have reached the ladder yet.
    let heard = row
        .last_heartbeat_at
        .is_some_and(|at| (0.0..settings.stale_threshold_seconds as f64).contains(&seconds_between(at, now)));
    let stale = matches!(row.health, Health::Unhealthy | Health::Dead) && !heard;
    if settings.auto_terminate_stale && stale && !spared && resumed {
        let message =
            format!("No heartbeat for {}s: auto_terminate_stale is on", settings.stale_threshold_seconds);
        return desire(TerminationReason::Stale, 10, message);
    }
    let Some(silence) = silence(view, row, next.started_at, now, plan) else { return };
    // The persisted times are the wall clock's, which may have been set, or we may have been away ourselves:
    // only what this observer has not heard for long enough (the ladder's word) is ended for silence.
    // (One that has not got beyond starting has no place on the ladder; one that is first seen alive now has.)
    if !spared && (row.health == Health::Dead || next.state == ContainerState::Created) {
        let message = format!("No heartbeat persisted for {silence}");
        plan.actions.push(Action::Desire {
            id: row.id.clone(),
            reason: TerminationReason::Silent,
            grace_seconds: 10,
            message,
        });
        plan.busy = true;
    }
}

/// A provider that does not show it says nothing about it: what must end is asked to end all the same, and
/// a silence is told.
pub(super) fn unseen(view: &View<'_>, row: &Tracked, now: Timestamp, plan: &mut Plan) {
    stop::unseen(row, now, plan);
    unheard(view, row, now, plan);
}

/// Whoever is asked, it may run and cost on: its silence is told.
pub(super) fn unheard(view: &View<'_>, row: &Tracked, now: Timestamp, plan: &mut Plan) {
    let running =
        matches!(row.state, ContainerState::Running | ContainerState::Orphaned | ContainerState::Unknown);
    if running && row.desired == Desired::Running {
        silence(view, row, row.started_at, now, plan);
    }
}

/// Tells, once, of a container without a persisted heartbeat for `max_silent_hours`; gives how long it is.
/// Whatever the provider says, or does not say: nothing with a price is forgotten.
pub(super) fn silence(
    view: &View<'_>,
    row: &Tracked,
    started_at: Option<Timestamp>,
    now: Timestamp,
    plan: &mut Plan,
) -> Option<String> {
    let settings = view.settings;
    // An intent may have waited long for its provider: its silence begins when it could first be heard.
    let since = [row.last_heartbeat_at, started_at, row.suspected_at, row.create_attempted_at];
    let heard = since.into_iter().flatten().max()?.min(now);
    let silent_at = plus_seconds(heard, (settings.max_silent_hours * 3600.0) as i64);
    if silent_at > now || view.observer_seconds < view.resumption_seconds {
        return None;
    }
    let silence = human_age(seconds_between(heard, now));
    if row.silent_alerted_at.is_none_or(|at| at < heard) {
        let verdict = if row.keep { "kept, as it was started with --keep" } else { "it will be terminated" };
        let message = format!(
            "No heartbeat persisted for {silence} (max_silent_hours {}): {verdict}",
            settings.max_silent_hours
        );
        let event = NewEvent::new(EventType::ContainerSilent, Source::Reconciler, message)
            .container(&row.id)
            .task(row.task_id.as_deref())
            .details(json!({ "silent_seconds": seconds_between(heard, now), "keep": row.keep }));
        plan.actions.push(Action::AlertSilent { id: row.id.clone(), event });
    }
    Some(silence)
}

/// It has ended: for certain, by the provider's word.
pub(super) fn exited(
    view: &View<'_>,
    row: &Tracked,
    sandbox: Option<&Sandbox>,
    exit: &Exit,
    identity: &str,
    now: Timestamp,
    plan: &mut Plan,
) {
    if row.state == ContainerState::Terminated {
        return;
    }
    let mut next = Observed::of(row);
    next.provider_identity = Some(identity.to_owned());
    if let Some(sandbox) = sandbox {
        next.sandbox_id = Some(sandbox.sandbox_id.clone());
        next.started_at = row.started_at.or(sandbox.started_at);
        facts(&mut next, sandbox);
    }
    let told = row.terminated_at.filter(|_| row.state == ContainerState::Stopped).or(exit.at);
    let ended_at = told.unwrap_or(now).min(now).max(next.started_at.unwrap_or(row.created_at));
    // It had already ended when somebody asked for its end: then that was not the reason.
    let asked = row.desired == Desired::Terminated && row.desired_at.is_none_or(|at| at <= ended_at);
    let reason = row.desired_reason.filter(|_| asked).unwrap_or(exit.reason);
    let halted = matches!(
        reason,
        TerminationReason::Manual | TerminationReason::IdleTimeout | TerminationReason::Timeout
    );
    next.state = match row.state {
        ContainerState::Stopped => ContainerState::Terminated,
        _ if halted => ContainerState::Stopped,
        _ => ContainerState::Terminated,
    };
    next.exit_code = exit.code.or(row.exit_code);
    next.termination_reason =
        row.termination_reason.filter(|_| row.state == ContainerState::Stopped).or(Some(reason));
    next.terminated_at = Some(ended_at);
    if row.desired == Desired::Terminated {
        next.stop_confirmed_at = row.stop_confirmed_at.or(Some(now));
    }
    let mut events = vec![ended_event(row, &next, exit, now)];
    let reported = match sandbox {
        Some(sandbox) => sandbox.reported_cost_usd,
        // It cannot be asked any more: the last figure that it reported stands.
        None => Some(row.cost_accrued_usd).filter(|_| row.cost_source == CostSource::Reported),
    };
    price(view, &mut next, reported, ended_at);
    if next.cost_accrued_usd + 1e-9 < row.cost_accrued_usd {
        let message = format!(
            "Cost corrected: it ended at {}, earlier than was counted",
            crate::time::to_text(ended_at)
        );
        events.push(cost_corrected(row, &next, &message));
    }
    let record = Recorded::of(&next, ended_at);
    events.iter_mut().for_each(|event| event.record(&record));
    if next.state == ContainerState::Stopped {
        plan.busy = true;
        plan.wake(now);
    } else {
        plan.counts.terminated += 1;
    }
    plan.actions.push(Action::Record { id: row.id.clone(), expect: row.state, observed: next, events });
}

fn ended_event(row: &Tracked, next: &Observed, exit: &Exit, now: Timestamp) -> NewEvent {
    let kind = match next.state {
        ContainerState::Stopped => EventType::ContainerStopped,
        _ => EventType::ContainerTerminated,
    };
    let mut message = match (row.state, next.termination_reason) {
        (ContainerState::Stopped, _) => "Container cleaned up after its stop".to_owned(),
        (_, Some(reason)) => format!("Container {}: {reason}", next.state),
        (_, None) => format!("Container {}", next.state),
    };
    if let Some(code) = next.exit_code {
        message.push_str(&format!(" (exit code {code})"));
    }
    if let Some(more) = &exit.message {
        message.push_str(&format!(": {more}"));
    }
    NewEvent::new(kind, Source::Reconciler, message)
        .container(&row.id)
        .task(row.task_id.as_deref())
        .change(row.state, next.state)
        .details(json!({
            "reason": next.termination_reason,
            "exit_code": next.exit_code,
            "cause": exit.message,
            "ended_at": next.terminated_at,
            "receipts": {
                "requested_at": row.desired_at,
                "seen_at": row.stop_seen_at,
                "confirmed_at": row.desired_at.map(|_| now),
            },
        }))
}

pub(super) fn orphan_event(sandbox_id: &str, task: Option<&str>, old: &str) -> NewEvent {
    let message = format!("Orphan container detected: {sandbox_id}. 'parhelia cleanup --orphans' ends it");
    NewEvent::new(EventType::OrphanDetected, Source::Reconciler, message)
        .task(task)
        .change(old, ContainerState::Orphaned)
        .details(json!({ "sandbox_id": sandbox_id, "task_id": task }))
}

/// What the provider tells of its size and place; silence about it changes nothing.
fn facts(next: &mut Observed, sandbox: &Sandbox) {
    let seen = &sandbox.resources;
    next.region = sandbox.region.clone().or(next.region.take());
    next.resources.cpu_cores = seen.cpu_cores.or(next.resources.cpu_cores);
    next.resources.memory_mb = seen.memory_mb.or(next.resources.memory_mb);
    next.resources.gpu_type = seen.gpu_type.clone().or(next.resources.gpu_type.take());
}

fn price(view: &View<'_>, next: &mut Observed, reported: Option<f64>, until: Timestamp) {
    next.cost_rate_per_hour = Some(view.prices.rate_per_hour(view.provider, &next.resources, until));
    match reported {
        Some(usd) => {
            next.cost_accrued_usd = usd;
            next.cost_source = CostSource::Reported;
        }
        None => {
            let from = next.started_at.unwrap_or(until);
            next.cost_accrued_usd = view.prices.cost(view.provider, &next.resources, from, until);
            next.cost_source = CostSource::Estimated;
        }
    }
}

fn cost_corrected(row: &Tracked, next: &Observed, message: &str) -> NewEvent {
    NewEvent::new(EventType::CostCorrected, Source::Reconciler, message)
        .container(&row.id)
        .task(row.task_id.as_deref())
        .change(row.cost_accrued_usd, next.cost_accrued_usd)
}

/// Whether what it cost at any later moment can no longer be told from the events so far.
fn counts_otherwise(row: &Tracked, next: &Observed) -> bool {
    let billed = next.cost_source == CostSource::Reported && next.cost_accrued_usd != row.cost_accrued_usd;
    let before = (row.cost_rate_per_hour, row.cost_source, row.started_at);
    billed || before != (next.cost_rate_per_hour, next.cost_source, next.started_at)
}

fn only_cost_grew(row: &Tracked, next: &Observed) -> bool {
    let step = next.cost_rate_per_hour.unwrap_or(0.0) * COST_CHECKPOINT_HOURS;
    let grown = next.cost_accrued_usd - row.cost_accrued_usd;
    let mut same = next.clone();
    same.cost_accrued_usd = row.cost_accrued_usd;
    same == Observed::of(row) && (0.0..step.max(f64::MIN_POSITIVE)).contains(&grown)
}
