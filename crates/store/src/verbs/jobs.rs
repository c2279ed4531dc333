//! Jobs and the log of starts. A job gets its row with its container's intent; the rest of its columns are the jobs
//! loop's, written whole and guarded by the status that it decided from.

use jiff::Timestamp;
use parhelia_core::event::NewEvent;
use parhelia_core::ids::ContainerId;
use parhelia_core::job::classify::ContainerSeen;
use parhelia_core::job::{Job, JobNote, JobStatus, Startup, StepReport};
use uuid::Uuid;

use super::containers::text_json;
use super::text_of;
use crate::error::Result;
use crate::script::{Script, params};
use crate::types::{Fence, JobCount, JobFilter, NewJob, ShownFilter, ShownJob};
use crate::{Store, row, sql};

/// After every id.
const LAST: &str = "~";

/// As the statements want it: `,fresh,stale,`.
fn listed(statuses: &[JobStatus]) -> Option<String> {
    (!statuses.is_empty()).then(|| {
        let words: Vec<_> = statuses.iter().map(|status| status.as_str()).collect();
        format!(",{},", words.join(","))
    })
}

impl Store {
    pub async fn job(&self, id: Uuid) -> Result<Option<Job>> {
        self.query_one(&sql::JOB, params![id], row::job).await
    }

    pub async fn job_of_container(&self, container: &ContainerId) -> Result<Option<Job>> {
        self.query_one(&sql::JOB_OF_CONTAINER, params![container], row::job).await
    }

    /// Newest first.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Vec<Job>> {
        let statuses = listed(&filter.statuses);
        let (prefix, end) = match &filter.prefix {
            Some(prefix) => (prefix.clone(), format!("{prefix}{LAST}")),
            None => (String::new(), LAST.to_owned()),
        };
        let (at, id) = match filter.before {
            Some((at, id)) => (parhelia_core::time::to_text(at), id.to_string()),
            None => (LAST.to_owned(), LAST.to_owned()),
        };
        let limit = filter.limit.unwrap_or(i64::MAX);
        let engine = filter.engine.as_ref();
        self.query(&sql::JOBS, params![statuses, engine, prefix, end, at, id, limit], row::job).await
    }

    /// Newest first.
    pub async fn jobs_shown(&self, filter: &ShownFilter) -> Result<Vec<ShownJob>> {
        let (at, id) = match filter.before {
            Some((at, id)) => (parhelia_core::time::to_text(at), id.to_string()),
            None => (LAST.to_owned(), LAST.to_owned()),
        };
        let given = params![
            listed(&filter.statuses),
            filter.engine.as_ref(),
            filter.name.as_ref(),
            filter.activity,
            filter.over_since,
            at,
            id,
            filter.limit.unwrap_or(i64::MAX),
            filter.id,
            filter.uncleaned,
        ];
        self.query(&sql::JOBS_SHOWN, given, row::shown_job).await
    }

    pub async fn job_counts(&self) -> Result<Vec<JobCount>> {
        self.query(&sql::JOB_COUNTS, params![], row::job_count).await
    }

    /// What the jobs loop looks at: all (of one provider) that are not known to have ended, with their containers.
    pub async fn jobs_watched(&self, provider: Option<&str>) -> Result<Vec<(Job, ContainerSeen)>> {
        self.query(&sql::JOBS_WATCHED, params![provider], row::watched_job).await
    }

    /// `Conflict` when its status is no longer the one that was decided from.
    pub async fn note_job(
        &self,
        fence: &Fence,
        id: Uuid,
        expect: JobStatus,
        note: &JobNote,
        events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<()> {
        let mut script = Script::fenced("note_job", fence);
        script.one(
            &sql::JOB_NOTE,
            params![
                id,
                expect,
                note.status,
                note.status_at,
                note.status_reason.as_ref(),
                note.activity,
                note.waiting_reason.as_ref(),
                note.waiting_since,
                note.agent_session.as_ref(),
                note.heartbeat_at,
                note.reattached_at,
                note.reattached_count,
                note.reattach_ms,
                note.ended_at,
                note.exit_code,
                note.cleanup_at,
            ],
        );
        script.events(events, &text_of(now));
        self.write(script).await.map(drop)
    }

    /// `Conflict` when it is not over, or was clean already.
    pub async fn clean_job(
        &self,
        fence: Option<&Fence>,
        id: Uuid,
        now: Timestamp,
        event: NewEvent,
    ) -> Result<()> {
        let mut script = match fence {
            Some(fence) => Script::fenced("clean_job", fence),
            None => Script::new("clean_job"),
        };
        script.one(&sql::JOB_CLEANED, params![id, now]);
        script.events(vec![event], &text_of(now));
        self.write(script).await.map(drop)
    }

    /// Recorded before anything else is done: a start without an end was cut off.
    pub async fn begin_startup(&self, startup: &Startup, keep: i64) -> Result<()> {
        let mut script = Script::new("begin_startup");
        let Startup { owner_id, host, version, started_at, .. } = startup;
        script.one(&sql::STARTUP_BEGIN, params![owner_id, host, version, *started_at]);
        script.step(&sql::STARTUPS_DELETE, params![keep]);
        self.write(script).await.map(drop)
    }

    pub async fn note_startup(
        &self,
        owner_id: &str,
        steps: &[StepReport],
        finished_at: Option<Timestamp>,
    ) -> Result<()> {
        let mut script = Script::new("note_startup");
        script.one(&sql::STARTUP_NOTE, params![owner_id, text_json(&steps)?, finished_at]);
        self.write(script).await.map(drop)
    }

    /// The last step, with the event that tells of it.
    pub async fn finish_startup(
        &self,
        fence: &Fence,
        steps: &[StepReport],
        event: NewEvent,
        now: Timestamp,
    ) -> Result<()> {
        let mut script = Script::fenced("finish_startup", fence);
        script.one(&sql::STARTUP_NOTE, params![&fence.owner_id, text_json(&steps)?, Some(now)]);
        script.event(event, &text_of(now));
        self.write(script).await.map(drop)
    }

    /// The last start of this home before that of `owner_id`.
    pub async fn startup_before(&self, home_id: &str, owner_id: &str) -> Result<Option<Startup>> {
        self.query_one(&sql::STARTUP_BEFORE, params![home_id, owner_id], row::startup).await
    }

    /// Newest first.
    pub async fn startups(&self, limit: i64) -> Result<Vec<Startup>> {
        self.query(&sql::STARTUPS, params![limit], row::startup).await
    }
}

impl Script {
    pub(crate) fn insert_job(&mut self, container: &ContainerId, job: NewJob, created_at: Timestamp) {
        self.one(
            &sql::JOB_INSERT,
            params![
                job.id,
                container,
                job.name,
                job.engine,
                job.origin_id,
                job.timeout_seconds,
                job.interactive,
                created_at,
                job.created_by,
                job.agent_session,
            ],
        );
    }
}
