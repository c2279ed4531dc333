//! What holds in every world. Each property walks generated worlds through passes with faults.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use proptest::prelude::*;

use super::model::{FAULTS, Fault, Model, Step, belongs, model};
use super::world::{OURS, RESUMPTION_SECONDS, World};
use crate::ids::ContainerId;
use crate::reconcile::{Action, Answer, Inspected};
use crate::sandbox::Phase;
use crate::state::{ContainerState, Desired, Health, TerminationReason};
use crate::time::seconds_between;

/// Passes without a fault after which everything that can happen has happened.
const PASSES: usize = 80;

fn faults() -> impl Strategy<Value = Vec<Fault>> {
    prop::collection::vec(prop::sample::select(FAULTS), 1..8)
}

/// Passes under the faults; `check` sees each decision, and the world before and after it.
fn walk(
    mut model: Model,
    faults: &[Fault],
    mut check: impl FnMut(&Step, &Model, &Model) -> Result<(), TestCaseError>,
) -> Result<Model, TestCaseError> {
    for &fault in faults {
        let step = model.observe(fault);
        let before = model.clone();
        model.apply(&step.plan, fault);
        check(&step, &before, &model)?;
    }
    Ok(model)
}

fn settle(mut model: Model) -> Result<Model, TestCaseError> {
    let mut log = String::new();
    for _ in 0..PASSES {
        let step = model.observe(Fault::None);
        let quiet = step.plan.actions.is_empty() && !step.plan.busy && step.plan.wake_at.is_none();
        if quiet && model.is_settled() {
            return Ok(model);
        }
        log = format!("{}: {}", model.world.now, step.plan);
        model.apply(&step.plan, Fault::None);
    }
    Err(TestCaseError::fail(format!("no rest after {PASSES} passes; the last one: {log}")))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// (a) and (b): whatever the beginning and the faults, it comes to rest, and rest is what it should be.
    #[test]
    fn plan_and_apply_come_to_rest_where_they_should(model in model(), faults in faults()) {
        let model = settle(walk(model, &faults, |_, _, _| Ok(()))?)?;
        let step = model.observe(Fault::None);
        prop_assert!(step.plan.actions.is_empty(), "{}", step.plan);
        prop_assert_eq!(&step.plan.memory, &model.world.memory);
        for row in &model.world.rows {
            let sandbox = model.sandboxes.iter().find(|s| s.tags.instance == OURS && belongs(row, s));
            let elsewhere = row.provider_identity.as_deref() == Some("engine-2");
            let cannot_tell = sandbox.is_some_and(|s| matches!(s.phase, Phase::Unknown { .. }));
            if row.desired == Desired::Terminated && !elsewhere {
                prop_assert_eq!(row.state, ContainerState::Terminated, "it had to end: {:?}", row);
            }
            if row.state == ContainerState::Created {
                prop_assert!(elsewhere || cannot_tell, "an intent is carried out or closed: {:?}", row);
            }
            prop_assert!(row.state != ContainerState::Stopped || cannot_tell || elsewhere, "{:?}", row);
        }
        for (sandbox, rows) in model.rows_of_the_living() {
            prop_assert_eq!(rows, 1, "{:?}", sandbox);
            prop_assert!(!matches!(sandbox.phase, Phase::Broken { .. }), "swept: {:?}", sandbox);
        }
    }

    /// (a) Once at rest, neither a failed nor a doubled listing, nor a mute provider, moves anything. (An
    /// intent that nobody has acted on may be carried out whatever the listing.)
    #[test]
    fn a_converged_world_plans_nothing(model in model()) {
        let model = settle(model)?;
        for fault in [Fault::None, Fault::Double, Fault::Partial, Fault::Mute, Fault::Lying, Fault::Crowded, Fault::Unreachable] {
            let step = model.observe(fault);
            let harmless = |a: &&Action| {
                matches!(a, Action::Announce { .. } | Action::ForeignGone { .. } | Action::Create { attempt: 1, .. })
            };
            let moves: Vec<_> = step.plan.actions.iter().filter(|a| !harmless(a)).collect();
            prop_assert!(moves.is_empty(), "{:?}:\n{}", fault, step.plan);
        }
    }

    /// (c) Neither absence from a listing that failed or is partial, nor an unanswered inspection, ends a row
    /// or repeats a create.
    #[test]
    fn silence_concludes_nothing(model in model(), faults in faults(), silent in prop::sample::select(
        &[Fault::Unreachable, Fault::Partial, Fault::Mute, Fault::Crowded, Fault::Elsewhere][..]
    )) {
        let mut faults = faults;
        faults.push(silent);
        walk(model, &faults, |step, _, _| {
            let complete = matches!(&step.seen.answer, Answer::Listed(l) if l.complete);
            for action in &step.plan.actions {
                let (id, ends) = match action {
                    Action::Record { id, observed, .. } => {
                        (id, matches!(observed.state, ContainerState::Terminated | ContainerState::Stopped))
                    }
                    Action::CreateLost { id, .. } => (id, true),
                    Action::Create { id, .. } => (id, true),
                    _ => continue,
                };
                let row = step.row(id);
                let never_asked = row.state == ContainerState::Created && row.create_attempts == 0;
                if ends && !never_asked && step.listed_for(row).is_none() {
                    let same = matches!(&step.seen.answer, Answer::Listed(l)
                        if row.provider_identity.as_ref().is_none_or(|i| *i == l.identity));
                    prop_assert!(same, "{action} by the word of another provider");
                    prop_assert!(complete, "{action}");
                    let inspected = step.seen.inspected.get(id);
                    let told = matches!(inspected, Some(Inspected::Absent | Inspected::Present(_)));
                    prop_assert!(told, "{action} without the provider's word");
                }
            }
            Ok(())
        })?;
    }

    /// (d) What is over stays over, unless its sandbox is alive; and a lost create is never revived.
    #[test]
    fn terminated_stays_terminated_unless_alive(model in model(), faults in faults()) {
        walk(model, &faults, |step, before, after| {
            for old in before.world.rows.iter().filter(|r| r.state == ContainerState::Terminated) {
                let new = after.world.rows.iter().find(|r| r.id == old.id).unwrap();
                if new == old {
                    continue;
                }
                let alive = before.sandboxes.iter().any(|s| belongs(old, s) && s.phase.is_alive());
                prop_assert!(alive, "{:?}\n{}", old, step.plan);
                prop_assert_eq!(new.state, ContainerState::Running);
                let replaced = old.termination_reason == Some(TerminationReason::CreateLost)
                    && old.desired == Desired::Running;
                prop_assert!(!(replaced && old.sandbox_id.is_none()), "a twin of its successor: {:?}", new);
            }
            Ok(())
        })?;
    }

    /// (e) Only what must end is stopped; what is foreign, never.
    #[test]
    fn only_what_must_end_is_stopped(model in model(), faults in faults()) {
        walk(model, &faults, |step, before, after| {
            for action in &step.plan.actions {
                if let Action::Stop { id, sandbox_id, .. } = action {
                    let row = step.row(id);
                    prop_assert_eq!(row.desired, Desired::Terminated, "{}", action);
                    prop_assert_eq!(sandbox_id, &row.sandbox_id);
                }
            }
            let foreign = |m: &Model| -> Vec<_> {
                m.sandboxes.iter().filter(|s| s.tags.instance != OURS).cloned().collect()
            };
            prop_assert_eq!(foreign(before), foreign(after));
            Ok(())
        })?;
    }

    /// (f) Every change of state is a legal move, and is told with both values.
    #[test]
    fn every_move_is_legal_and_told(model in model(), faults in faults()) {
        walk(model, &faults, |step, _, _| {
            for action in &step.plan.actions {
                let (id, observed, events) = match action {
                    Action::Record { id, observed, events, expect } => {
                        prop_assert_eq!(*expect, step.row(id).state);
                        (id, observed, events.clone())
                    }
                    Action::CreateLost { id, observed, event } => (id, observed, vec![event.clone()]),
                    _ => continue,
                };
                let row = step.row(id);
                if observed.state == row.state {
                    continue;
                }
                prop_assert!(row.state.to(observed.state).is_ok(), "{action}");
                let told = events.iter().any(|e| {
                    e.container_id.as_deref() == Some(id.as_str())
                        && e.old_value.as_deref() == Some(row.state.as_str())
                        && e.new_value.as_deref() == Some(observed.state.as_str())
                });
                prop_assert!(told, "{action}: {events:?}");
                if observed.state == ContainerState::Terminated {
                    prop_assert!(observed.terminated_at.is_some() && observed.termination_reason.is_some());
                    prop_assert!(observed.terminated_at <= Some(step.seen.now));
                }
            }
            Ok(())
        })?;
    }

    /// (g) At most one mutation and one record per container, and never more mutations than the batch.
    #[test]
    fn mutations_are_few_and_single(model in model(), faults in faults()) {
        walk(model, &faults, |step, _, _| {
            let mut records: HashSet<&ContainerId> = HashSet::new();
            let mut mutations: HashMap<&ContainerId, usize> = HashMap::new();
            for action in &step.plan.actions {
                match action {
                    Action::Create { id, .. } | Action::Stop { id, .. } => *mutations.entry(id).or_default() += 1,
                    Action::Record { id, .. } | Action::CreateLost { id, .. } => {
                        prop_assert!(records.insert(id), "two records of {id}:\n{}", step.plan);
                    }
                    _ => {}
                }
            }
            prop_assert!(mutations.values().all(|n| *n == 1), "{}", step.plan);
            prop_assert!(mutations.len() as u64 <= step.seen.settings.max_reconcile_batch);
            Ok(())
        })?;
    }

    /// (h) After a pass that saw everything, each living sandbox of ours has exactly one row; after any other,
    /// none has two.
    #[test]
    fn each_living_sandbox_has_one_row(model in model(), faults in faults()) {
        let model = walk(model, &faults, |step, _, after| {
            for (sandbox, rows) in after.rows_of_the_living() {
                let seen = step.listed().iter().any(|s| s.sandbox_id == sandbox.sandbox_id);
                prop_assert!(rows == 1 || (rows == 0 && !seen), "{} rows for {:?}\n{}", rows, sandbox, step.plan);
            }
            Ok(())
        })?;
        walk(model, &[Fault::None], |step, _, after| {
            for (sandbox, rows) in after.rows_of_the_living() {
                let arrived = !step.listed().iter().any(|s| s.sandbox_id == sandbox.sandbox_id);
                prop_assert!(rows == 1 || arrived, "{} rows for {:?}\n{}", rows, sandbox, step.plan);
            }
            Ok(())
        })?;
    }

    /// (i) The same view gives the same plan, in whatever order its maps iterate.
    #[test]
    fn the_same_view_gives_the_same_plan(model in model(), faults in faults()) {
        walk(model, &faults, |step, _, _| {
            prop_assert_eq!(&step.plan, &step.seen.plan());
            prop_assert_eq!(&step.plan, &Model::shuffled(&step.seen).plan());
            Ok(())
        })?;
    }

    /// (j) Whoever a policy wants to end is what that policy is about.
    #[test]
    fn a_policy_ends_only_what_it_is_about(model in model(), faults in faults()) {
        walk(model, &faults, |step, _, _| {
            let World { now, settings, observer_seconds, .. } = &step.seen;
            for action in &step.plan.actions {
                let Action::Desire { id, reason, .. } = action else { continue };
                let row = step.row(id);
                prop_assert_eq!(row.desired, Desired::Running, "{}", action);
                let since = [row.last_heartbeat_at, row.started_at, row.suspected_at, row.create_attempted_at];
                let silent = |at: Timestamp| seconds_between(at, *now);
                let listened = *observer_seconds >= RESUMPTION_SECONDS;
                let right = match reason {
                    TerminationReason::OrphanCleanup => {
                        settings.auto_terminate_orphans && row.state == ContainerState::Orphaned
                    }
                    TerminationReason::Stale => {
                        settings.auto_terminate_stale
                            && listened
                            && !row.keep
                            && matches!(row.health, Health::Unhealthy | Health::Dead)
                            && row.last_heartbeat_at.is_none_or(|at| {
                                silent(at) >= settings.stale_threshold_seconds as f64
                            })
                    }
                    TerminationReason::Silent => {
                        listened
                            && !row.keep
                            && (row.health == Health::Dead || row.state == ContainerState::Created)
                            && since.into_iter().flatten().all(|at| silent(at) >= settings.max_silent_hours * 3600.0)
                    }
                    // Its supervisor's end is no policy.
                    TerminationReason::SupervisorLost => {
                        let inspected = match step.seen.inspected.get(id) {
                            Some(Inspected::Present(sandbox)) => Some(&**sandbox),
                            _ => None,
                        };
                        let shown = step.listed_for(row).or(inspected);
                        shown.is_some_and(|sandbox| matches!(sandbox.phase, Phase::Broken { .. }))
                    }
                    _ => false,
                };
                prop_assert!(right, "{} of {:?}", action, row);
            }
            Ok(())
        })?;
    }
}
