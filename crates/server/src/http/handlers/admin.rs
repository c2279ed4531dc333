//! What those who look after the jobs and the starts ask. Under `/api/admin`, in camel case, for admins alone.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use parhelia_core::job::admin::{
    FailedJobs, Heartbeats, JobHealth, RecoveryMetrics, RecoveryStatus, ResumeJob, Sentinels, StaleJobs,
    StartupLog,
};
use parhelia_core::job::api::{JobView, ResumeRequest};

use super::{Answer, App, Body, Fault, Path, Who};

/// What the last start of this server found of each job, how far it is, and how every job is.
#[utoipa::path(get, path = "/api/admin/recovery/jobs/status", tag = "admin", responses((status = 200, body = RecoveryStatus)))]
pub(in crate::http) async fn recovery_status(State(app): State<App>) -> Answer<RecoveryStatus> {
    Ok(Json(app.service.recovery_status().await?))
}

/// The sentinel files of this home, as they are at this moment.
#[utoipa::path(get, path = "/api/admin/recovery/jobs/sentinels", tag = "admin", responses((status = 200, body = Sentinels)))]
pub(in crate::http) async fn sentinels(State(app): State<App>) -> Answer<Sentinels> {
    Ok(Json(app.service.sentinels().await?))
}

/// When each job was last heard, and how many are fresh, stale and dead.
#[utoipa::path(get, path = "/api/admin/recovery/jobs/heartbeats", tag = "admin", responses((status = 200, body = Heartbeats)))]
pub(in crate::http) async fn heartbeats(State(app): State<App>) -> Answer<Heartbeats> {
    Ok(Json(app.service.job_heartbeats().await?))
}

/// The figures of the last recovery, and of all jobs.
#[utoipa::path(get, path = "/api/admin/recovery/jobs/metrics", tag = "admin", responses((status = 200, body = RecoveryMetrics)))]
pub(in crate::http) async fn metrics(State(app): State<App>) -> Answer<RecoveryMetrics> {
    Ok(Json(app.service.recovery_metrics().await?))
}

/// The jobs that failed, each with the reason and how it could go on.
#[utoipa::path(get, path = "/api/admin/recovery/jobs/failed", tag = "admin", responses((status = 200, body = FailedJobs)))]
pub(in crate::http) async fn failed(State(app): State<App>) -> Answer<FailedJobs> {
    Ok(Json(app.service.failed_jobs().await?))
}

/// The jobs that are silent and not known to be dead.
#[utoipa::path(get, path = "/api/admin/recovery/jobs/stale", tag = "admin", responses((status = 200, body = StaleJobs)))]
pub(in crate::http) async fn stale(State(app): State<App>) -> Answer<StaleJobs> {
    Ok(Json(app.service.stale_jobs().await?))
}

/// The last ten starts, step by step. One without an end was cut off, or is under way.
#[utoipa::path(get, path = "/api/admin/startup-log", tag = "admin", responses((status = 200, body = StartupLog)))]
pub(in crate::http) async fn startup_log(State(app): State<App>) -> Answer<StartupLog> {
    Ok(Json(app.service.startup_log().await?))
}

/// How one job is: its heartbeat, and what there is of it on the disk.
#[utoipa::path(
    get, path = "/api/admin/jobs/{id}/health", tag = "admin",
    params(("id" = String, Path, description = "its id or a unique prefix of it, its container's id, or its name")),
    responses((status = 200, body = JobHealth)),
)]
pub(in crate::http) async fn health(State(app): State<App>, Path(id): Path<String>) -> Answer<JobHealth> {
    Ok(Json(app.service.job_health(&id).await?))
}

/// A new job with the context of an earlier one.
#[utoipa::path(
    post, path = "/api/admin/recovery/jobs/resume", tag = "admin",
    request_body = ResumeJob, responses((status = 201, body = JobView)),
)]
pub(in crate::http) async fn resume(
    State(app): State<App>,
    Extension(who): Who,
    Body(asked): Body<ResumeJob>,
) -> Result<(StatusCode, Json<JobView>), Fault> {
    let request = ResumeRequest::default();
    let resumed = app.service.resume_from(&asked.job_id, request, asked.from_checkpoint, &who).await?;
    Ok((StatusCode::CREATED, Json(resumed)))
}
