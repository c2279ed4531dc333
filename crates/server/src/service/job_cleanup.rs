//! Cleanup of job directories: shows what qualifies; removes exactly what was shown, after asking its provider once
//! more. The reconciler does the same by itself when `jobs.keep_days` are over.

use parhelia_core::Timestamp;
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::job::Job;
use parhelia_core::job::api::{
    JobCleanupOutcome, JobCleanupReport, JobCleanupRequest, JobCleanupVerdict, JobView,
};
use parhelia_core::sandbox::{Inspection, Phase};
use parhelia_core::state::ContainerState;
use parhelia_core::time::seconds_between;
use parhelia_providers::SandboxRef;
use parhelia_store::{ShownFilter, StoreError};
use serde_json::json;
use uuid::Uuid;

use super::{Caller, Service, ServiceError};

impl Service {
    pub async fn cleanup_jobs(
        &self,
        request: JobCleanupRequest,
        caller: &Caller,
    ) -> Result<JobCleanupReport, ServiceError> {
        if let Some(open) = request.statuses.iter().find(|status| !status.is_over()) {
            return Err(ServiceError::invalid(
                format!("a job that is {open} is not over"),
                "use dead, finished or failed; end a job first with 'parhelia jobs cancel'",
            ));
        }
        let older_than = request.older_than_seconds.unwrap_or(self.config.jobs.keep_days as i64 * 86_400);
        if older_than < 0 {
            return Err(ServiceError::invalid("an age is not negative", "give 0 or more seconds"));
        }
        let now = self.clock.now();
        let Some(ids) = &request.ids else {
            let filter =
                ShownFilter { statuses: request.statuses.clone(), uncleaned: true, ..ShownFilter::default() };
            let found = self.store.jobs_shown(&filter).await?;
            let views = found.into_iter().map(|shown| self.job_view(shown, now));
            let candidates =
                views.filter(|view| qualifies(view, &request, older_than, now).is_ok()).collect();
            return Ok(JobCleanupReport { candidates, outcomes: Vec::new() });
        };
        let most = self.config.server.max_batch as usize;
        if ids.len() > most {
            let message = format!("{} ids are too many", ids.len());
            return Err(ServiceError::invalid(message, format!("send at most {most}")));
        }
        if !self.job_news.recovered() {
            return Err(ServiceError::Conflict {
                message: "what was found at the start of this server is not decided yet; nothing was removed"
                    .into(),
                fix: "repeat it when 'parhelia recovery status' says that the recovery is over",
            });
        }
        let mut outcomes = Vec::with_capacity(ids.len());
        for id in ids {
            let (verdict, message) = self.clean_job(*id, &request, older_than, caller).await?;
            outcomes.push(JobCleanupOutcome { id: *id, verdict, message });
        }
        Ok(JobCleanupReport { candidates: Vec::new(), outcomes })
    }

    async fn clean_job(
        &self,
        id: Uuid,
        request: &JobCleanupRequest,
        older_than: i64,
        caller: &Caller,
    ) -> Result<(JobCleanupVerdict, String), ServiceError> {
        use JobCleanupVerdict::{Cleaned, Failed, Skipped};
        let view = match self.shown(id).await {
            Ok(view) => view,
            Err(ServiceError::NotFound { .. }) => return Ok((Skipped, "there is no such job".into())),
            Err(other) => return Err(other),
        };
        if let Err(why) = qualifies(&view, request, older_than, self.clock.now()) {
            return Ok((Skipped, why));
        }
        let handle = match self.provider(&view.provider) {
            Ok(handle) => handle,
            Err(_) => {
                return Ok((Failed, format!("it is at {}: ask the server there", view.provider)));
            }
        };
        let sandbox = SandboxRef { container_id: view.job.container_id.clone(), sandbox_id: None };
        let timeout = std::time::Duration::from_secs(self.config.reconciler.provider_timeout_seconds);
        let late = || "its provider did not answer in time".to_owned();
        match tokio::time::timeout(timeout, handle.provider.inspect(&sandbox)).await {
            Err(_) => return Ok((Failed, late())),
            Ok(Err(error)) => return Ok((Failed, format!("its provider could not be asked: {error}"))),
            Ok(Ok(Inspection::Present(found))) => match found.phase {
                Phase::Exited(_) => {}
                Phase::Unknown { why } => return Ok((Failed, why)),
                _ => return Ok((Skipped, "something of it is still alive".into())),
            },
            // Gone already: only the record is missing.
            Ok(Ok(Inspection::Absent)) => {}
        }
        let now = self.clock.now();
        match self.store.clean_job(None, id, now, cleaned(&view.job, Source::User, &caller.subject)).await {
            Ok(()) => {}
            Err(StoreError::Conflict { .. }) => {
                return Ok((Skipped, "it was changed at the same moment".into()));
            }
            Err(other) => return Err(other.into()),
        }
        match tokio::time::timeout(timeout, handle.provider.remove(&sandbox)).await {
            Ok(Ok(())) => Ok((Cleaned, "its directory and its output are gone".into())),
            Ok(Err(error)) => Ok((Failed, error.to_string())),
            Err(_) => Ok((Failed, late())),
        }
    }
}

/// Told before it is done: what could not be removed then goes with its age.
pub(crate) fn cleaned(job: &Job, source: Source, by: &str) -> NewEvent {
    let message = match by {
        "reconciler" => "The job's directory and its output go: its time is over".to_owned(),
        by => format!("The job's directory and its output go, as {by} asked"),
    };
    NewEvent::new(EventType::JobCleaned, source, message)
        .container(&job.container_id)
        .details(json!({ "job": job.id, "status": job.status, "by": by }))
}

fn qualifies(
    view: &JobView,
    request: &JobCleanupRequest,
    older_than: i64,
    now: Timestamp,
) -> Result<(), String> {
    let job = &view.job;
    if !job.status.is_over() {
        return Err(format!("it is {}: not over", job.status));
    }
    // Without its directory its absence would be all that the reconciler ever learns of it.
    if view.state != ContainerState::Terminated {
        return Err(format!("its container is {}: its end is not recorded yet", view.state));
    }
    if !request.statuses.is_empty() && !request.statuses.contains(&job.status) {
        return Err(format!("it is {}", job.status));
    }
    if job.cleaned_at.is_some() {
        return Err("it is clean already".into());
    }
    let over_for = seconds_between(job.ended_at.unwrap_or(job.status_at), now);
    if over_for < older_than as f64 {
        return Err(format!("it has been over for {}s only", over_for.max(0.0) as i64));
    }
    Ok(())
}
