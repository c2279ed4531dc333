//! The pass as a whole: the provider first (does it answer, is it still the same, did too much vanish at
//! once), then each sandbox, then each row that no sandbox matched.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use serde_json::json;

use super::{Action, Answer, Discovered, Observed, Plan, Tracked, View, Waiting, missing, row};
use crate::event::{EventType, NewEvent, Source};
use crate::history::Recorded;
use crate::ids::ContainerId;
use crate::sandbox::{Listing, Phase, Sandbox};
use crate::state::{ContainerState, CostSource, Desired, TerminationReason};
use crate::time::{human_age, seconds_between};

pub fn plan(view: &View<'_>, now: Timestamp) -> Plan {
    let mut plan = Plan { memory: view.memory.clone(), ..Plan::default() };
    plan.counts.rows = view.rows.iter().filter(|r| r.state.is_active()).count() as i64;
    match view.answer {
        Answer::Unreachable { error } => unreachable(view, error, now, &mut plan),
        Answer::Listed(listing) => listed(view, listing, now, &mut plan),
    }
    cap_mutations(view.settings.max_reconcile_batch as usize, now, &mut plan);
    plan
}

fn unreachable(view: &View<'_>, error: &str, now: Timestamp, plan: &mut Plan) {
    if plan.memory.unreachable_since.is_none() {
        plan.memory.unreachable_since = Some(now);
        let message = format!(
            "Provider {} does not answer: {error}. Its containers are left as they are",
            view.provider
        );
        let event = NewEvent::new(EventType::ProviderUnreachable, Source::Reconciler, message)
            .details(json!({ "provider": view.provider, "error": error }));
        plan.actions.push(Action::Announce { event });
    }
    let why = format!("provider {} does not answer ({error}); nothing is concluded from that", view.provider);
    plan.waiting.push(Waiting { id: None, why });
    for row in view.rows {
        row::unseen(view, row, now, plan);
    }
}

fn listed(view: &View<'_>, listing: &Listing, now: Timestamp, plan: &mut Plan) {
    plan.counts.sandboxes = listing.sandboxes.len() as i64;
    if let Some(since) = plan.memory.unreachable_since.take() {
        let away = human_age(seconds_between(since, now));
        let message = format!("Provider {} answers again after {away}", view.provider);
        let event = NewEvent::new(EventType::ProviderRecovered, Source::Reconciler, message)
            .details(json!({ "provider": view.provider, "unreachable_since": since }));
        plan.actions.push(Action::Announce { event });
    }
    let before = plan.memory.identity.replace(listing.identity.clone());
    if let Some(before) = before.filter(|b| *b != listing.identity) {
        let message = format!(
            "Provider {} is now {}, it was {before}: containers of the former one are left as they are",
            view.provider, listing.identity
        );
        let event = NewEvent::new(EventType::ProviderIdentityChanged, Source::Reconciler, message)
            .change(before, &listing.identity)
            .details(json!({ "provider": view.provider }));
        plan.actions.push(Action::Announce { event });
    }

    let index = Index::new(view.rows);
    let mut matched: HashSet<&ContainerId> = HashSet::with_capacity(view.rows.len());
    let mut foreign_there: HashSet<&str> = HashSet::new();
    let mut seen: HashSet<&str> = HashSet::with_capacity(listing.sandboxes.len());
    let mut taken: HashSet<&ContainerId> = view.rows.iter().map(|r| &r.id).collect();
    for sandbox in &listing.sandboxes {
        // Pages that shift while they are read can show one sandbox twice.
        if !seen.insert(&sandbox.sandbox_id) {
            continue;
        }
        if !view.ours.contains(&sandbox.tags.instance) {
            if !matches!(sandbox.phase, Phase::Exited(_)) {
                foreign_there.insert(&sandbox.sandbox_id);
                foreign(view, listing, sandbox, plan);
            }
            continue;
        }
        match index.find(sandbox, &matched) {
            Some(row) => {
                matched.insert(&row.id);
                row::plan(view, row, sandbox, &listing.identity, now, plan);
            }
            None if matches!(sandbox.phase, Phase::Exited(_)) => {}
            None => {
                let id = taken.insert(&sandbox.tags.container).then(|| sandbox.tags.container.clone());
                discovered(view, id, sandbox, &listing.identity, now, plan);
            }
        }
    }
    if listing.complete {
        let mut gone: Vec<_> =
            view.known_foreign.iter().filter(|id| !foreign_there.contains(id.as_str())).collect();
        gone.sort();
        plan.actions.extend(gone.into_iter().map(|id| Action::ForeignGone { sandbox_id: id.clone() }));
    }
    let unmatched: Vec<&Tracked> = view.rows.iter().filter(|r| !matched.contains(&r.id)).collect();
    missing::plan(view, listing, &unmatched, now, plan);
}

fn foreign(view: &View<'_>, listing: &Listing, sandbox: &Sandbox, plan: &mut Plan) {
    plan.counts.foreign += 1;
    if view.known_foreign.contains(&sandbox.sandbox_id) {
        return;
    }
    let instance = &sandbox.tags.instance;
    let message = format!(
        "Sandbox {} belongs to instance {instance}; 'parhelia instances adopt {instance}' takes it over",
        sandbox.sandbox_id
    );
    let event = NewEvent::new(EventType::ForeignDetected, Source::Reconciler, message).details(
        json!({ "provider": view.provider, "sandbox_id": sandbox.sandbox_id, "instance_id": instance }),
    );
    plan.actions.push(Action::Foreign {
        sandbox: Box::new(sandbox.clone()),
        identity: listing.identity.clone(),
        event: Some(event),
    });
}

/// A sandbox with our tag and no row: it is seen at once, and protected by the grace from being ended. `id` is
/// the one in its tag, unless another has that.
fn discovered(
    view: &View<'_>,
    id: Option<ContainerId>,
    sandbox: &Sandbox,
    identity: &str,
    now: Timestamp,
    plan: &mut Plan,
) {
    let created_at = sandbox.created_at.unwrap_or(now).min(now);
    let expires = grace_expiry(created_at, now, view.settings.orphan_grace_period_seconds);
    let orphan = expires <= now;
    let state = if orphan { ContainerState::Orphaned } else { ContainerState::Unknown };
    let started_at = sandbox.started_at.unwrap_or(created_at);
    let observed = Observed {
        state,
        provider_identity: Some(identity.to_owned()),
        sandbox_id: Some(sandbox.sandbox_id.clone()),
        started_at: Some(started_at),
        terminated_at: None,
        exit_code: None,
        termination_reason: None,
        stop_confirmed_at: None,
        region: sandbox.region.clone(),
        resources: sandbox.resources.clone(),
        cost_accrued_usd: view.prices.cost(view.provider, &sandbox.resources, started_at, now),
        cost_rate_per_hour: Some(view.prices.rate_per_hour(view.provider, &sandbox.resources, now)),
        cost_source: CostSource::Estimated,
    };
    let age = human_age(seconds_between(created_at, now));
    let suspected = NewEvent::new(
        EventType::ContainerSuspected,
        Source::Reconciler,
        format!("Sandbox {} carries our tag and had no record; it is {age} old", sandbox.sandbox_id),
    )
    .task(sandbox.tags.task.as_deref())
    .change("none", state)
    .details(
        json!({ "sandbox_id": sandbox.sandbox_id, "task_id": sandbox.tags.task, "grace_until": expires }),
    );
    let record = Recorded::of(&observed, now);
    plan.counts.suspected += 1;
    let mut events = vec![suspected.recording(&record)];
    if orphan {
        plan.counts.orphans += 1;
        let orphaned = row::orphan_event(&sandbox.sandbox_id, sandbox.tags.task.as_deref(), "none");
        events.push(orphaned.recording(&record));
    } else {
        plan.wake(expires);
    }
    let found = Discovered { id, sandbox: sandbox.clone(), observed, created_at, suspected_at: now };
    plan.actions.push(Action::Register { found: Box::new(found), events });
    // Policies (automatic termination of orphans) look at it in the next pass.
    plan.busy |= orphan && view.settings.auto_terminate_orphans;
}

/// Older than the grace by either measure: the provider's creation time or our first sight.
pub(super) fn grace_expiry(created_at: Timestamp, seen_at: Timestamp, grace_seconds: u64) -> Timestamp {
    crate::time::plus_seconds(created_at.min(seen_at), grace_seconds as i64)
}

/// Rows by the two names a sandbox can have.
pub(super) struct Index<'a> {
    by_id: HashMap<&'a ContainerId, &'a Tracked>,
    by_sandbox: HashMap<&'a str, &'a Tracked>,
}

impl<'a> Index<'a> {
    fn new(rows: &'a [Tracked]) -> Self {
        let by_id = rows.iter().map(|r| (&r.id, r)).collect();
        let by_sandbox = rows.iter().filter_map(|r| Some((r.sandbox_id.as_deref()?, r))).collect();
        Self { by_id, by_sandbox }
    }

    /// By the provider's id; by our tag only for a row that does not know its sandbox yet, and only once:
    /// a second sandbox with the same tag is a twin and gets a row of its own. So does the late arrival of an
    /// intent that was given up as lost: its successor has taken its place.
    fn find(&self, sandbox: &Sandbox, matched: &HashSet<&ContainerId>) -> Option<&'a Tracked> {
        if let Some(row) = self.by_sandbox.get(sandbox.sandbox_id.as_str()) {
            return Some(row);
        }
        let row = self.by_id.get(&sandbox.tags.container)?;
        let replaced =
            row.termination_reason == Some(TerminationReason::CreateLost) && row.desired == Desired::Running;
        (row.sandbox_id.is_none() && !replaced && !matched.contains(&row.id)).then_some(*row)
    }
}

/// At most `batch` provider mutations per pass, stops before creates; the rest follows at once.
fn cap_mutations(batch: usize, now: Timestamp, plan: &mut Plan) {
    let mut left = batch;
    let mut deferred = 0;
    for stops in [true, false] {
        plan.actions.retain(|action| {
            let counts = match action {
                Action::Stop { .. } => stops,
                Action::Create { .. } => !stops,
                _ => false,
            };
            if !counts {
                return true;
            }
            if left == 0 {
                deferred += 1;
                return false;
            }
            left -= 1;
            true
        });
    }
    if deferred > 0 {
        let why =
            format!("{deferred} more changes than max_reconcile_batch ({batch}) allows; they follow at once");
        plan.waiting.push(Waiting { id: None, why });
        plan.wake(now);
        plan.busy = true;
    }
}
