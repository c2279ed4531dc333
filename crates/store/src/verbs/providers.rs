//! What the reconciler remembers between two passes, and the record of each pass.

use jiff::Timestamp;
use parhelia_core::event::NewEvent;
use parhelia_core::reconcile::ProviderMemory;

use super::containers::text_json;
use super::text_of;
use crate::error::Result;
use crate::script::{Script, Value, params};
use crate::types::{Cycle, CycleOutcome, Fence, NewCycle};
use crate::{Store, row, sql};

impl From<CycleOutcome> for Value {
    fn from(outcome: CycleOutcome) -> Self {
        Value::Word(outcome.as_str())
    }
}

impl Store {
    /// What is remembered of a provider; nothing, when it was never looked at.
    pub async fn provider_memory(&self, name: &str) -> Result<ProviderMemory> {
        let memory = self.query_one(&sql::PROVIDER_MEMORY, params![name], row::provider_memory).await?;
        Ok(memory.unwrap_or_default())
    }

    /// A pass with what it remembers and announces, in one step.
    pub async fn save_cycle(
        &self,
        fence: &Fence,
        name: &str,
        memory: &ProviderMemory,
        cycle: &NewCycle,
        events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<()> {
        let now = text_of(now);
        let mut script = Script::fenced("save_cycle", fence);
        script.one(
            &sql::PROVIDER_SAVE,
            params![
                name,
                memory.identity.as_ref(),
                memory.unreachable_since,
                memory.breaker_since,
                memory.breaker_agreed,
                memory.breaker_agreed_at,
                &now,
            ],
        );
        let counts = &cycle.counts;
        script.one(
            &sql::CYCLE_INSERT,
            params![
                name,
                &cycle.trigger,
                cycle.started_at,
                cycle.finished_at,
                cycle.duration_ms,
                cycle.outcome,
                cycle.error.as_ref(),
                counts.sandboxes,
                counts.rows,
                counts.suspected,
                counts.orphans,
                counts.adopted,
                counts.started,
                counts.terminated,
                counts.corrections,
                counts.foreign,
                cycle.actions,
                cycle.failures,
                text_json(&cycle.waiting)?,
                cycle.next_at,
            ],
        );
        script.events(events, &now);
        self.write(script).await.map(drop)
    }

    /// The latest passes over all providers, newest first.
    pub async fn last_cycles(&self, limit: i64) -> Result<Vec<Cycle>> {
        self.query(&sql::CYCLES, params![limit], row::cycle).await
    }

    pub async fn last_cycle(&self, provider: &str) -> Result<Option<Cycle>> {
        self.query_one(&sql::CYCLE_OF_PROVIDER, params![provider], row::cycle).await
    }
}
