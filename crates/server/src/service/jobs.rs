//! Jobs: run, look, end, go on. What a job does is the jobs loop's to say; here are the wishes.

use parhelia_core::Timestamp;
use parhelia_core::api::{RunRequest, StopRequest};
use parhelia_core::engine::Engine;
use parhelia_core::ids::ContainerId;
use parhelia_core::job::api::{ExecRequest, JobList, JobTotals, JobView, ResumeRequest};
use parhelia_core::job::{Job, JobActivity, JobAsk, JobStatus, job_id};
use parhelia_core::session::Session;
use parhelia_core::session::api::CancelSession;
use parhelia_core::time::{plus_seconds, seconds_between};
use parhelia_store::{NewJob, ShownFilter, ShownJob};
use uuid::Uuid;

use super::error::LONGER;
use super::sessions::EXEC;
use super::{Caller, Service, ServiceError, validate};

const PAGE: u32 = 200;
const LARGEST_PAGE: u32 = 1000;
/// What was over for longer is only listed when it is asked for.
const RECENT_SECONDS: i64 = 86_400;
/// How many of those that an id could mean are named.
const NAMED: i64 = 5;

#[derive(Debug, Clone, Default)]
pub struct JobQuery {
    pub statuses: Vec<JobStatus>,
    pub engine: Option<String>,
    pub name: Option<String>,
    pub waiting: bool,
    pub all: bool,
    pub limit: Option<u32>,
    pub before: Option<String>,
}

/// What is asked of a job beyond its container.
#[derive(Debug)]
pub(crate) struct AskedJob {
    pub(crate) ask: JobAsk,
    /// The job that it continues.
    pub(crate) origin_id: Option<Uuid>,
}

impl Service {
    /// Records the intent and returns; the reconciler makes it real. It is a session with one task.
    pub async fn exec(&self, request: ExecRequest, caller: &Caller) -> Result<JobView, ServiceError> {
        validate::exec(&request)?;
        let name = request.name.clone();
        let (run, asked) = self.command_of(request)?;
        let container = self.start_exec(run, asked, name, None, caller).await?;
        self.shown(job_id(&container)).await
    }

    /// What a container is asked for, and what is asked of its supervisor: with the command that the engine makes.
    pub(crate) fn command_of(&self, request: ExecRequest) -> Result<(RunRequest, AskedJob), ServiceError> {
        let handle = self.provider(&request.provider)?;
        let needs = [
            ("terminal", request.terminal.is_some()),
            ("standard input", request.stdin),
            ("timeout", request.timeout_seconds.is_some()),
        ];
        if let (None, Some((what, _))) = (handle.provider.job_files(), needs.iter().find(|(_, asked)| *asked))
        {
            return Err(ServiceError::invalid(
                format!(
                    "a job at {} cannot have a {what}: no supervisor of ours is beside it",
                    request.provider
                ),
                "leave it out, or use provider process; a command can be wrapped, as in: timeout 60 CMD",
            ));
        }
        let engine = match &request.engine {
            Some(name) => self.engine(name)?,
            None => self.engines.guess(&request.command),
        };
        let (command, session) = match &request.engine {
            Some(_) => {
                let fresh = self.entropy.uuid();
                let made = engine.start(&request.command, request.session.as_deref(), &fresh);
                (made.command, made.session)
            }
            None => {
                let session = request.session.or_else(|| engine.session_in(&request.command));
                (request.command, session)
            }
        };
        let ask = JobAsk {
            engine: Some(engine.name.clone()),
            agent_session: session,
            terminal: request.terminal,
            stdin: request.stdin,
            timeout_seconds: request.timeout_seconds,
            waiting_codes: engine.waiting_codes.clone(),
            activity: engine.activity.clone(),
        };
        let run = RunRequest {
            provider: request.provider,
            image: request.image,
            name: request.name,
            command,
            env: request.env,
            workdir: request.workdir,
            labels: request.labels,
            resources: request.resources,
            task_id: None,
            task_title: None,
            idle_timeout_seconds: None,
            keep: request.keep,
            tmux_session: None,
            user: None,
            network: None,
            volumes: Vec::new(),
            secrets: request.secrets,
        };
        Ok((run, AskedJob { ask, origin_id: None }))
    }

    pub(crate) fn engine(&self, name: &str) -> Result<&Engine, ServiceError> {
        self.engines.get(name).map_err(|unknown| {
            let fix = format!("use one of: {}; or leave it out", unknown.known.join(", "));
            ServiceError::invalid(unknown.to_string(), fix)
        })
    }

    /// Sets the desired state of its container; the reconciler ends it and writes the receipts.
    pub async fn cancel_job(
        &self,
        given: &str,
        request: StopRequest,
        caller: &Caller,
    ) -> Result<JobView, ServiceError> {
        let view = self.job(given).await?;
        self.terminate(view.job.container_id.as_str(), request, caller).await?;
        self.shown(view.job.id).await
    }

    /// A new job with the context of an earlier one: its engine's way to go on with its session, else the same
    /// command again.
    pub async fn resume_job(
        &self,
        given: &str,
        request: ResumeRequest,
        caller: &Caller,
    ) -> Result<JobView, ServiceError> {
        self.resume_from(given, request, true, caller).await
    }

    /// Without the checkpoint the same command is run again, whatever its engine can do.
    pub async fn resume_from(
        &self,
        given: &str,
        request: ResumeRequest,
        checkpoint: bool,
        caller: &Caller,
    ) -> Result<JobView, ServiceError> {
        let origin = self.job(given).await?;
        let job = &origin.job;
        if !job.status.is_over() && origin.state.is_active() {
            return Err(ServiceError::Conflict {
                message: format!("job {} is not over: two of it would write into one session", job.id),
                fix: "attach to it with 'parhelia jobs attach', or end it first with 'parhelia jobs cancel --wait'",
            });
        }
        let (run, asked) = self.continued(job, &request.arguments, checkpoint).await?;
        let name = run.name.clone();
        let container = self.start_exec(run, asked, name, Some(&job.container_id), caller).await?;
        self.leave_to(job, job_id(&container), caller).await?;
        self.shown(job_id(&container)).await
    }

    /// A command that ended with a question, and that somebody went on with, asks nobody any more.
    async fn leave_to(&self, job: &Job, next: Uuid, caller: &Caller) -> Result<(), ServiceError> {
        let Some(id) = self.store.session_of_ended(job.container_id.as_str()).await? else { return Ok(()) };
        let open = |session: &Session| session.cascade_id == EXEC && !session.status.is_over();
        if self.store.session(&id).await?.filter(open).is_none() {
            return Ok(());
        }
        let request =
            CancelSession { reason: Some(format!("it goes on as job {next}")), ..CancelSession::default() };
        match self.cancel_session(id.as_str(), request, caller).await {
            // Over meanwhile.
            Ok(_) | Err(ServiceError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// What goes on with an earlier job: its engine's way to resume its session, else the same command with what is
    /// added.
    pub(crate) async fn continued(
        &self,
        job: &Job,
        arguments: &[String],
        checkpoint: bool,
    ) -> Result<(RunRequest, AskedJob), ServiceError> {
        let container = self.store.container(&job.container_id).await?;
        let container = container.ok_or_else(|| ServiceError::no_container(job.container_id.as_str()))?;
        let Some(spec) = container.spec else {
            return Err(ServiceError::invalid(
                format!("nobody here knows what job {} was asked to do: it was found, not started", job.id),
                "start it anew with 'parhelia exec'",
            ));
        };
        let engine = self.engines.get(&job.engine).ok();
        let session = job.agent_session.clone().filter(|_| checkpoint);
        let session = session.or_else(|| engine.filter(|_| checkpoint)?.session_in(&spec.command));
        let resumed = engine.zip(session.as_deref());
        let made = resumed.and_then(|(engine, id)| engine.resume(&spec.command, id, arguments));
        let command = match made {
            Some(made) => made.command,
            None => spec.command.iter().chain(arguments).cloned().collect(),
        };
        let codes = || engine.map(|engine| engine.waiting_codes.clone()).unwrap_or_default();
        let ask = spec.job.clone().unwrap_or_else(|| JobAsk { waiting_codes: codes(), ..JobAsk::default() });
        // Nobody is attached to it: without a terminal, at which somebody may sit down, its input is empty.
        let stdin = ask.stdin && ask.terminal.is_some();
        let ask = JobAsk { engine: Some(job.engine.clone()), agent_session: session, stdin, ..ask };
        let run = RunRequest {
            provider: container.provider,
            image: spec.image,
            name: spec.name,
            command,
            // What we told the earlier one of itself is not true of this one.
            env: spec.env.into_iter().filter(|(name, _)| !name.starts_with("PARHELIA_")).collect(),
            workdir: spec.workdir,
            labels: spec.labels,
            resources: spec.resources,
            task_id: None,
            task_title: None,
            idle_timeout_seconds: spec.idle_timeout_seconds,
            keep: container.keep,
            tmux_session: spec.tmux_session,
            user: spec.surroundings.user,
            network: spec.surroundings.network,
            volumes: spec.surroundings.volumes,
            secrets: spec.surroundings.secrets,
        };
        Ok((run, AskedJob { ask, origin_id: Some(job.id) }))
    }

    /// The row that goes with the intent of its container.
    pub(super) fn new_job(
        &self,
        container: &ContainerId,
        request: &RunRequest,
        asked: Option<&AskedJob>,
        caller: &Caller,
    ) -> NewJob {
        let ask = asked.map(|asked| &asked.ask);
        let engine = ask.and_then(|ask| ask.engine.clone());
        NewJob {
            id: job_id(container),
            name: request.name.clone(),
            engine: engine.unwrap_or_else(|| self.engines.guess(&request.command).name.clone()),
            origin_id: asked.and_then(|asked| asked.origin_id),
            agent_session: ask.and_then(|ask| ask.agent_session.clone()),
            timeout_seconds: ask.and_then(|ask| ask.timeout_seconds).and_then(|s| i64::try_from(s).ok()),
            interactive: ask.is_some_and(|ask| ask.stdin || ask.terminal.is_some()),
            created_by: caller.subject.clone(),
        }
    }

    /// One job, by its id, a unique prefix of it, its container's id, or its name.
    pub async fn job(&self, given: &str) -> Result<JobView, ServiceError> {
        let id = self.resolve_job(given).await?;
        self.shown(id).await
    }

    pub async fn jobs(&self, query: JobQuery) -> Result<JobList, ServiceError> {
        let before = match &query.before {
            Some(id) => {
                let known = Uuid::parse_str(id).map_err(|_| no_such_page(id))?;
                let found = self.store.job(known).await?.ok_or_else(|| no_such_page(id))?;
                Some((found.created_at, found.id))
            }
            None => None,
        };
        let now = self.clock.now();
        let limit = query.limit.unwrap_or(PAGE);
        if !(1..=LARGEST_PAGE).contains(&limit) {
            return Err(ServiceError::invalid(
                format!("a limit of {limit} is out of range"),
                format!("give from 1 to {LARGEST_PAGE}"),
            ));
        }
        let recent = !query.all && query.statuses.is_empty() && query.name.is_none();
        let filter = ShownFilter {
            statuses: query.statuses,
            engine: query.engine,
            name: query.name,
            activity: query.waiting.then_some(JobActivity::Waiting),
            over_since: recent.then(|| plus_seconds(now, -RECENT_SECONDS)),
            id: None,
            uncleaned: false,
            before,
            // One more, to know whether there are more.
            limit: Some(i64::from(limit) + 1),
        };
        let mut found = self.store.jobs_shown(&filter).await?;
        let more = found.len() > limit as usize;
        found.truncate(limit as usize);
        let next = found.last().filter(|_| more).map(|shown| shown.job.id);
        let jobs = found.into_iter().map(|shown| self.job_view(shown, now)).collect();
        Ok(JobList { jobs, next, totals: self.job_totals().await? })
    }

    async fn job_totals(&self) -> Result<JobTotals, ServiceError> {
        let mut totals = JobTotals::default();
        for count in self.store.job_counts().await? {
            totals.total += count.jobs;
            totals.waiting += count.waiting;
            totals.open += if count.status.is_over() { 0 } else { count.jobs };
            totals.by_status.insert(count.status.to_string(), count.jobs);
        }
        Ok(totals)
    }

    pub(super) async fn shown(&self, id: Uuid) -> Result<JobView, ServiceError> {
        let filter = ShownFilter { id: Some(id), limit: Some(1), ..ShownFilter::default() };
        let found = self.store.jobs_shown(&filter).await?.pop();
        Ok(self.job_view(found.ok_or_else(|| no_job(&id.to_string()))?, self.clock.now()))
    }

    /// What somebody meant by `given`. An exact name is taken before a prefix; of equal names the one that is not
    /// over is meant, if there is one such.
    pub(super) async fn resolve_job(&self, given: &str) -> Result<Uuid, ServiceError> {
        if given.len() == 36
            && let Ok(id) = Uuid::parse_str(given)
        {
            return Ok(id);
        }
        if given.starts_with(ContainerId::PREFIX)
            && let Ok(container) = self.resolve(given).await
            && let Some(job) = self.store.job_of_container(&container).await?
        {
            return Ok(job.id);
        }
        match self.jobs_named(given).await?.as_slice() {
            [] => {}
            [only] => return Ok(only.id),
            several => return Err(ambiguous(given, several.iter().map(|job| job.id))),
        }
        let plausible =
            (2..36).contains(&given.len()) && given.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        if !plausible {
            return Err(no_job(given));
        }
        let prefix = Some(given.to_ascii_lowercase());
        let filter = parhelia_store::JobFilter { prefix, limit: Some(NAMED), ..Default::default() };
        let found = self.store.jobs(&filter).await?;
        match found.as_slice() {
            [] => Err(no_job(given)),
            [only] => Ok(only.id),
            several => Err(ambiguous(given, several.iter().map(|job| job.id))),
        }
    }

    /// Those with exactly this name; of one that is not over among others that are, that one alone.
    pub(super) async fn jobs_named(&self, name: &str) -> Result<Vec<Job>, ServiceError> {
        let filter = ShownFilter { name: Some(name.to_owned()), ..ShownFilter::default() };
        let mut named: Vec<_> =
            self.store.jobs_shown(&filter).await?.into_iter().map(|shown| shown.job).collect();
        if named.iter().filter(|job| !job.status.is_over()).count() == 1 {
            named.retain(|job| !job.status.is_over());
        }
        Ok(named)
    }

    pub(super) fn job_view(&self, shown: ShownJob, now: Timestamp) -> JobView {
        let ShownJob { mut job, state, command, provider, termination_reason, exit_code, receipts } = shown;
        let here = self.providers.get(&provider).filter(|_| job.cleaned_at.is_none());
        let directory = here.and_then(|handle| handle.provider.job_directory(&job.container_id));
        job.exit_code = job.exit_code.or(exit_code);
        JobView {
            age: seconds_between(job.created_at, now).max(0.0) as i64,
            directory: directory.map(|path| path.display().to_string()),
            job,
            state,
            command,
            provider,
            termination_reason,
            receipts,
        }
    }
}

fn ambiguous(given: &str, ids: impl Iterator<Item = Uuid>) -> ServiceError {
    let matches = ids.take(NAMED as usize).map(|id| id.to_string()).collect();
    ServiceError::Ambiguous { given: given.chars().take(64).collect(), matches, fix: LONGER }
}

pub(super) fn no_job(given: &str) -> ServiceError {
    ServiceError::NotFound {
        what: "job",
        id: given.chars().take(64).collect(),
        fix: "'parhelia jobs --all' lists every job; a unique prefix of an id is enough, so is its name",
    }
}

fn no_such_page(before: &str) -> ServiceError {
    let shown: String = before.chars().take(64).collect();
    ServiceError::invalid(
        format!("before: there is no job '{shown}'"),
        "give the 'next' of the page before, as it was answered",
    )
}
