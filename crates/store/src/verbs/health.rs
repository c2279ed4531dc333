//! The health loop's columns: `health_status` and `consecutive_failures`, of containers and their workers.

use jiff::Timestamp;
use parhelia_core::event::{NewEvent, Source};
use parhelia_core::liveness::HealthChange;

use super::{changed, text_of};
use crate::error::Result;
use crate::script::{Script, params};
use crate::types::Fence;
use crate::{Store, sql};

impl Store {
    /// Moves containers along the ladder. A change whose container is no longer as the plan saw it, or is
    /// over, is left out together with its event. Gives how many were made.
    pub async fn apply_health(
        &self,
        fence: &Fence,
        changes: &[HealthChange],
        now: Timestamp,
    ) -> Result<usize> {
        if changes.is_empty() {
            return Ok(0);
        }
        let now = text_of(now);
        let mut script = Script::fenced("apply_health", fence);
        let mut made = Vec::with_capacity(changes.len());
        for change in changes {
            let step = script
                .step(&sql::APPLY_HEALTH, params![&change.id, change.from, change.to, change.missed, &now]);
            script.step_if(step, &sql::WORKERS_HEALTH, params![&change.id, change.to, &now]);
            let event = NewEvent::new(change.event, Source::HealthMonitor, change.message.clone())
                .container(&change.id)
                .task(change.task_id.as_deref())
                .change(change.from, change.to);
            script.event_if(step, event, &now);
            made.push(step);
        }
        let done = self.write(script).await?;
        Ok(made.into_iter().filter(|step| changed(&done, *step)).count())
    }
}
