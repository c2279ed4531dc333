//! Gathers the facts for `core::why`. One function per kind of id, listed in [`EXPLAINERS`]: a new kind is a new
//! function there. What they mean is decided in `core`.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parhelia_core::event::Event;
use parhelia_core::ids::{ContainerId, SessionId, TaskId, TokenId, WaitId};
use parhelia_core::job::Job;
use parhelia_core::sandbox::Inspection;
use parhelia_core::session::api::TaskView;
use parhelia_core::why::{
    self, ContainerFacts, Evidence, InstanceFacts, OtherHome, ProviderFacts, TaskFacts, Why, Word,
};
use parhelia_providers::SandboxRef;
use parhelia_store::{ContainerFilter, EventFilter, JobFilter, StoreError};

use super::error::LONGER;
use super::reconciler::cycle_view;
use super::sessions::EXEC;
use super::{Service, ServiceError};

/// A person waits for the answer: a provider that takes longer has not answered.
const PATIENCE: Duration = Duration::from_secs(5);
const EVENTS: i64 = 8;
const LONGEST_ID: usize = 200;

/// Something that the given id may mean, and how to explain it.
struct Candidate<'a> {
    id: String,
    explain: BoxFuture<'a, Result<Why, ServiceError>>,
}

type Found<'a> = BoxFuture<'a, Result<Vec<Candidate<'a>>, ServiceError>>;
type Explainer = for<'a> fn(&'a Service, &'a str) -> Found<'a>;

const EXPLAINERS: &[Explainer] =
    &[sessions, waits, containers, jobs, foreigners, tokens, providers, instances, tasks];

impl Service {
    /// By an id, or a unique prefix of one, of anything that can be explained.
    pub async fn why(&self, given: &str) -> Result<Why, ServiceError> {
        let shown: String = given.chars().take(64).collect();
        let mut found = Vec::new();
        if !given.is_empty() && given.len() <= LONGEST_ID {
            for explainer in EXPLAINERS {
                found.append(&mut explainer(self, given).await?);
            }
        }
        if let Some(exact) = found.iter().position(|candidate| candidate.id == given) {
            found = vec![found.swap_remove(exact)];
        }
        match (found.pop(), found.is_empty()) {
            (Some(only), true) => only.explain.await,
            (Some(last), false) => {
                let mut matches: Vec<String> = found.into_iter().map(|candidate| candidate.id).collect();
                matches.push(last.id);
                matches.dedup();
                matches.truncate(10);
                Err(ServiceError::Ambiguous { given: shown, matches, fix: LONGER })
            }
            (None, _) => Err(ServiceError::NotFound {
                what: "session, wait, container, job, task, token, instance or provider",
                id: shown,
                fix: "'parhelia containers --all' lists the containers; a unique prefix of an id is enough",
            }),
        }
    }

    async fn latest(&self, filter: EventFilter) -> Result<Vec<Event>, ServiceError> {
        let filter = EventFilter { newest_first: true, limit: Some(EVENTS), ..filter };
        let mut events = self.store.events(&filter).await?;
        events.reverse();
        Ok(events)
    }

    async fn why_container(&self, id: ContainerId) -> Result<Why, ServiceError> {
        let of_it = EventFilter { container_id: Some(id.to_string()), ..EventFilter::default() };
        let events = self.latest(of_it).await?;
        let record = match self.store.container(&id).await {
            Ok(Some(record)) => record,
            Ok(None) => return Err(ServiceError::no_container(id.as_str())),
            Err(error @ StoreError::Unreadable { .. }) => {
                return Ok(why::unreadable(&id, &error.to_string(), &events, self.clock.now()));
            }
            Err(other) => return Err(other.into()),
        };
        let sandbox = SandboxRef { container_id: id.clone(), sandbox_id: record.sandbox_id.clone() };
        let (provider, shown, settles) = self.ask(&record.provider, &sandbox).await;
        let facts = ContainerFacts {
            provider,
            shown,
            memory: self.store.provider_memory(&record.provider).await?,
            cycle: self.store.last_cycle(&record.provider).await?.map(cycle_view),
            // Only the leader's ears count; another server's are not asked.
            silent_seconds: self.epoch().and_then(|_| self.observer.silent_seconds(&id)),
            watching_seconds: self.observer.watching_seconds(),
            ladder: self.config.ladder(),
            settings: self.config.reconciler.clone(),
            create_settles_seconds: settles,
            other_home: self.other_home(&record.provider).await?,
            events,
            record,
        };
        Ok(why::container(&facts, self.clock.now()))
    }

    /// Of a provider that another home has, and this server has not.
    async fn other_home(&self, provider: &str) -> Result<Option<OtherHome>, ServiceError> {
        let Some((_, home)) = provider.split_once(':') else { return Ok(None) };
        if self.providers.contains_key(provider) {
            return Ok(None);
        }
        let now = self.clock.now();
        let owners = self.store.owners().await?;
        let last = owners.iter().filter(|owner| owner.home_id.starts_with(home)).max_by_key(|o| o.started_at);
        Ok(Some(OtherHome {
            id: home.to_owned(),
            host: last.map(|owner| owner.host.clone()),
            is_served: last.is_some_and(|owner| owner.ended_at.is_none() && owner.lease_until > now),
        }))
    }

    /// What its provider says of it now, and what else it can show.
    async fn ask(&self, provider: &str, sandbox: &SandboxRef) -> (Word, Vec<Evidence>, i64) {
        let Some(handle) = self.providers.get(provider) else {
            let why = format!("this server has no provider {provider}; another server may");
            return (Word::Unasked(why), Vec::new(), 0);
        };
        let settles = i64::from(handle.provider.capabilities().create_settles_seconds);
        let patience = self.patience();
        let (word, shown) = tokio::join!(
            tokio::time::timeout(patience, handle.provider.inspect(sandbox)),
            tokio::time::timeout(patience, handle.provider.evidence(sandbox)),
        );
        let word = match word {
            Ok(Ok(Inspection::Absent)) => Word::Absent,
            Ok(Ok(Inspection::Present(found))) => Word::Present(found.phase),
            Ok(Err(error)) => Word::Unknown(error.to_string()),
            Err(_) => Word::Unknown(format!("no answer within {}s", patience.as_secs())),
        };
        let shown = shown.unwrap_or_default().into_iter().map(|(from, says)| Evidence::new(from, says));
        (word, shown.collect(), settles)
    }

    fn patience(&self) -> Duration {
        PATIENCE.min(Duration::from_secs(self.config.reconciler.provider_timeout_seconds))
    }

    async fn why_provider(&self, name: &str) -> Result<Why, ServiceError> {
        let handle = self.provider(name)?;
        let name = handle.provider.name();
        let began = self.clock.monotonic();
        let patience = self.patience();
        let answer = match tokio::time::timeout(patience, handle.provider.list()).await {
            Ok(Ok(listing)) => Ok((listing.identity, listing.sandboxes.len())),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {}s", patience.as_secs())),
        };
        let answered_in_ms = self.clock.monotonic().saturating_sub(began).as_secs_f64() * 1000.0;
        let about_it = |event: &Event| event.details.get("provider").is_some_and(|of| of == name);
        let mut events = Vec::new();
        for kind in parhelia_core::event::EventType::ALL.iter().filter(|kind| kind.is_of_provider()) {
            events.extend(self.latest(EventFilter { event_type: Some(*kind), ..Default::default() }).await?);
        }
        events.retain(about_it);
        events.sort_by_key(|event| event.id);
        let cut = events.len().saturating_sub(EVENTS as usize);
        let facts = ProviderFacts {
            status: self.provider_status(name).await?,
            answer,
            answered_in_ms,
            containers: self.store.tracked(name).await?.len() as i64,
            events: events.split_off(cut),
        };
        Ok(why::provider(&facts, self.clock.now()))
    }

    async fn why_instance(&self, id: &str) -> Result<Why, ServiceError> {
        let all = self.instances().await?.instances;
        let view = all.into_iter().find(|instance| instance.id == id);
        let view = view.ok_or_else(|| ServiceError::NotFound {
            what: "instance",
            id: id.to_owned(),
            fix: "'parhelia instances list' shows the instances that were seen",
        })?;
        let active = self.store.active_containers().await?;
        let containers = active.iter().filter(|row| row.instance_id == id).count() as i64;
        Ok(why::instance(&InstanceFacts { view, containers }, self.clock.now()))
    }

    async fn why_session(&self, id: SessionId) -> Result<Why, ServiceError> {
        let events = self.events_of_session(&id).await?;
        let detail = self.session_detail(&id).await?;
        Ok(why::session(&detail, &events, self.clock.now()))
    }

    async fn events_of_session(&self, id: &SessionId) -> Result<Vec<Event>, ServiceError> {
        self.latest(EventFilter { session_id: Some(id.to_string()), ..EventFilter::default() }).await
    }

    async fn why_wait(&self, id: WaitId) -> Result<Why, ServiceError> {
        let wait = self.store.wait(&id).await?.ok_or_else(|| no_wait(id.as_str()))?;
        let view = self.session_detail(&wait.session_id).await?.view;
        let events = self.events_of_session(&wait.session_id).await?;
        Ok(why::wait(&wait, &view, &events, self.clock.now()))
    }

    async fn why_task(&self, id: &str, title: String) -> Result<Why, ServiceError> {
        let now = self.clock.now();
        if let Ok(of_session) = TaskId::parse(id)
            && let Some(task) = self.store.session_task(&of_session).await?
        {
            let view = self.session_detail(&task.session_id).await?.view;
            let attempts = self.store.attempts_of(&[&task.id]).await?;
            let of_it = EventFilter { task_id: Some(id.to_owned()), ..Default::default() };
            let events = self.latest(of_it).await?;
            return Ok(why::session_task(&TaskView { task, attempts }, &view, &events, now));
        }
        let filter = ContainerFilter { task_id: Some(id.to_owned()), limit: Some(100), ..Default::default() };
        let rows = self.store.containers(&filter).await?;
        let events = self.latest(EventFilter { task_id: Some(id.to_owned()), ..Default::default() }).await?;
        let containers = rows.into_iter().map(|row| self.view(row, None, now)).collect();
        Ok(why::task(&TaskFacts { id: id.to_owned(), title, containers, events }, now))
    }
}

/// By its id, a prefix of that, or its name. One command that was run by `exec` is its job, unless it is meant by its id.
fn sessions<'a>(service: &'a Service, given: &'a str) -> Found<'a> {
    async move {
        let by_id = given.starts_with(SessionId::PREFIX);
        let mut found = Vec::new();
        for id in service.sessions_meant(given).await? {
            let row = service.store.session(&id).await?;
            if by_id || row.is_some_and(|row| row.cascade_id != EXEC) {
                let explain = service.why_session(id.clone()).boxed();
                found.push(Candidate { id: id.to_string(), explain });
            }
        }
        Ok(found)
    }
    .boxed()
}

fn waits<'a>(service: &'a Service, given: &'a str) -> Found<'a> {
    async move {
        if !given.starts_with(WaitId::PREFIX) || given.len() == WaitId::PREFIX.len() {
            return Ok(Vec::new());
        }
        let candidate = |id: WaitId| Candidate { id: id.to_string(), explain: service.why_wait(id).boxed() };
        Ok(service.store.resolve_wait(given).await?.into_iter().map(candidate).collect())
    }
    .boxed()
}

fn no_wait(id: &str) -> ServiceError {
    ServiceError::NotFound {
        what: "wait",
        id: id.to_owned(),
        fix: "'parhelia inbox' lists what waits for a person",
    }
}

fn containers<'a>(service: &'a Service, given: &'a str) -> Found<'a> {
    async move {
        let plausible =
            (2..=64).contains(&given.len()) && given.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let ids = if plausible { service.store.resolve_container(given).await? } else { Vec::new() };
        let candidate =
            |id: ContainerId| Candidate { id: id.to_string(), explain: service.why_container(id).boxed() };
        Ok(ids.into_iter().map(candidate).collect())
    }
    .boxed()
}

/// By its name, its id, or a prefix of that which is long enough to be meant.
fn jobs<'a>(service: &'a Service, given: &'a str) -> Found<'a> {
    async move {
        let plausible =
            (4..=36).contains(&given.len()) && given.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        let mut found = service.jobs_named(given).await?;
        if plausible && found.is_empty() {
            let prefix = Some(given.to_ascii_lowercase());
            let filter = JobFilter { prefix, limit: Some(10), ..Default::default() };
            found = service.store.jobs(&filter).await?;
        }
        let candidate = |job: Job| Candidate {
            id: job.id.to_string(),
            explain: async move {
                let container = service.why_container(job.container_id.clone()).await?;
                Ok(why::job(&job, container, service.clock.now()))
            }
            .boxed(),
        };
        Ok(found.into_iter().map(candidate).collect())
    }
    .boxed()
}

/// By our id in its tag, or by its provider's own.
fn foreigners<'a>(service: &'a Service, given: &'a str) -> Found<'a> {
    async move {
        let all = service.store.foreign(None, None).await?;
        let fits =
            all.into_iter().filter(|one| one.container_id.as_str() == given || one.sandbox_id == given);
        let candidate = |one: parhelia_store::Foreign| Candidate {
            id: given.to_owned(),
            explain: async move {
                let view = service.foreign_view(&one);
                Ok(why::foreign(&view, &one.instance_id, service.clock.now()))
            }
            .boxed(),
        };
        Ok(fits.map(candidate).collect())
    }
    .boxed()
}

fn tokens<'a>(service: &'a Service, given: &'a str) -> Found<'a> {
    async move {
        if !given.starts_with(TokenId::PREFIX) || given.len() == TokenId::PREFIX.len() {
            return Ok(Vec::new());
        }
        let all = service.store.tokens(true, i64::MAX).await?;
        let fits = all.into_iter().filter(|token| token.id.as_str().starts_with(given));
        let candidate = |token: parhelia_core::access::Token| Candidate {
            id: token.id.to_string(),
            explain: async move { Ok(why::token(&token, service.clock.now())) }.boxed(),
        };
        Ok(fits.map(candidate).collect())
    }
    .boxed()
}

fn providers<'a>(service: &'a Service, given: &'a str) -> Found<'a> {
    async move {
        let known = service.provider(given).is_ok();
        let candidate = || Candidate { id: given.to_owned(), explain: service.why_provider(given).boxed() };
        Ok(known.then(candidate).into_iter().collect())
    }
    .boxed()
}

fn instances<'a>(service: &'a Service, given: &'a str) -> Found<'a> {
    async move {
        if given.len() < 4 {
            return Ok(Vec::new());
        }
        let all = service.store.instances().await?;
        let fits = all.into_iter().filter(|instance| instance.id.starts_with(given));
        let candidate = |instance: parhelia_store::Instance| Candidate {
            id: instance.id.clone(),
            explain: async move { service.why_instance(&instance.id).await }.boxed(),
        };
        Ok(fits.map(candidate).collect())
    }
    .boxed()
}

/// By the whole id: it may come from another system and look like anything.
fn tasks<'a>(service: &'a Service, given: &'a str) -> Found<'a> {
    async move {
        let task = service.store.task(given).await?;
        let candidate = |task: parhelia_store::Task| Candidate {
            id: task.id,
            explain: service.why_task(given, task.title).boxed(),
        };
        Ok(task.map(candidate).into_iter().collect())
    }
    .boxed()
}
