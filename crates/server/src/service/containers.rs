//! Containers: run, look, stop.

use std::collections::{BTreeMap, HashMap};

use parhelia_core::Timestamp;
use parhelia_core::api::{ContainerList, ContainerView, RunRequest, StatsView, StopRequest, Totals};
use parhelia_core::container::Container;
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::history::Recorded;
use parhelia_core::ids::{ContainerId, SessionId};
use parhelia_core::sandbox::{Resources, SandboxSpec, Surroundings};
use parhelia_core::state::{ContainerState, CostSource, Health, TerminationReason};
use parhelia_core::time::seconds_between;
use parhelia_providers::{LogChunk, ProviderError, SandboxRef};
use parhelia_store::{ContainerFilter, ContainerPage, DesireOutcome, NewContainer, Wish};
use serde_json::json;

use super::error::LONGER;
use super::jobs::AskedJob;
use super::{Caller, Service, ServiceError, validate};
use crate::loops::stopped;

const STOP_GRACE_SECONDS: i64 = 30;
const TERMINATE_GRACE_SECONDS: i64 = 10;
const LONGEST_GRACE_SECONDS: i64 = 3600;
const LOG_CHUNK_BYTES: usize = 1 << 20;
/// Rows that are read at a time where labels decide, which the database cannot.
const LABELLED_PAGE: usize = 1000;

#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    pub states: Vec<ContainerState>,
    pub health: Vec<Health>,
    pub provider: Option<String>,
    pub task: Option<String>,
    /// All of these.
    pub labels: Vec<(String, String)>,
    pub all: bool,
    pub orphans: bool,
    pub limit: Option<usize>,
    /// The id of a container: only what was created before it.
    pub before: Option<String>,
}

/// A container that is about to be recorded, with the events that tell of it.
#[derive(Debug)]
pub(crate) struct Intent {
    pub(crate) container: NewContainer,
    pub(crate) events: Vec<NewEvent>,
}

impl Service {
    /// Records the intent and returns; the reconciler makes it real.
    pub async fn run(&self, request: RunRequest, caller: &Caller) -> Result<ContainerView, ServiceError> {
        let id = self.intend(request, caller).await?;
        self.container(id.as_str()).await
    }

    async fn intend(&self, request: RunRequest, caller: &Caller) -> Result<ContainerId, ServiceError> {
        let Intent { container, events } = self.prepare(request, None, None, caller)?;
        let (id, provider) = (container.id.clone(), container.provider.clone());
        self.store.register(container, events, self.clock.now()).await?;
        self.poke(&provider);
        Ok(id)
    }

    /// The one way in for everything that is to run: `containers run`, `exec`, what continues a job, and the tasks of
    /// sessions. Nothing is recorded yet.
    pub(crate) fn prepare(
        &self,
        request: RunRequest,
        job: Option<AskedJob>,
        session: Option<&SessionId>,
        caller: &Caller,
    ) -> Result<Intent, ServiceError> {
        validate::run(&request)?;
        let handle = self.provider(&request.provider)?;
        let provider = handle.provider.name().to_owned();
        let now = self.clock.now();
        let id = self.entropy.container_id(now);
        // Whatever runs under a supervisor of ours is a job, whoever asked for it.
        let supervised = handle.provider.job_directory(&id).is_some();
        let new_job =
            (job.is_some() || supervised).then(|| self.new_job(&id, &request, job.as_ref(), caller));
        let rate = self.prices.rate_per_hour(&provider, &request.resources, now);
        let spec = SandboxSpec {
            container_id: id.clone(),
            instance_id: self.instance_id.clone(),
            task_id: request.task_id,
            session_id: session.map(ToString::to_string),
            name: request.name,
            image: request.image,
            command: request.command,
            env: request.env,
            workdir: request.workdir,
            labels: request.labels,
            resources: request.resources,
            idle_timeout_seconds: request.idle_timeout_seconds,
            tmux_session: request.tmux_session,
            job: job.map(|asked| asked.ask),
            surroundings: Surroundings {
                user: request.user,
                network: request.network,
                volumes: request.volumes,
                secrets: request.secrets,
            },
        };
        let message = match (&spec.task_id, &request.task_title) {
            (Some(_), Some(title)) if session.is_some() => format!("Container created for task {title}"),
            (Some(task), _) => format!("Container created for task {task}"),
            (None, _) => "Container created".to_owned(),
        };
        let mut details = json!({ "by": caller.subject, "provider": provider });
        if let Some(job) = &new_job {
            details["job"] = json!(job.id);
            details["engine"] = json!(job.engine);
            if let Some(origin) = job.origin_id {
                details["origin"] = json!(origin);
            }
        }
        let mut event = NewEvent::new(EventType::ContainerCreated, Source::User, message)
            .container(&id)
            .task(spec.task_id.as_deref())
            .change("none", ContainerState::Created)
            .details(details)
            .recording(&Recorded::intent(Some(rate), now));
        event.session_id = session.map(ToString::to_string);
        let container = NewContainer {
            job: new_job,
            keep: request.keep,
            cost_rate_per_hour: Some(rate),
            task_title: request.task_title,
            ..NewContainer::intent(&provider, spec, now)
        };
        Ok(Intent { container, events: vec![event] })
    }

    /// One container, by its id or a unique prefix of it.
    pub async fn container(&self, id: &str) -> Result<ContainerView, ServiceError> {
        let id = self.resolve(id).await?;
        let found = self.store.container(&id).await?;
        let record = found.ok_or_else(|| ServiceError::no_container(id.as_str()))?;
        let title = match &record.task_id {
            Some(task) => self.store.task(task).await?.map(|t| t.title),
            None => None,
        };
        Ok(self.view(record, title, self.clock.now()))
    }

    pub async fn resolve(&self, given: &str) -> Result<ContainerId, ServiceError> {
        let plausible = given.len() >= 2
            && given.len() <= 64
            && given.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !plausible {
            return Err(ServiceError::no_container(given.chars().take(64).collect::<String>()));
        }
        let mut matches = self.store.resolve_container(given).await?;
        match (matches.pop(), matches.is_empty()) {
            (None, _) => Err(ServiceError::no_container(given)),
            (Some(only), true) => Ok(only),
            (Some(last), false) => {
                if let Some(exact) = matches.iter().chain([&last]).find(|id| id.as_str() == given) {
                    return Ok(exact.clone());
                }
                let matches = matches.iter().chain([&last]).map(ToString::to_string).collect();
                Err(ServiceError::Ambiguous { given: given.to_owned(), matches, fix: LONGER })
            }
        }
    }

    pub async fn containers(&self, query: ListQuery) -> Result<ContainerList, ServiceError> {
        let before = match &query.before {
            Some(id) => {
                let known = ContainerId::parse(id).map_err(|_| no_such_page(id))?;
                let found = self.store.container(&known).await?.ok_or_else(|| no_such_page(id))?;
                Some((found.created_at, found.id))
            }
            None => None,
        };
        let mut filter = ContainerFilter {
            active_only: !query.all && query.states.is_empty(),
            states: query.states,
            health: query.health,
            provider: query.provider.map(|given| match self.provider(&given) {
                Ok(handle) => handle.provider.name().to_owned(),
                Err(_) => given,
            }),
            task_id: query.task,
            orphans: query.orphans,
            ..ContainerFilter::default()
        };
        let totals = match before {
            None => Some(self.totals(&filter, &query.labels).await?),
            Some(_) => None,
        };
        filter.before = before;
        let ContainerPage { rows, next } = self.page(filter, query.limit, &query.labels).await?;
        let now = self.clock.now();
        let mut containers: Vec<_> = rows.into_iter().map(|c| self.view(c, None, now)).collect();
        self.title(&mut containers).await?;
        Ok(ContainerList { containers, totals, next: next.map(|(_, id)| id), as_of: None })
    }

    /// Within a page the newest stands last; the first page holds the newest.
    async fn page(
        &self,
        mut filter: ContainerFilter,
        limit: Option<usize>,
        labels: &[(String, String)],
    ) -> Result<ContainerPage, ServiceError> {
        let count = |rows: usize| i64::try_from(rows).unwrap_or(i64::MAX);
        if labels.is_empty() {
            filter.limit = limit.map(count);
            return Ok(self.store.container_page(&filter).await?);
        }
        filter.limit = Some(count(LABELLED_PAGE));
        let limit = limit.unwrap_or(usize::MAX);
        // Collected from the newest on.
        let mut found = Vec::new();
        loop {
            let ContainerPage { rows, next } = self.store.container_page(&filter).await?;
            found.extend(rows.into_iter().rev().filter(|row| labelled(&row.labels, labels)));
            let more = found.len() > limit || (found.len() == limit && next.is_some());
            if more || next.is_none() {
                found.truncate(limit);
                let oldest = found.last().map(|row: &Container| (row.created_at, row.id.clone()));
                found.reverse();
                return Ok(ContainerPage { rows: found, next: oldest.filter(|_| more) });
            }
            filter.before = next;
        }
    }

    /// Over everything that matches.
    async fn totals(
        &self,
        filter: &ContainerFilter,
        labels: &[(String, String)],
    ) -> Result<Totals, ServiceError> {
        let now = self.clock.now();
        let mut totals = Totals::default();
        for row in self.store.container_figures(filter).await? {
            if !labelled(&row.labels, labels) {
                continue;
            }
            let (cost, rate) = match (counts_up(row.state, row.cost_source), row.started_at) {
                (true, Some(started)) => (
                    self.prices.cost(&row.provider, &row.resources, started, now),
                    Some(self.prices.rate_per_hour(&row.provider, &row.resources, now)),
                ),
                _ => (row.cost_accrued_usd, row.cost_rate_per_hour),
            };
            totals.total += 1;
            totals.running += i64::from(row.state == ContainerState::Running);
            totals.orphaned += i64::from(row.state == ContainerState::Orphaned);
            totals.suspected += i64::from(row.state == ContainerState::Unknown);
            totals.cost_accrued_usd += cost;
            totals.cost_per_hour_usd += rate.filter(|_| costs(row.state)).unwrap_or(0.0);
        }
        for foreign in self.store.foreign(None, None).await? {
            totals.foreign += 1;
            totals.foreign_cost_per_hour_usd +=
                self.prices.rate_per_hour(&foreign.provider, &foreign.resources, now);
        }
        Ok(totals)
    }

    async fn title(&self, views: &mut [ContainerView]) -> Result<(), ServiceError> {
        let mut titles: HashMap<String, Option<String>> = HashMap::new();
        // A screenful only: a list of thousands shows ids.
        for view in views.iter_mut().take(200) {
            let Some(task) = &view.task else { continue };
            if !titles.contains_key(task) {
                let title = self.store.task(task).await?.map(|t| t.title);
                titles.insert(task.clone(), title);
            }
            view.task_title = titles.get(task).cloned().flatten();
        }
        Ok(())
    }

    pub async fn stats(&self) -> Result<StatsView, ServiceError> {
        let stats = self.store.container_stats().await?;
        let all = ContainerFilter::default();
        let total_cost_usd = self.totals(&all, &[]).await?.cost_accrued_usd;
        Ok(StatsView {
            total: stats.total,
            by_state: stats.by_state.into_iter().map(|(k, v)| (k.to_string(), v)).collect(),
            by_health: stats.by_health.into_iter().map(|(k, v)| (k.to_string(), v)).collect(),
            total_cost_usd,
            oldest_running: stats.oldest_running.map(|o| o.started_at),
        })
    }

    pub async fn stop(
        &self,
        id: &str,
        request: StopRequest,
        caller: &Caller,
    ) -> Result<ContainerView, ServiceError> {
        self.end(id, request, STOP_GRACE_SECONDS, caller).await
    }

    pub async fn terminate(
        &self,
        id: &str,
        request: StopRequest,
        caller: &Caller,
    ) -> Result<ContainerView, ServiceError> {
        self.end(id, request, TERMINATE_GRACE_SECONDS, caller).await
    }

    async fn end(
        &self,
        id: &str,
        request: StopRequest,
        grace: i64,
        caller: &Caller,
    ) -> Result<ContainerView, ServiceError> {
        let grace = request.grace_seconds.unwrap_or(grace);
        if !(0..=LONGEST_GRACE_SECONDS).contains(&grace) {
            return Err(ServiceError::invalid(
                format!("a grace of {grace} seconds is out of range"),
                format!("give from 0 (at once) to {LONGEST_GRACE_SECONDS}"),
            ));
        }
        let id = self.resolve(id).await?;
        let because = request.reason.map(|r| r.chars().take(1000).collect::<String>());
        self.desire_end(&id, TerminationReason::Manual, grace, because, caller).await?;
        self.container(id.as_str()).await
    }

    /// Sets the desired state; the reconciler ends it and writes the receipts.
    pub(crate) async fn desire_end(
        &self,
        id: &ContainerId,
        reason: TerminationReason,
        grace: i64,
        because: Option<String>,
        caller: &Caller,
    ) -> Result<(), ServiceError> {
        let now = self.clock.now();
        let found = self.store.container(id).await?.ok_or_else(|| ServiceError::no_container(id.as_str()))?;
        let message = match &because {
            Some(words) => format!("Termination requested by {}: {words}", caller.subject),
            None => format!("Termination requested by {}", caller.subject),
        };
        let event = NewEvent::new(EventType::StopRequested, Source::User, message)
            .container(id)
            .task(found.task_id.as_deref())
            .details(
                json!({ "by": caller.subject, "reason": reason, "grace_seconds": grace, "because": because }),
            );
        let wish = Wish { by: &caller.subject, reason, grace_seconds: grace, event };
        let outcome = self.store.desire_termination(None, id, wish, now).await?;
        if let DesireOutcome::NotFound = outcome {
            return Err(ServiceError::no_container(id.as_str()));
        }
        self.poke(&found.provider);
        Ok(())
    }

    /// Output from `offset` on; with nothing there yet, waits up to `wait_seconds` for some.
    pub async fn logs(
        &self,
        id: &str,
        offset: u64,
        max_bytes: Option<usize>,
        wait_seconds: u64,
    ) -> Result<LogChunk, ServiceError> {
        let view = self.container(id).await?;
        let handle = self.provider(&view.record.provider).map_err(|missing| match &view.record.provider {
            other if other.contains(':') => ServiceError::Conflict {
                message: format!(
                    "{} is at {other}: its output is read at the server of that home",
                    view.record.id
                ),
                fix: "ask that server: with its --home on its machine, or with its --url",
            },
            _ => missing,
        })?;
        let sandbox =
            SandboxRef { container_id: view.record.id.clone(), sandbox_id: view.record.sandbox_id.clone() };
        let max = max_bytes.unwrap_or(LOG_CHUNK_BYTES).clamp(1, LOG_CHUNK_BYTES);
        let deadline = self.clock.monotonic() + std::time::Duration::from_secs(wait_seconds.min(60));
        let mut shutdown = self.shutdown.clone();
        loop {
            let chunk = match handle.provider.logs(&sandbox, offset, max).await {
                Ok(chunk) => chunk,
                // Not begun yet: there will be some.
                Err(ProviderError::Rejected(_)) if view.record.state == ContainerState::Created => {
                    LogChunk { offset: 0, next_offset: 0, bytes: Vec::new(), finished: false }
                }
                Err(ProviderError::Rejected(_)) => {
                    let job = self.store.job_of_container(&view.record.id).await?;
                    if let Some(job) = job.filter(|job| job.cleaned_at.is_some()) {
                        return Err(ServiceError::NotFound {
                            what: "output any more of job",
                            id: job.id.to_string(),
                            fix: "its directory was cleaned up; 'parhelia jobs show' still has its result, and its events are kept",
                        });
                    }
                    return Err(ServiceError::NotFound {
                        what: "output of",
                        id: view.record.id.to_string(),
                        fix: "it was never started, or its output has been removed; its events tell more",
                    });
                }
                Err(e) => {
                    return Err(ServiceError::Provider {
                        message: format!("the output of {} cannot be read: {e}", view.record.id),
                        fix: format!(
                            "check the provider with 'parhelia reconciler status' ({})",
                            view.record.provider
                        ),
                    });
                }
            };
            // Its provider may never have written an end (a lost supervisor): the record knows.
            let ended = matches!(view.record.state, ContainerState::Stopped | ContainerState::Terminated);
            if ended && chunk.bytes.is_empty() {
                return Ok(LogChunk { finished: true, ..chunk });
            }
            let over = self.clock.monotonic() >= deadline || *shutdown.borrow();
            if !chunk.bytes.is_empty() || chunk.finished || over {
                return Ok(chunk);
            }
            tokio::select! {
                () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {}
                () = stopped(&mut shutdown) => {}
            }
        }
    }

    /// How long the output is so far.
    pub async fn log_end(&self, id: &str) -> Result<u64, ServiceError> {
        Ok(self.logs(id, u64::MAX, Some(1), 0).await?.next_offset)
    }

    /// The record with everything that depends on the moment of asking.
    pub(super) fn view(
        &self,
        mut record: Container,
        task_title: Option<String>,
        now: Timestamp,
    ) -> ContainerView {
        if let (true, Some(started)) = (counts_up(record.state, record.cost_source), record.started_at) {
            let resources = Resources {
                cpu_cores: record.cpu_cores,
                memory_mb: record.memory_mb,
                gpu_type: record.gpu_type.clone(),
            };
            record.cost_accrued_usd = self.prices.cost(&record.provider, &resources, started, now);
            record.cost_rate_per_hour = Some(self.prices.rate_per_hour(&record.provider, &resources, now));
        }
        ContainerView {
            sandbox: record.sandbox_id.clone(),
            health: record.health_status,
            task: record.task_id.clone(),
            task_title,
            age: seconds_between(record.created_at, now).max(0.0) as i64,
            cost: record.cost_accrued_usd,
            suspected: record.state == ContainerState::Unknown,
            record,
        }
    }
}

/// Is it alive, as far as anybody knows?
fn costs(state: ContainerState) -> bool {
    matches!(state, ContainerState::Running | ContainerState::Orphaned | ContainerState::Unknown)
}

/// Does its cost depend on the moment of asking?
fn counts_up(state: ContainerState, source: CostSource) -> bool {
    costs(state) && source == CostSource::Estimated
}

fn labelled(labels: &BTreeMap<String, String>, wanted: &[(String, String)]) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// A page begins at a container that is there.
pub(super) fn no_such_page(before: &str) -> ServiceError {
    let shown: String = before.chars().take(64).collect();
    ServiceError::invalid(
        format!("before: there is no container '{shown}'"),
        "give the 'next' of the page before, as it was answered",
    )
}
