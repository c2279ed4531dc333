//! The life of a container: its intent, its creation, and what the reconciler observes of it.

use std::sync::Arc;

use jiff::Timestamp;
use parhelia_core::access::Token;
use parhelia_core::event::NewEvent;
use parhelia_core::ids::ContainerId;
use parhelia_core::reconcile::Observed;
use parhelia_core::state::ContainerState;

use super::{json, text_of};
use crate::error::Result;
use crate::script::{Script, Value, params};
use crate::types::{Fence, NewContainer};
use crate::{Store, sql};

impl Store {
    /// Records an intent (contract 2): a `created` row that the reconciler will carry out. An id or a
    /// sandbox that has a row already is a `Conflict`.
    pub async fn register(&self, new: NewContainer, events: Vec<NewEvent>, now: Timestamp) -> Result<()> {
        let mut script = Script::new("register");
        insert_container(&mut script, new, events, &text_of(now))?;
        self.write(script).await.map(drop)
    }

    /// Claims the next attempt to create it at the provider that calls itself `identity`, before it is asked.
    /// `Conflict` when it was claimed
    /// already, is no longer an intent, or is no longer wanted.
    pub async fn claim_create(
        &self,
        fence: &Fence,
        id: &ContainerId,
        expected_attempts: i64,
        identity: &str,
        token: Option<&(Token, String)>,
        now: Timestamp,
    ) -> Result<()> {
        let mut script = Script::fenced("claim_create", fence);
        script.one(&sql::CLAIM_CREATE, params![id, expected_attempts, now, identity]);
        if let Some((token, hash)) = token {
            script.replace_token(id, token, hash);
        }
        self.write(script).await.map(drop)
    }

    /// What the provider called it. `Conflict` when it has another sandbox already.
    pub async fn record_created(
        &self,
        fence: &Fence,
        id: &ContainerId,
        sandbox_id: &str,
        identity: &str,
        now: Timestamp,
    ) -> Result<()> {
        let mut script = Script::fenced("record_created", fence);
        script.one(&sql::RECORD_CREATED, params![id, sandbox_id, identity, now]);
        self.write(script).await.map(drop)
    }

    /// What the reconciler observed. `Conflict` when the state is no longer the one that it decided from.
    /// The workers of a container that is now terminated end with it.
    pub async fn observe(
        &self,
        fence: &Fence,
        id: &ContainerId,
        expect: ContainerState,
        observed: &Observed,
        events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<()> {
        let now = text_of(now);
        let mut script = Script::fenced("observe", fence);
        observe_container(&mut script, id, expect, observed, &now);
        script.events(events, &now);
        self.write(script).await.map(drop)
    }

    /// A row for a sandbox that had none.
    pub async fn register_found(
        &self,
        fence: &Fence,
        new: NewContainer,
        events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<()> {
        let mut script = Script::fenced("register_found", fence);
        insert_container(&mut script, new, events, &text_of(now))?;
        self.write(script).await.map(drop)
    }

    /// Closes an intent whose outcome nobody knows and opens its successor, in one step: there is never a
    /// moment with two intents, or with none.
    #[allow(clippy::too_many_arguments)] // each is a column of one of the two rows, or guards them
    pub async fn create_lost(
        &self,
        fence: &Fence,
        id: &ContainerId,
        expect: ContainerState,
        observed: &Observed,
        event: NewEvent,
        successor: NewContainer,
        successor_events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<()> {
        let now = text_of(now);
        let mut script = Script::fenced("create_lost", fence);
        script.one(&sql::STILL_WANTED, params![id]);
        observe_container(&mut script, id, expect, observed, &now);
        script.event(event, &now);
        let successor_id = successor.id.clone();
        insert_container(&mut script, successor, successor_events, &now)?;
        script.step(&sql::JOB_MOVES, params![id, &successor_id]);
        script.move_attempt(id, &successor_id);
        self.write(script).await.map(drop)
    }
}

fn observe_container(
    script: &mut Script,
    id: &ContainerId,
    expect: ContainerState,
    observed: &Observed,
    now: &Arc<str>,
) {
    script.one(
        &sql::OBSERVE,
        params![
            id,
            expect,
            observed.state,
            observed.provider_identity.as_ref(),
            observed.sandbox_id.as_ref(),
            observed.started_at,
            observed.terminated_at,
            observed.exit_code,
            observed.termination_reason,
            observed.stop_confirmed_at,
            observed.region.as_ref(),
            observed.resources.cpu_cores,
            observed.resources.memory_mb,
            observed.resources.gpu_type.as_ref(),
            observed.cost_accrued_usd,
            observed.cost_rate_per_hour,
            observed.cost_source,
            now,
        ],
    );
    if observed.state == ContainerState::Terminated {
        let ended_at = observed.terminated_at.map_or(Value::Shared(now.clone()), Value::from);
        script
            .step(&sql::WORKERS_TERMINATE, vec![id.into(), ended_at, observed.exit_code.into(), now.into()]);
    }
}

/// The row with its events. A task that only its container names gets a row too: its id may come from
/// another system.
pub(super) fn insert_container(
    script: &mut Script,
    new: NewContainer,
    events: Vec<NewEvent>,
    now: &Arc<str>,
) -> Result<()> {
    if let Some(task_id) = &new.task_id {
        let title = new.task_title.as_ref().unwrap_or(task_id);
        script.step(&sql::TASK_ENSURE, params![task_id, title, new.session_id.as_ref(), now]);
    }
    script.one(
        &sql::CONTAINER_INSERT,
        params![
            &new.id,
            new.provider,
            new.provider_identity,
            new.sandbox_id,
            new.instance_id,
            new.name,
            new.worker_id,
            new.task_id,
            new.session_id,
            new.state,
            new.created_at,
            new.started_at,
            new.terminated_at,
            new.exit_code,
            new.termination_reason,
            new.suspected_at,
            new.stop_confirmed_at,
            new.create_attempts,
            new.create_attempted_at,
            new.resources.cpu_cores,
            new.resources.memory_mb,
            new.resources.gpu_type,
            new.region,
            new.cost_accrued_usd,
            new.cost_rate_per_hour,
            new.cost_source,
            new.image,
            text_json(&new.command)?,
            text_json(&new.labels)?,
            new.keep,
            new.spec.as_ref().map(text_json).transpose()?,
            json(&new.metadata),
            now,
        ],
    );
    script.one(&sql::VITALS_INSERT, params![&new.id]);
    if let Some(job) = new.job {
        script.insert_job(&new.id, job, new.created_at);
    }
    script.events(events, now);
    Ok(())
}

/// Our own types always have a JSON form; should one ever not, it is a fault of this program.
pub(super) fn text_json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| crate::StoreError::Unreadable {
        query: "json",
        column: 0,
        detail: error.to_string(),
    })
}
