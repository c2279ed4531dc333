//! What is known of the jobs and of the starts of servers, for those who look after them. It reads: the rows, and the
//! files of this home as they are at this moment.

use std::collections::{HashMap, HashSet};

use parhelia_core::Timestamp;
use parhelia_core::job::admin::{
    FailedJob, FailedJobs, HeartbeatSummary, Heartbeats, JobHealth, JobHeartbeat, LockWord, RecoveryFinding,
    RecoveryJob, RecoveryMetrics, RecoveryPhase, RecoveryProgress, RecoveryStatus, ResumeOption,
    SentinelState, SentinelView, Sentinels, StaleJob, StaleJobs, StartupLog,
};
use parhelia_core::job::classify::{ContainerSeen, JobFacts, LockSeen, SentinelSeen};
use parhelia_core::job::{Job, JobStatus};
use parhelia_core::time::seconds_between;
use parhelia_providers::process::jobs::JobFiles;
use parhelia_store::ShownFilter;
use uuid::Uuid;

use super::{Service, ServiceError};
use crate::loops::jobs::Found;
use crate::startup;

/// The most failed jobs in one answer.
const FAILED_MAX: i64 = 1000;

/// A job with what its files say now, where they are on this machine.
struct Seen {
    job: Job,
    container: ContainerSeen,
    facts: Option<JobFacts>,
}

impl Seen {
    /// The newest that anybody knows of.
    fn heartbeat_at(&self) -> Option<Timestamp> {
        match self.facts.as_ref().map(|facts| &facts.sentinel) {
            Some(SentinelSeen::Read(beat)) => Some(beat.heartbeat_at),
            _ => self.job.heartbeat_at.max(self.container.last_heartbeat_at),
        }
    }
}

fn age(at: Option<Timestamp>, now: Timestamp) -> Option<f64> {
    at.map(|at| seconds_between(at, now).max(0.0))
}

impl Service {
    fn job_files(&self) -> Option<(&str, JobFiles)> {
        self.providers
            .iter()
            .find_map(|(name, handle)| handle.provider.job_files().map(|files| (name.as_str(), files)))
    }

    /// All jobs that are not known to have ended.
    async fn seen(&self) -> Result<Vec<Seen>, ServiceError> {
        let rows = self.store.jobs_watched(None).await?;
        let mut facts = HashMap::new();
        if let Some((name, files)) = self.job_files() {
            let here = rows.iter().filter(|(_, container)| container.provider == name);
            let ids: Vec<Uuid> = here.map(|(job, _)| job.id).collect();
            if let Ok(found) = files.facts(ids.clone()).await {
                facts.extend(ids.into_iter().zip(found));
            }
        }
        let seen = |(job, container): (Job, ContainerSeen)| {
            let facts = facts.remove(&job.id);
            Seen { job, container, facts }
        };
        Ok(rows.into_iter().map(seen).collect())
    }

    pub async fn job_heartbeats(&self) -> Result<Heartbeats, ServiceError> {
        let now = self.clock.now();
        let mut summary = HeartbeatSummary::default();
        let mut jobs = Vec::new();
        for seen in self.seen().await? {
            let (status, count) = match seen.job.status {
                JobStatus::Fresh | JobStatus::Reattached => (JobStatus::Fresh, &mut summary.fresh),
                JobStatus::Stale => (JobStatus::Stale, &mut summary.stale),
                JobStatus::Dead => (JobStatus::Dead, &mut summary.dead),
                // It has not been heard yet.
                JobStatus::Pending | JobStatus::Finished | JobStatus::Failed => continue,
            };
            *count += 1;
            summary.total += 1;
            let last_heartbeat = seen.heartbeat_at();
            jobs.push(JobHeartbeat {
                job_id: seen.job.id,
                last_heartbeat,
                age_seconds: age(last_heartbeat, now).map(|age| age as i64),
                status,
                agent_engine: seen.job.engine,
            });
        }
        Ok(Heartbeats { jobs, summary })
    }

    pub async fn stale_jobs(&self) -> Result<StaleJobs, ServiceError> {
        let now = self.clock.now();
        let mut stale_jobs = Vec::new();
        for seen in self.seen().await? {
            if seen.job.status != JobStatus::Stale {
                continue;
            }
            let last_heartbeat = seen.heartbeat_at();
            // Hundredths are enough, and legible.
            let age_minutes = age(last_heartbeat, now).map(|age| (age / 60.0 * 100.0).round() / 100.0);
            let workspace_path = match self.job_files() {
                Some((name, files)) if name == seen.container.provider => {
                    let said = files.sentinel(seen.job.id).await;
                    let said = said.and_then(|file| Some(file.get("workspacePath")?.as_str()?.to_owned()));
                    Some(said.unwrap_or_else(|| files.directory(seen.job.id).display().to_string()))
                }
                _ => None,
            };
            stale_jobs.push(StaleJob {
                job_id: seen.job.id,
                last_heartbeat,
                age_minutes,
                workspace_path,
                recommended_action: "investigate".to_owned(),
            });
        }
        Ok(StaleJobs { stale_jobs })
    }

    pub async fn job_health(&self, given: &str) -> Result<JobHealth, ServiceError> {
        let view = self.job(given).await?;
        let job = view.job;
        let files = self.job_files().filter(|(name, _)| *name == view.provider).map(|(_, files)| files);
        let (sentinel, exists, workspace) = match &files {
            None => (None, false, false),
            Some(files) => {
                let facts = files.facts(vec![job.id]).await.ok().and_then(|mut all| all.pop());
                let exists = facts.is_some_and(|facts| facts.sentinel != SentinelSeen::Missing);
                let sentinel = files.sentinel(job.id).await;
                let said = sentinel.as_ref().and_then(|file| file.get("workspacePath")?.as_str());
                let directory = files.directory(job.id);
                let path = said.map_or(directory, std::path::PathBuf::from);
                (sentinel, exists, tokio::fs::try_exists(path).await.unwrap_or(false))
            }
        };
        let said = sentinel.as_ref().and_then(|file| file.get("lastHeartbeat")?.as_str()?.parse().ok());
        let last_heartbeat = said.or(job.heartbeat_at);
        Ok(JobHealth {
            job_id: job.id,
            heartbeat_status: job.status,
            last_heartbeat,
            age_seconds: age(last_heartbeat, self.clock.now()).map(|age| age as i64),
            sentinel_file_exists: exists,
            workspace_exists: workspace,
            session_data_exists: job.agent_session.is_some(),
        })
    }

    pub async fn recovery_status(&self) -> Result<RecoveryStatus, ServiceError> {
        let found = self.job_news.progress().found;
        let mut jobs = Vec::new();
        let mut shown = HashSet::new();
        for seen in self.seen().await? {
            shown.insert(seen.job.id);
            let heartbeat = seen.heartbeat_at();
            let finding = found.get(&seen.job.id);
            jobs.push(recovery_job(seen.job, heartbeat, finding));
        }
        for (id, finding) in &found {
            if !shown.contains(id)
                && let Some(job) = self.store.job(*id).await?
            {
                let heartbeat = job.heartbeat_at;
                jobs.push(recovery_job(job, heartbeat, Some(finding)));
            }
        }
        Ok(RecoveryStatus { recovery: self.recovery_progress(), jobs })
    }

    fn recovery_progress(&self) -> RecoveryProgress {
        let progress = self.job_news.progress();
        let tally = progress.tally();
        let phase = match (progress.classified_at, progress.finished_at) {
            (None, _) => RecoveryPhase::Classifying,
            (Some(_), None) => RecoveryPhase::Watching,
            (Some(_), Some(_)) => RecoveryPhase::Finished,
        };
        RecoveryProgress {
            phase,
            started_at: progress.began_at,
            classified_at: progress.classified_at,
            finished_at: progress.finished_at,
            total: tally.total as i64,
            reattached: tally.reattached as i64,
            ended: tally.ended as i64,
            gone: tally.gone as i64,
            watched: tally.watched as i64,
        }
    }

    pub async fn sentinels(&self) -> Result<Sentinels, ServiceError> {
        let Some((name, files)) = self.job_files() else { return Ok(Sentinels { sentinels: Vec::new() }) };
        let unreadable = |error: parhelia_providers::ProviderError| ServiceError::Unavailable {
            message: error.to_string(),
            fix: "check the home's jobs directory".into(),
        };
        let open: HashSet<Uuid> =
            self.store.jobs_watched(Some(name)).await?.into_iter().map(|(job, _)| job.id).collect();
        let mut ids = files.ids().await.map_err(unreadable)?;
        ids.extend(open.iter().copied());
        ids.sort();
        ids.dedup();
        let facts = files.facts(ids.clone()).await.map_err(unreadable)?;
        let now = self.clock.now();
        let mut sentinels = Vec::new();
        for (id, facts) in ids.into_iter().zip(facts) {
            let recorded = open.contains(&id);
            if facts.sentinel == SentinelSeen::Missing && !recorded {
                continue;
            }
            let recorded = recorded || self.store.job(id).await?.is_some();
            let (state, problem, beat) = match &facts.sentinel {
                SentinelSeen::Missing => (SentinelState::Missing, None, None),
                SentinelSeen::Empty => (SentinelState::Empty, None, None),
                SentinelSeen::Corrupt { why } => (SentinelState::Corrupt, Some(why.clone()), None),
                SentinelSeen::Read(beat) => (SentinelState::Read, None, Some(beat.heartbeat_at)),
            };
            let (lock, doubt) = match facts.lock {
                LockSeen::Held => (LockWord::Held, None),
                LockSeen::Free { .. } => (LockWord::Free, None),
                LockSeen::Unknown { why } => (LockWord::Unknown, Some(why)),
            };
            sentinels.push(SentinelView {
                job_id: id,
                path: files.directory(id).join(".sentinel.json").display().to_string(),
                state,
                problem,
                lock,
                doubt,
                age_seconds: age(beat, now).map(|age| age as i64),
                recorded,
                sentinel: if beat.is_some() { files.sentinel(id).await } else { None },
            });
        }
        Ok(Sentinels { sentinels })
    }

    pub async fn recovery_metrics(&self) -> Result<RecoveryMetrics, ServiceError> {
        let progress = self.job_news.progress();
        let tally = progress.tally();
        let mut times = Vec::new();
        for (id, found) in &progress.found {
            if *found == Found::Reattached {
                times.extend(self.store.job(*id).await?.and_then(|job| job.reattach_ms));
            }
        }
        let mean = (!times.is_empty()).then(|| times.iter().sum::<i64>() as f64 / times.len() as f64);
        let decided = tally.total - tally.watched;
        let well = (tally.reattached + tally.ended) as f64;
        let mut jobs_by_status = std::collections::BTreeMap::new();
        let mut waiting = 0;
        for count in self.store.job_counts().await? {
            waiting += count.waiting;
            jobs_by_status.insert(count.status.to_string(), count.jobs);
        }
        Ok(RecoveryMetrics {
            total: tally.total as i64,
            reattached: tally.reattached as i64,
            ended: tally.ended as i64,
            failed: tally.gone as i64,
            watched: tally.watched as i64,
            mean_reattach_ms: mean,
            success_rate: (decided > 0).then(|| well / decided as f64),
            jobs_by_status,
            waiting,
        })
    }

    pub async fn failed_jobs(&self) -> Result<FailedJobs, ServiceError> {
        let filter = ShownFilter {
            statuses: vec![JobStatus::Failed, JobStatus::Dead],
            limit: Some(FAILED_MAX),
            ..ShownFilter::default()
        };
        let failed = |shown: parhelia_store::ShownJob| {
            let job = shown.job;
            FailedJob {
                job_id: job.id,
                name: job.name,
                agent_engine: job.engine,
                status: job.status,
                reason: job.status_reason,
                exit_code: job.exit_code,
                failed_at: job.ended_at,
                last_heartbeat: job.heartbeat_at,
                resume: ResumeOption {
                    with_session: job.agent_session.is_some(),
                    session_id: job.agent_session,
                    command: format!("parhelia jobs resume {}", job.id),
                },
            }
        };
        let found = self.store.jobs_shown(&filter).await?;
        Ok(FailedJobs { failed_jobs: found.into_iter().map(failed).collect() })
    }

    pub async fn startup_log(&self) -> Result<StartupLog, ServiceError> {
        Ok(StartupLog { startups: self.store.startups(startup::KEPT).await? })
    }
}

fn recovery_job(job: Job, last_heartbeat: Option<Timestamp>, found: Option<&Found>) -> RecoveryJob {
    let finding = found.map(|found| match found {
        Found::Reattached => RecoveryFinding::Reattached,
        Found::Ended => RecoveryFinding::Ended,
        Found::Gone => RecoveryFinding::Gone,
        Found::Watched { .. } => RecoveryFinding::Watched,
    });
    let (watched_until, watched_because) = match found {
        Some(Found::Watched { until, why }) => (Some(*until), Some(why.clone())),
        _ => (None, None),
    };
    RecoveryJob {
        job_id: job.id,
        name: job.name,
        agent_engine: job.engine,
        status: job.status,
        status_reason: job.status_reason,
        activity: job.activity,
        waiting_reason: job.waiting_reason,
        last_heartbeat,
        finding,
        watched_until,
        watched_because,
        reattached_at: job.reattached_at,
        reattached_count: job.reattached_count,
        reattach_ms: job.reattach_ms,
    }
}
