//! Being cancelled: everything of a session is asked to end, and it says so once all of it is gone.

use serde_json::json;

use super::{AttemptEnd, Effect, Patch, Planner, Seen, State, Step, patch_of};
use crate::ids::WaitId;
use crate::session::{PhaseStatus, SessionStatus, WaitStatus};
use crate::state::TerminationReason;

/// What is ended has so long to end by itself, where nobody says otherwise.
pub const CANCEL_GRACE_SECONDS: i64 = 10;

impl Planner<'_> {
    pub(super) fn cancel(&mut self, state: &mut State) -> Patch {
        let facts = self.facts;
        let session = &state.session;
        let grace = if session.cancel_force {
            0
        } else {
            session.cancel_grace_seconds.unwrap_or(CANCEL_GRACE_SECONDS)
        };
        let reason = session.cancel_reason.clone().unwrap_or_else(|| "its session was cancelled".to_owned());
        let by = session.cancel_requested_by.clone().unwrap_or_else(|| "its session".to_owned());
        let force = session.cancel_force;
        for id in facts.waits.iter().filter(|w| w.status == WaitStatus::Open).map(|w| w.id.clone()) {
            self.withdraw(id);
        }
        let mut left = 0;
        let mut ending: Vec<&Seen> = Vec::new();
        for open in &facts.open {
            let seen = [open.main.as_ref(), open.verify.as_ref()];
            let living: Vec<&Seen> = seen.into_iter().flatten().filter(|seen| !seen.is_gone()).collect();
            if living.is_empty() {
                self.steps.push(Step::EndAttempt {
                    task: open.task.clone(),
                    attempt: open.attempt.attempt,
                    end: AttemptEnd::Cancelled,
                });
                continue;
            }
            left += 1;
            for seen in living {
                self.waiting.push(format!("{} of task {} is being ended", seen.container, open.task.key));
                ending.push(seen);
            }
        }
        for worker in facts.workers.iter().filter(|worker| !worker.is_gone()) {
            left += 1;
            self.waiting.push(format!("its worker {} is being ended", worker.container));
            ending.push(worker);
        }
        // Asked until it is seen; a later wish may only be more urgent.
        for seen in ending.into_iter().filter(|seen| seen.ends_sooner(grace)) {
            self.effects.push(Effect::Stop {
                container: seen.container.clone(),
                grace_seconds: grace,
                why: TerminationReason::Manual,
                reason: reason.clone(),
                by: by.clone(),
            });
        }
        for (id, child) in facts.children.iter().filter(|(_, child)| !child.status.is_over()) {
            left += 1;
            self.waiting.push(format!("{id} is being cancelled"));
            let sooner = child.cancel_grace_seconds.is_some_and(|given| given > grace);
            if !child.cancel_requested || sooner || (force && !child.cancel_force) {
                self.steps.push(Step::CancelChild { child: id.clone() });
            }
        }
        let mut patch = patch_of(&state.session);
        patch.cancel_seen_at = patch.cancel_seen_at.or(Some(self.now));
        patch.blocked = None;
        if patch.status == SessionStatus::Blocked {
            patch.status = SessionStatus::Running;
        }
        if left == 0 {
            let rest: Vec<usize> = state
                .phases
                .iter()
                .filter(|(_, row)| row.status == PhaseStatus::Running)
                .map(|(place, _)| *place)
                .collect();
            for place in rest {
                self.end_phase(state, place, PhaseStatus::Cancelled, json!({}), None);
            }
            patch.status = SessionStatus::Cancelled;
            patch.cancelled_at = Some(self.now);
            patch.completed_at = Some(self.now);
        }
        patch
    }

    pub(super) fn withdraw_phase(&mut self, state: &State, place: usize) {
        let Some(name) = state.phases.get(&place).map(|row| row.name.clone()) else { return };
        let open: Vec<WaitId> = self
            .facts
            .waits
            .iter()
            .filter(|wait| wait.phase == name && wait.status == WaitStatus::Open)
            .map(|wait| wait.id.clone())
            .collect();
        for id in open {
            self.withdraw(id);
        }
    }
}
