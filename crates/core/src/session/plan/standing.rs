//! How a session stands: what its sub-sessions do, and whether it runs, is blocked or is over.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{Blocked, Patch, Planner, State, Step, is_failing, patch_of};
use crate::cascade::Phase;
use crate::cascade::template::{self, TemplateError};
use crate::session::{PhaseStatus, SessionStatus, WaitStatus};

impl Planner<'_> {
    pub(super) fn advance_child(&mut self, state: &mut State, place: usize, phase: &Phase) {
        let id = state.phases.get(&place).and_then(|row| row.child_session_id.clone());
        let Some(id) = id else { return };
        let facts = self.facts;
        let Some(child) = facts.children.get(&id) else {
            self.alive += 1;
            return;
        };
        match child.status {
            SessionStatus::Completed => {
                let given = facts.levels.get(&place).and_then(|level| level.outputs.as_ref());
                let nature =
                    given.map_or_else(|| json!({}), |all| Value::Object(all.clone().into_iter().collect()));
                match self.outputs_of(state, &phase.outputs, nature.clone(), &[("result", nature)]) {
                    Ok(outputs) => self.end_phase(state, place, PhaseStatus::Completed, outputs, None),
                    Err(error) => self.fail(state, place, format!("an output cannot be made: {error}")),
                }
            }
            SessionStatus::Error => {
                let why = child.error.as_deref().unwrap_or("it failed");
                self.fail(state, place, format!("{id}: {why}"));
            }
            SessionStatus::Cancelled => self.fail(state, place, format!("{id} was cancelled")),
            status => {
                self.alive += 1;
                if is_failing(state) && !child.cancel_requested {
                    self.steps.push(Step::CancelChild { child: id.clone() });
                }
                let why = match (&child.blocked_on, status) {
                    (Some(on), SessionStatus::Blocked) => format!("blocked on {on}"),
                    _ => status.to_string(),
                };
                self.waiting.push(format!("phase {}: {id} is {why}", phase.name));
            }
        }
    }

    pub(super) fn settle(&mut self, state: &mut State) -> Patch {
        let mut patch = patch_of(&state.session);
        let running = |state: &State| {
            state.phases.values().find(|row| row.status == PhaseStatus::Running).map(|row| row.name.clone())
        };
        let failed = state.phases.values().find(|row| row.status == PhaseStatus::Failed);
        let failed = failed.map(|row| (row.name.clone(), row.error.clone().unwrap_or_default()));
        if let Some((name, message)) = failed {
            if self.alive == 0 && self.facts.open.is_empty() && self.wants_output.is_empty() {
                let rest: Vec<usize> = state
                    .phases
                    .iter()
                    .filter(|(_, row)| row.status == PhaseStatus::Running)
                    .map(|(place, _)| *place)
                    .collect();
                for place in rest {
                    self.withdraw_phase(state, place);
                    self.end_phase(state, place, PhaseStatus::Cancelled, json!({}), None);
                }
                patch.status = SessionStatus::Error;
                patch.blocked = None;
                patch.current_phase = Some(name.clone());
                patch.error_message = Some(message);
                patch.error_phase = Some(name);
                patch.completed_at = Some(self.now);
                return patch;
            }
            self.waiting.push(format!("phase {name} has failed; what still runs is waited for"));
        } else if state.phases.len() == self.cascade.phases.len()
            && state.phases.values().all(|row| row.status.is_passed())
        {
            return self.completed(state, patch);
        } else if state.phases.values().any(|row| row.status == PhaseStatus::Cancelled) && self.alive == 0 {
            // Only a cancelled session has these; a record that says otherwise is not gone on with.
            patch.status = SessionStatus::Error;
            patch.error_message = Some("a phase was cancelled".to_owned());
            patch.completed_at = Some(self.now);
            return patch;
        }
        patch.current_phase = running(state).or(patch.current_phase);
        let oldest = self.oldest_wait();
        match oldest {
            Some(blocked) if self.alive == 0 && self.wants_output.is_empty() => {
                patch.status = SessionStatus::Blocked;
                let same = patch.blocked.as_ref().is_some_and(|earlier| {
                    (earlier.kind, &earlier.on, &earlier.description)
                        == (blocked.kind, &blocked.on, &blocked.description)
                });
                if !same {
                    patch.blocked = Some(blocked);
                }
            }
            _ => {
                patch.status = SessionStatus::Running;
                patch.blocked = None;
            }
        }
        patch
    }

    /// Of those that opened together the one that a person can end, then the one of the first phase: whoever looks twice is
    /// told the same, and whatever was told is not told again.
    pub(super) fn oldest_wait(&self) -> Option<Blocked> {
        let several = self.facts.waits.len() + self.opened.len() > 1;
        let phases = self.cascade.phases.iter().enumerate().filter(|_| several);
        let places: HashMap<&str, usize> =
            phases.map(|(place, phase)| (phase.name.as_str(), place)).collect();
        let open = self
            .facts
            .waits
            .iter()
            .filter(|wait| wait.status == WaitStatus::Open && !self.closed.contains(&wait.id));
        let open = open.map(|wait| {
            let blocked = Blocked {
                kind: wait.wait_type,
                on: wait.wait_on.clone(),
                description: wait.description.clone(),
                since: wait.since,
                timeout_at: wait.deadline,
            };
            let place = places.get(wait.phase.as_str()).copied().unwrap_or(usize::MAX);
            (place, wait.task_id.clone(), blocked)
        });
        let all = open.chain(self.opened.iter().cloned());
        all.min_by_key(|(place, task, blocked)| {
            (blocked.since, !blocked.kind.is_for_a_person(), *place, task.clone())
        })
        .map(|(_, _, blocked)| blocked)
    }

    pub(super) fn completed(&mut self, state: &State, mut patch: Patch) -> Patch {
        patch.blocked = None;
        patch.completed_at = Some(self.now);
        let made: Result<serde_json::Map<_, _>, TemplateError> = self
            .cascade
            .outputs
            .iter()
            .map(|(name, wanted)| Ok((name.clone(), template::value(wanted, &state.scope)?)))
            .collect();
        match made {
            Ok(outputs) => {
                if !outputs.is_empty() {
                    self.steps.push(Step::Outputs { outputs: Value::Object(outputs) });
                }
                patch.status = SessionStatus::Completed;
            }
            Err(error) => {
                patch.status = SessionStatus::Error;
                patch.error_message = Some(format!("an output of the session cannot be made: {error}"));
            }
        }
        patch
    }
}
