//! Other instances' sandboxes: shown with their cost, and taken over only when somebody says so.

use std::collections::BTreeMap;

use parhelia_core::Timestamp;
use parhelia_core::api::{AdoptReport, ForeignView, InstanceList, InstanceView};
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::history::Recorded;
use parhelia_core::ids::ContainerId;
use parhelia_core::state::{ContainerState, CostSource};
use parhelia_core::time::seconds_between;
use parhelia_store::{Foreign, NewContainer};
use serde_json::json;

use super::{Caller, Service, ServiceError};

impl Service {
    pub async fn instances(&self) -> Result<InstanceList, ServiceError> {
        let mut instances: BTreeMap<String, InstanceView> = BTreeMap::new();
        let empty = |id: &str| InstanceView {
            id: id.to_owned(),
            is_self: false,
            adopted_at: None,
            adopted_by: None,
            foreign: Vec::new(),
            cost: 0.0,
            cost_per_hour_usd: 0.0,
        };
        for known in self.store.instances().await? {
            let view = instances.entry(known.id.clone()).or_insert_with(|| empty(&known.id));
            view.is_self = known.is_self;
            view.adopted_at = known.adopted_at;
            view.adopted_by = known.adopted_by;
        }
        for foreign in self.store.foreign(None, None).await? {
            let shown = self.foreign_view(&foreign);
            let view =
                instances.entry(foreign.instance_id.clone()).or_insert_with(|| empty(&foreign.instance_id));
            view.cost += shown.cost;
            view.cost_per_hour_usd += shown.cost_per_hour_usd;
            view.foreign.push(shown);
        }
        let mut instances: Vec<_> = instances.into_values().collect();
        instances.sort_by_key(|i| !i.is_self);
        Ok(InstanceList { instances })
    }

    pub(super) fn foreign_view(&self, foreign: &Foreign) -> ForeignView {
        let now = self.clock.now();
        let born = foreign.created_at.unwrap_or(foreign.first_seen_at);
        let started = foreign.started_at.unwrap_or(born);
        ForeignView {
            provider: foreign.provider.clone(),
            sandbox: foreign.sandbox_id.clone(),
            container_id: foreign.container_id.to_string(),
            task: foreign.task_id.clone(),
            name: foreign.name.clone(),
            age: seconds_between(born, now).max(0.0) as i64,
            cost: self.prices.cost(&foreign.provider, &foreign.resources, started, now),
            cost_per_hour_usd: self.prices.rate_per_hour(&foreign.provider, &foreign.resources, now),
            first_seen_at: foreign.first_seen_at,
            last_seen_at: foreign.last_seen_at,
        }
    }

    /// From now on that instance's sandboxes are ours: those seen become containers at once.
    pub async fn adopt(&self, instance: &str, caller: &Caller) -> Result<AdoptReport, ServiceError> {
        if instance == self.instance_id {
            return Err(ServiceError::invalid(
                "that is this instance itself",
                "'parhelia instances list' shows the others",
            ));
        }
        let foreign = self.store.foreign(None, Some(instance)).await?;
        if foreign.is_empty() {
            return Err(ServiceError::NotFound {
                what: "instance with sandboxes to adopt,",
                id: instance.chars().take(64).collect(),
                fix: "'parhelia instances list' shows the instances that were seen",
            });
        }
        let now = self.clock.now();
        let mut rows = Vec::with_capacity(foreign.len());
        let mut ids = Vec::with_capacity(foreign.len());
        for sandbox in &foreign {
            let tagged = &sandbox.container_id;
            let free = self.store.container(tagged).await?.is_none() && !ids.contains(tagged);
            let id = if free { tagged.clone() } else { self.entropy.container_id(now) };
            let started = sandbox.started_at.unwrap_or(sandbox.first_seen_at);
            let cost = self.prices.cost(&sandbox.provider, &sandbox.resources, started, now);
            let rate = self.prices.rate_per_hour(&sandbox.provider, &sandbox.resources, now);
            let event = NewEvent::new(
                EventType::ContainerAdopted,
                Source::User,
                format!(
                    "Sandbox {} of instance {instance} adopted by {}",
                    sandbox.sandbox_id, caller.subject
                ),
            )
            .container(&id)
            .task(sandbox.task_id.as_deref())
            .change("foreign", ContainerState::Running)
            .recording(&Recorded {
                sandbox_id: Some(sandbox.sandbox_id.clone()),
                started_at: Some(started),
                cost_usd: cost,
                ..Recorded::intent(Some(rate), now)
            });
            rows.push((adopted(id.clone(), sandbox, cost, rate, now), vec![event]));
            ids.push(id);
        }
        let event = NewEvent::new(
            EventType::InstanceAdopted,
            Source::User,
            format!("Instance {instance} adopted by {}: {} sandboxes", caller.subject, ids.len()),
        )
        .details(json!({ "instance_id": instance, "containers": ids }));
        self.store.adopt_instance(instance, &caller.subject, rows, event, now).await?;
        self.poke_all();
        Ok(AdoptReport { instance: instance.to_owned(), containers: ids })
    }
}

/// The row of a sandbox that was foreign until now: it runs, and nobody here asked for it before.
fn adopted(id: ContainerId, sandbox: &Foreign, cost: f64, rate: f64, now: Timestamp) -> NewContainer {
    NewContainer {
        job: None,
        id,
        provider: sandbox.provider.clone(),
        provider_identity: Some(sandbox.provider_identity.clone()),
        sandbox_id: Some(sandbox.sandbox_id.clone()),
        instance_id: sandbox.instance_id.clone(),
        name: sandbox.name.clone(),
        worker_id: None,
        task_id: sandbox.task_id.clone(),
        task_title: None,
        session_id: None,
        state: ContainerState::Running,
        created_at: sandbox.created_at.unwrap_or(sandbox.first_seen_at),
        started_at: sandbox.started_at.or(Some(sandbox.first_seen_at)),
        terminated_at: None,
        exit_code: None,
        termination_reason: None,
        // Nobody could have heard it here before: its silence begins now.
        suspected_at: Some(now),
        stop_confirmed_at: None,
        create_attempts: 0,
        create_attempted_at: None,
        resources: sandbox.resources.clone(),
        region: sandbox.region.clone(),
        cost_accrued_usd: cost,
        cost_rate_per_hour: Some(rate),
        cost_source: CostSource::Estimated,
        image: None,
        command: sandbox.command.clone(),
        labels: sandbox.labels.clone(),
        keep: false,
        spec: None,
        metadata: json!({ "adopted_from": sandbox.instance_id }),
    }
}
