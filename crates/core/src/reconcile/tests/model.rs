//! A model of the world around the planner: a store with the guards of the real one, and a provider that
//! does what it is asked, unless a fault says otherwise.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::world::{ENGINE, OURS, PROVIDER, World, container, exit, flat, now, row, sandbox};
use crate::ids::ContainerId;
use crate::reconcile::{Action, Answer, Inspected, Observed, Plan, Tracked};
use crate::sandbox::{Listing, Phase, Sandbox};
use crate::state::{ContainerState, Desired, Health, TerminationReason};
use crate::time::plus_seconds;

/// What goes wrong in one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// The listing fails.
    Unreachable,
    /// The listing lacks every second sandbox and says so.
    Partial,
    /// It lacks every second one and claims to be complete; inspections time out.
    Mute,
    /// It lacks every second one and claims to be complete; inspections tell the truth.
    Lying,
    /// The same, and there is time for one inspection only.
    Crowded,
    /// Every sandbox is listed twice.
    Double,
    /// Another engine answers, and has nothing.
    Elsewhere,
    /// A create works, but its answer is lost.
    LostReply,
    /// A create's answer is lost, and its sandbox appears three passes later.
    Late,
    /// A create never reaches the provider, and nobody knows.
    LostRequest,
    /// Stops are refused.
    Refusing,
}

pub(super) const FAULTS: &[Fault] = &[
    Fault::None,
    Fault::Unreachable,
    Fault::Partial,
    Fault::Mute,
    Fault::Lying,
    Fault::Crowded,
    Fault::Double,
    Fault::Elsewhere,
    Fault::LostReply,
    Fault::Late,
    Fault::LostRequest,
    Fault::Refusing,
];

#[derive(Debug, Clone)]
pub(super) struct Model {
    /// Its rows are the whole store; its answer and inspections are filled in for each pass.
    pub(super) world: World,
    pub(super) sandboxes: Vec<Sandbox>,
    /// Sandboxes that will appear, and in how many passes.
    late: Vec<(u32, Sandbox)>,
    minted: u64,
}

/// One pass as it was seen and decided.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) seen: World,
    pub(super) plan: Plan,
}

impl Step {
    pub(super) fn row(&self, id: &ContainerId) -> &Tracked {
        self.seen.rows.iter().find(|r| r.id == *id).expect("a plan names only rows that it was shown")
    }

    pub(super) fn listed(&self) -> &[Sandbox] {
        match &self.seen.answer {
            Answer::Listed(listing) => &listing.sandboxes,
            Answer::Unreachable { .. } => &[],
        }
    }

    /// The sandbox of a row in the listing, by the provider's id or by our tag.
    pub(super) fn listed_for(&self, row: &Tracked) -> Option<&Sandbox> {
        self.listed().iter().find(|s| s.tags.instance == OURS && belongs(row, s))
    }
}

pub(super) fn belongs(row: &Tracked, sandbox: &Sandbox) -> bool {
    match &row.sandbox_id {
        Some(id) => *id == sandbox.sandbox_id,
        None => row.id == sandbox.tags.container,
    }
}

impl Model {
    /// Observe, plan, ask what the plan asks, plan again: as the reconciler's loop does.
    pub(super) fn observe(&self, fault: Fault) -> Step {
        let mut seen = self.world.clone();
        let half = || self.sandboxes.iter().skip(1).step_by(2).cloned().collect();
        let listing = |complete, sandboxes| Listing { identity: ENGINE.into(), complete, sandboxes };
        seen.answer = match fault {
            Fault::Unreachable => Answer::Unreachable { error: "timeout".into() },
            Fault::Partial => Answer::Listed(listing(false, half())),
            Fault::Mute | Fault::Lying | Fault::Crowded => Answer::Listed(listing(true, half())),
            Fault::Double => {
                Answer::Listed(listing(true, [&self.sandboxes[..], &self.sandboxes[..]].concat()))
            }
            Fault::Elsewhere => {
                Answer::Listed(Listing { identity: "engine-2".into(), complete: true, sandboxes: vec![] })
            }
            _ => Answer::Listed(listing(true, self.sandboxes.clone())),
        };
        if let Answer::Listed(listing) = &seen.answer {
            let there: Vec<&Sandbox> =
                listing.sandboxes.iter().filter(|s| !matches!(s.phase, Phase::Exited(_))).collect();
            let shown = |row: &Tracked| {
                there
                    .iter()
                    .any(|s| row.sandbox_id.as_ref() == Some(&s.sandbox_id) || row.id == s.tags.container)
            };
            seen.rows.retain(|r| r.state.is_active() || shown(r));
        } else {
            seen.rows.retain(|r| r.state.is_active());
        }
        let mut plan = seen.plan();
        for (id, sandbox_id) in std::mem::take(&mut plan.inspect) {
            let found = self.sandboxes.iter().find(|s| match &sandbox_id {
                Some(known) => s.sandbox_id == *known,
                None => s.tags.container == id && s.tags.instance == OURS,
            });
            let answer = match (fault, found) {
                (Fault::Mute, _) => Inspected::Unknown { why: "timeout".into() },
                (Fault::Crowded, _) if !seen.inspected.is_empty() => Inspected::NotAsked,
                // The other engine has nothing at all.
                (Fault::Elsewhere, _) | (_, None) => Inspected::Absent,
                (_, Some(sandbox)) => Inspected::Present(Box::new(sandbox.clone())),
            };
            seen.inspected.insert(id, answer);
        }
        if !seen.inspected.is_empty() {
            plan = seen.plan();
        }
        assert!(plan.inspect.is_empty(), "every question was answered");
        Step { seen, plan }
    }

    /// Performs a plan with the guards of the store, and lets time pass until the next pass.
    pub(super) fn apply(&mut self, plan: &Plan, fault: Fault) {
        for action in &plan.actions {
            self.perform(action, fault);
        }
        self.world.memory = plan.memory.clone();
        if fault == Fault::None {
            let starting = |s: &&mut Sandbox| s.tags.instance == OURS && s.phase == Phase::Starting;
            for sandbox in self.sandboxes.iter_mut().filter(starting) {
                sandbox.phase = Phase::Running;
            }
        }
        for (passes, _) in &mut self.late {
            *passes -= 1;
        }
        let (here, later) = std::mem::take(&mut self.late).into_iter().partition(|(passes, _)| *passes == 0);
        self.late = later;
        self.sandboxes.extend(here.into_iter().map(|(_, sandbox)| sandbox));
        let now = self.world.now;
        let poll = plus_seconds(now, if plan.busy { 2 } else { 60 });
        let next = plan.wake_at.map_or(poll, |at| at.min(poll));
        self.world.now = next.max(plus_seconds(now, 1));
    }

    fn mint(&mut self) -> ContainerId {
        self.minted += 1;
        container(&format!("c-new{:04}", self.minted))
    }

    fn row(&mut self, id: &ContainerId) -> &mut Tracked {
        self.world.rows.iter_mut().find(|r| r.id == *id).expect("a plan names only rows that exist")
    }

    fn perform(&mut self, action: &Action, fault: Fault) {
        let now = self.world.now;
        match action {
            Action::Record { id, expect, observed, .. } => {
                let row = self.row(id);
                assert_eq!(row.state, *expect, "{action}");
                write(row, observed);
            }
            Action::Register { found, .. } => {
                let id = found.id.clone().unwrap_or_else(|| self.mint());
                let taken =
                    |r: &Tracked| r.id == id || r.sandbox_id.as_ref() == Some(&found.sandbox.sandbox_id);
                assert!(!self.world.rows.iter().any(taken), "the store refuses a second row: {action}");
                let mut new = row(id, found.observed.state, found.created_at);
                new.suspected_at = Some(found.suspected_at);
                new.task_id = found.sandbox.tags.task.clone();
                write(&mut new, &found.observed);
                self.world.rows.push(new);
            }
            Action::Foreign { sandbox, .. } => {
                self.world.known_foreign.insert(sandbox.sandbox_id.clone());
            }
            Action::ForeignGone { sandbox_id } => {
                self.world.known_foreign.remove(sandbox_id);
            }
            Action::Desire { id, reason, grace_seconds, .. } => {
                let row = self.row(id);
                if row.desired == Desired::Running && row.state.is_active() {
                    row.desired = Desired::Terminated;
                    row.desired_at = Some(now);
                    row.desired_reason = Some(*reason);
                    row.stop_grace_seconds = Some(*grace_seconds);
                }
            }
            Action::Create { id, attempt } => self.create(id, *attempt, fault),
            Action::CreateLost { id, observed, .. } => {
                let successor = row(self.mint(), ContainerState::Created, now);
                let lost = self.row(id);
                assert_eq!(lost.state, ContainerState::Created);
                write(lost, observed);
                self.world.rows.push(successor);
            }
            Action::Stop { id, sandbox_id, attempt, .. } => {
                let row = self.row(id);
                assert_eq!(row.stop_attempts + 1, *attempt, "{action}");
                row.stop_attempts = *attempt;
                row.stop_attempted_at = Some(now);
                row.stop_seen_at = row.stop_seen_at.or(Some(now));
                row.stop_error = (fault == Fault::Refusing).then(|| "refused".to_owned());
                if fault != Fault::Refusing {
                    row.stopping_at = row.stopping_at.or(Some(now));
                }
                if fault == Fault::Refusing {
                    return;
                }
                for sandbox in &mut self.sandboxes {
                    let named = match sandbox_id {
                        Some(known) => sandbox.sandbox_id == *known,
                        None => sandbox.tags.container == *id && sandbox.tags.instance == OURS,
                    };
                    if named && !matches!(sandbox.phase, Phase::Exited(_)) {
                        sandbox.phase = Phase::Exited(exit(Some(143), Some(now)));
                    }
                }
            }
            Action::AlertSilent { id, .. } => self.row(id).silent_alerted_at = Some(now),
            Action::Announce { .. } => {}
        }
    }

    fn create(&mut self, id: &ContainerId, attempt: i64, fault: Fault) {
        let now = self.world.now;
        let row = self.row(id);
        assert_eq!((row.create_attempts + 1, row.state), (attempt, ContainerState::Created));
        if row.desired == Desired::Terminated {
            return;
        }
        row.create_attempts = attempt;
        row.create_attempted_at = Some(now);
        let same = |s: &Sandbox| s.tags.container == *id && s.tags.instance == OURS;
        if self.world.create_is_idempotent
            && (self.sandboxes.iter().any(same) || self.late.iter().any(|(_, s)| same(s)))
        {
            return;
        }
        let made = sandbox(&format!("sb-{id}-{attempt}"), id, Phase::Running, now);
        match fault {
            Fault::LostRequest => {}
            // A provider that is said to be settled after so long is; a late one comes after that.
            Fault::Late => self.late.push((6, made)),
            Fault::LostReply => self.sandboxes.push(made),
            _ => {
                let row = self.row(id);
                row.sandbox_id = Some(made.sandbox_id.clone());
                row.provider_identity =
                    Some(if fault == Fault::Elsewhere { "engine-2" } else { ENGINE }.to_owned());
                if fault != Fault::Elsewhere {
                    self.sandboxes.push(made);
                }
            }
        }
    }

    /// Nothing more will appear by itself.
    pub(super) fn is_settled(&self) -> bool {
        self.late.is_empty()
    }
}

fn write(row: &mut Tracked, observed: &Observed) {
    let Observed {
        state,
        provider_identity,
        sandbox_id,
        started_at,
        terminated_at,
        exit_code,
        termination_reason,
        stop_confirmed_at,
        region,
        resources,
        cost_accrued_usd,
        cost_rate_per_hour,
        cost_source,
    } = observed.clone();
    row.state = state;
    row.provider_identity = provider_identity;
    row.sandbox_id = sandbox_id;
    row.started_at = started_at;
    row.terminated_at = terminated_at;
    row.exit_code = exit_code;
    row.termination_reason = termination_reason;
    row.stop_confirmed_at = stop_confirmed_at;
    row.region = region;
    row.resources = resources;
    row.cost_accrued_usd = cost_accrued_usd;
    row.cost_rate_per_hour = cost_rate_per_hour;
    row.cost_source = cost_source;
}

/// One row, one sandbox, or both; a twin is a sandbox with the tag of the one before.
#[derive(Debug, Clone)]
struct Unit {
    row: Option<Recorded>,
    phase: Option<u8>,
    twin: bool,
    foreign: bool,
    age: i64,
}

#[derive(Debug, Clone)]
struct Recorded {
    state: ContainerState,
    knows_sandbox: bool,
    desired: Desired,
    attempts: i64,
    stops: i64,
    heard: Option<i64>,
    health: Health,
    keep: bool,
}

fn recorded() -> impl Strategy<Value = Recorded> {
    (
        prop::sample::select(ContainerState::ALL),
        any::<bool>(),
        prop::sample::select(&[Desired::Running, Desired::Running, Desired::Terminated][..]),
        0i64..7,
        0i64..4,
        prop::option::of(prop::sample::select(&[5i64, 400, 18_000][..])),
        prop::sample::select(Health::ALL),
        any::<bool>(),
    )
        .prop_map(|(state, knows_sandbox, desired, attempts, stops, heard, health, keep)| Recorded {
            state,
            knows_sandbox,
            desired,
            attempts,
            stops,
            heard,
            health,
            keep,
        })
}

fn unit() -> impl Strategy<Value = Unit> {
    (
        prop::option::weighted(0.8, recorded()),
        prop::option::weighted(0.7, 0u8..6),
        prop::bool::weighted(0.15),
        prop::bool::weighted(0.15),
        prop::sample::select(&[3i64, 100, 600, 7200][..]),
    )
        .prop_map(|(row, phase, twin, foreign, age)| Unit { row, phase, twin, foreign, age })
}

pub(super) fn model() -> impl Strategy<Value = Model> {
    let silent_hours = prop::sample::select(&[0.05, 1.0, 4.0][..]);
    let settings = (any::<bool>(), any::<bool>(), prop::sample::select(&[1u64, 2, 100][..]), silent_hours);
    let provider = (any::<bool>(), prop::sample::select(&[0i64, 5, 30][..]), any::<bool>(), any::<bool>());
    (prop::collection::vec(unit(), 0..9), settings, provider).prop_map(|(units, settings, provider)| {
        let mut world = World::new();
        (
            world.settings.auto_terminate_orphans,
            world.settings.auto_terminate_stale,
            world.settings.max_reconcile_batch,
            world.settings.max_silent_hours,
        ) = settings;
        let (idempotent, settles, priced, watched) = provider;
        world.create_is_idempotent = idempotent;
        world.create_settles_seconds = settles;
        world.prices = flat(if priced { 3.6 } else { 0.0 });
        world.observer_seconds = if watched { 1e6 } else { 0.0 };
        let mut model = Model { world, sandboxes: vec![], late: vec![], minted: 0 };
        let mut before: Option<&Unit> = None;
        for (i, unit) in units.iter().enumerate() {
            // Which of two twins an intent stands for is settled when one of them is seen at work: until then
            // it could be either, and no property can say more.
            let open = before.is_some_and(|b| b.row.is_some() && matches!(b.phase, Some(0 | 5)));
            let mut unit = unit.clone();
            unit.twin &= i > 0 && !open;
            model.add(i, &unit);
            before = units.get(i);
        }
        model
    })
}

impl Model {
    fn add(&mut self, i: usize, unit: &Unit) {
        let id = container(&format!("c-row{i:04}"));
        let name = format!("sb-{i}");
        let ago = |seconds: i64| plus_seconds(now(), -seconds);
        let created_at = ago(unit.age);
        if let Some(phase) = unit.phase {
            let phase = match phase {
                0 => Phase::Starting,
                1 | 2 => Phase::Running,
                3 => Phase::Exited(exit(Some(3), Some(ago(2)))),
                4 => Phase::Broken { reason: TerminationReason::SupervisorLost },
                _ => Phase::Unknown { why: "shared file system".into() },
            };
            let tag = if unit.twin { container(&format!("c-row{:04}", i - 1)) } else { id.clone() };
            let mut made = sandbox(&name, &tag, phase, created_at);
            if unit.foreign {
                made.tags.instance = "other".into();
            }
            self.sandboxes.push(made);
        }
        let Some(known) = unit.row.as_ref().filter(|_| !unit.twin && !unit.foreign) else { return };
        let mut row = row(id, known.state, created_at);
        // Whatever is neither an intent nor over has been seen.
        let may_not_know = matches!(known.state, ContainerState::Created | ContainerState::Terminated);
        if known.knows_sandbox || !may_not_know {
            row.sandbox_id = Some(name);
            row.provider_identity = Some(ENGINE.into());
        }
        if known.state == ContainerState::Created {
            // The attempt is claimed before the provider is asked: no sandbox is older than its claim.
            let asked = row.sandbox_id.is_some() || unit.phase.is_some();
            row.create_attempts = if asked { known.attempts.max(1) } else { known.attempts };
            row.create_attempted_at = (row.create_attempts > 0).then(|| ago(unit.age.min(20)));
        } else {
            row.started_at = row.sandbox_id.as_ref().map(|_| created_at);
            row.health = known.health;
            row.last_heartbeat_at = known.heard.map(|s| ago(s.min(unit.age)));
            row.cost_rate_per_hour = Some(self.world.prices.rate_per_hour(PROVIDER, &row.resources, now()));
        }
        if matches!(known.state, ContainerState::Unknown | ContainerState::Orphaned) {
            row.suspected_at = Some(created_at);
        }
        if matches!(known.state, ContainerState::Stopped | ContainerState::Terminated) {
            row.terminated_at = Some(ago(1));
            row.termination_reason = Some(match (known.state, row.sandbox_id.is_some()) {
                (ContainerState::Stopped, _) => TerminationReason::Manual,
                (_, true) => TerminationReason::External,
                (_, false) => TerminationReason::CreateLost,
            });
        }
        row.keep = known.keep;
        row.desired = known.desired;
        if known.desired == Desired::Terminated {
            row.desired_at = Some(ago(3));
            row.desired_reason = Some(TerminationReason::Manual);
            row.stop_attempts = known.stops;
            row.stop_attempted_at = (known.stops > 0).then(|| ago(2));
        }
        self.world.rows.push(row);
    }

    /// Every live sandbox of ours with how many rows stand for it.
    pub(super) fn rows_of_the_living(&self) -> Vec<(&Sandbox, usize)> {
        let living = self.sandboxes.iter().filter(|s| s.tags.instance == OURS && s.phase.is_alive());
        living
            .map(|s| {
                let rows = &self.world.rows;
                let named = rows.iter().filter(|r| r.sandbox_id.as_ref() == Some(&s.sandbox_id)).count();
                // An intent does not know its sandbox yet: its tag does, unless that is a twin with its own row.
                let waited_for = |r: &&Tracked| {
                    r.sandbox_id.is_none() && r.state == ContainerState::Created && r.id == s.tags.container
                };
                let count = if named > 0 { named } else { rows.iter().filter(waited_for).count() };
                (s, count)
            })
            .collect()
    }

    /// The same view in maps that iterate in another order.
    pub(super) fn shuffled(world: &World) -> World {
        let mut again = world.clone();
        again.inspected =
            world.inspected.iter().map(|(k, v)| (k.clone(), v.clone())).collect::<HashMap<_, _>>();
        again.known_foreign = world.known_foreign.iter().cloned().collect::<HashSet<_>>();
        again
    }
}
