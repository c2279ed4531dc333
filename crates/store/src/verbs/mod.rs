//! The verbs, by what they are about. Each builds one script, or reads. What they share is here: the fence,
//! the event, and the one shared text of `now`.

mod containers;
mod deliveries;
mod events;
mod foreign;
mod health;
mod heartbeats;
mod instances;
mod jobs;
mod owners;
mod projection;
mod providers;
mod reads;
mod retention;
mod session_reads;
mod session_script;
mod session_workers;
mod sessions;
mod stops;
mod tokens;
mod workers;

use std::sync::Arc;

use jiff::Timestamp;
use parhelia_core::event::NewEvent;
use parhelia_core::time;

use crate::script::{Script, StepOutcome, Value, params};
use crate::sql;
use crate::types::Fence;

pub use reads::PatientRow;
pub use session_reads::{InboxRow, SessionFilter, ShownSession, SignalFilter};
pub use sessions::{ChildRow, Done, NewSession, PhaseTasks, SessionValues, SessionWrite};

/// One text of `now` for all the steps of a script.
pub(crate) fn text_of(now: Timestamp) -> Arc<str> {
    Arc::from(time::to_text(now))
}

/// JSON as it is stored; the ordinary empty object is not worth an allocation.
pub(crate) fn json(value: &serde_json::Value) -> Value {
    match value.as_object() {
        Some(map) if map.is_empty() => Value::Word("{}"),
        _ => Value::Text(value.to_string()),
    }
}

impl Script {
    /// A script of a holder: it begins with the guard of contract 6, and fails as `Fenced`.
    pub(crate) fn fenced(name: &'static str, fence: &Fence) -> Self {
        let mut script = Script::new(name);
        let owner: Arc<str> = Arc::from(fence.owner_id.as_str());
        if fence.is_owners() {
            script.one(&sql::GUARD_OWNER, params![&owner]);
            script.writer = [Value::Shared(owner), Value::Null];
        } else {
            script.one(&sql::GUARD, params![&owner, fence.epoch]);
            script.writer = [Value::Shared(owner), Value::Int(fence.epoch)];
        }
        script
    }

    pub(crate) fn event(&mut self, event: NewEvent, now: &Arc<str>) {
        let params = self.event_params(event, now);
        self.step(&sql::EVENT, params);
    }

    pub(crate) fn events(&mut self, events: Vec<NewEvent>, now: &Arc<str>) {
        for event in events {
            self.event(event, now);
        }
    }

    /// An event that is written only if that earlier step changed a row.
    pub(crate) fn event_if(&mut self, changed: usize, event: NewEvent, now: &Arc<str>) {
        let params = self.event_params(event, now);
        self.step_if(changed, &sql::EVENT, params);
    }

    fn event_params(&self, event: NewEvent, now: &Arc<str>) -> Vec<Value> {
        let [owner, epoch] = self.writer.clone();
        params![
            now,
            event.event_type,
            event.container_id,
            event.worker_id,
            event.task_id,
            event.session_id,
            event.old_value,
            event.new_value,
            event.message,
            json(&event.details),
            event.source,
            owner,
            epoch,
        ]
    }
}

/// The first cell of the first row of a step, as an integer.
pub(crate) fn first_int(outcomes: &[StepOutcome], step: usize) -> Option<i64> {
    outcomes.get(step)?.rows.first()?.first()?.as_int()
}

pub(crate) fn first_text(outcomes: &[StepOutcome], step: usize) -> Option<&str> {
    outcomes.get(step)?.rows.first()?.first()?.as_text()
}

pub(crate) fn changed(outcomes: &[StepOutcome], step: usize) -> bool {
    outcomes.get(step).is_some_and(|outcome| outcome.touched > 0)
}
