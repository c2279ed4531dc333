//! One intent, one sandbox, under whatever ids it was asked for: what succeeds a lost create has another id. A sandbox that
//! arrives later than its provider says that it can, after its intent was given up, is nobody's.

use std::collections::{HashMap, HashSet};

use parhelia_core::event::{Event, EventType};
use parhelia_core::reconcile::Tracked;
use parhelia_core::state::ContainerState;
use parhelia_core::time::plus_seconds;
use parhelia_providers::fake::{FakeSandbox, World};

use crate::invariants::Moment;

#[derive(Debug, Default)]
pub(crate) struct Intents {
    /// In whose place each successor came.
    places: HashMap<String, String>,
    given_up: HashSet<String>,
    /// The sandboxes that arrive too late to be waited for.
    late: HashSet<String>,
}

impl Intents {
    pub(crate) fn hear(&mut self, event: &Event) {
        let Some(id) = &event.container_id else { return };
        if event.event_type == EventType::CreateLost {
            self.given_up.insert(id.clone());
        }
        if let Some(lost) = event.details["successor_of"].as_str() {
            self.places.insert(id.clone(), lost.to_owned());
        }
    }

    pub(crate) fn check<'r>(
        &mut self,
        world: &World,
        row_of: impl Fn(&str) -> Option<&'r Tracked>,
        now: &Moment,
    ) -> Result<(), String> {
        // Seen in the step in which it was made.
        let settled = plus_seconds(now.wall, i64::from(world.create_settles_seconds));
        for sandbox in world.sandboxes.iter().filter(|s| s.visible_at > settled) {
            if !self.late.contains(&sandbox.sandbox_id) {
                self.late.insert(sandbox.sandbox_id.clone());
            }
        }
        if self.given_up.is_empty() {
            return Ok(());
        }
        let alive = |s: &&FakeSandbox| s.ended_at.is_none() && !s.removed && s.visible_at <= now.wall;
        let mut waited_for: HashMap<&str, &str> = HashMap::new();
        for sandbox in world.sandboxes.iter().filter(alive) {
            let (sandbox_id, id) = (sandbox.sandbox_id.as_str(), sandbox.tags.container.as_str());
            let lost = self.given_up.contains(id);
            if lost && let Some(row) = row_of(sandbox_id) {
                is_nobodys(sandbox_id, id, row)?;
            }
            if lost && self.late.contains(sandbox_id) {
                continue;
            }
            if let Some(other) = waited_for.insert(self.intent(id), sandbox_id) {
                return Err(format!("{other} and {sandbox_id} ({id}) live for one intent"));
            }
        }
        Ok(())
    }

    /// The id under which it was first asked for.
    fn intent<'i>(&'i self, mut id: &'i str) -> &'i str {
        while let Some(lost) = self.places.get(id) {
            id = lost;
        }
        id
    }
}

/// It has a record of its own, in which nobody wants it.
fn is_nobodys(sandbox_id: &str, lost: &str, row: &Tracked) -> Result<(), String> {
    let wanted = matches!(row.state, ContainerState::Created | ContainerState::Running);
    if wanted || row.id.as_str() == lost {
        return Err(format!("{sandbox_id} came after {lost} was given up, and {} is {}", row.id, row.state));
    }
    Ok(())
}
