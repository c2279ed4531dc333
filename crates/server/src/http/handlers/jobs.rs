//! Jobs: run one, look at them, end one, go on with one.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use parhelia_core::api::StopRequest;
use parhelia_core::job::api::{
    ExecRequest, JobCleanupReport, JobCleanupRequest, JobList, JobView, ResumeRequest,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, App, Ask, Body, Fault, Path, Who, words};
use crate::service::JobQuery;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct JobsAsk {
    /// One or several statuses, with commas between them.
    status: Option<String>,
    engine: Option<String>,
    /// Exactly this name.
    name: Option<String>,
    /// Only those that need a person.
    #[serde(default)]
    #[param(required = false)]
    waiting: bool,
    /// Those too that were over long ago.
    #[serde(default)]
    #[param(required = false)]
    all: bool,
    #[param(maximum = 1000)]
    limit: Option<u32>,
    /// Those that were asked for before this one: the `next` of the page before.
    before: Option<String>,
}

/// The jobs, newest first: those that are not over, and those that were over in the last day.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "jobs", params(JobsAsk), responses((status = 200, body = JobList)))]
pub(in crate::http) async fn jobs(State(app): State<App>, Ask(ask): Ask<JobsAsk>) -> Answer<JobList> {
    let query = JobQuery {
        statuses: words("status", ask.status.as_deref())?,
        engine: ask.engine,
        name: ask.name,
        waiting: ask.waiting,
        all: ask.all,
        limit: ask.limit,
        before: ask.before,
    };
    Ok(Json(app.service.jobs(query).await?))
}

/// Runs a command as a job. The intent is recorded; the reconciler makes it real.
#[utoipa::path(
    post, path = "/api/v1/jobs", tag = "jobs",
    request_body = ExecRequest, responses((status = 201, body = JobView)),
)]
pub(in crate::http) async fn exec(
    State(app): State<App>,
    Extension(who): Who,
    Body(request): Body<ExecRequest>,
) -> Result<(StatusCode, Json<JobView>), Fault> {
    Ok((StatusCode::CREATED, Json(app.service.exec(request, &who).await?)))
}

/// One job, by its id, a unique prefix of it, its container's id, or its name.
#[utoipa::path(
    get, path = "/api/v1/jobs/{id}", tag = "jobs",
    params(("id" = String, Path, description = "its id or a unique prefix of it, its container's id, or its name")),
    responses((status = 200, body = JobView)),
)]
pub(in crate::http) async fn job(State(app): State<App>, Path(id): Path<String>) -> Answer<JobView> {
    Ok(Json(app.service.job(&id).await?))
}

/// Asks for its end and that of everything that it started: politely, and by force after the grace (10 s).
#[utoipa::path(
    post, path = "/api/v1/jobs/{id}/cancel", tag = "jobs", params(("id" = String, Path)),
    request_body(content = StopRequest, description = "may be left out"), responses((status = 200, body = JobView)),
)]
pub(in crate::http) async fn cancel(
    State(app): State<App>,
    Path(id): Path<String>,
    Extension(who): Who,
    Body(request): Body<StopRequest>,
) -> Answer<JobView> {
    Ok(Json(app.service.cancel_job(&id, request, &who).await?))
}

/// Starts a new job that goes on where an earlier one was.
#[utoipa::path(
    post, path = "/api/v1/jobs/{id}/resume", tag = "jobs", params(("id" = String, Path)),
    request_body(content = ResumeRequest, description = "may be left out"), responses((status = 201, body = JobView)),
)]
pub(in crate::http) async fn resume(
    State(app): State<App>,
    Path(id): Path<String>,
    Extension(who): Who,
    Body(request): Body<ResumeRequest>,
) -> Result<(StatusCode, Json<JobView>), Fault> {
    Ok((StatusCode::CREATED, Json(app.service.resume_job(&id, request, &who).await?)))
}

/// Shows whose directories could go (without `ids`), or removes exactly those that were shown.
#[utoipa::path(
    post, path = "/api/v1/jobs/cleanup", tag = "jobs",
    request_body(content = JobCleanupRequest, description = "may be left out"),
    responses((status = 200, body = JobCleanupReport)),
)]
pub(in crate::http) async fn cleanup(
    State(app): State<App>,
    Extension(who): Who,
    Body(request): Body<JobCleanupRequest>,
) -> Answer<JobCleanupReport> {
    Ok(Json(app.service.cleanup_jobs(request, &who).await?))
}
