//! `parhelia recovery` and `parhelia startup-log`: what became of the jobs over a restart, and of the starts themselves.

use parhelia_core::job::admin::{
    FailedJobs, Heartbeats, RecoveryMetrics, RecoveryStatus, Sentinels, StaleJobs, StartupLog,
};

use crate::args::RecoveryCommand;
use crate::context::Context;
use crate::error::Result;
use crate::output::recovery as screen;

pub(super) async fn run(ctx: &Context, command: Option<RecoveryCommand>) -> Result<()> {
    let client = ctx.client()?;
    let now = ctx.now();
    match command.unwrap_or(RecoveryCommand::Status) {
        RecoveryCommand::Status => {
            let found: RecoveryStatus = client.get_admin("/recovery/jobs/status").await?;
            ctx.out.one(&found, found.recovery.phase.as_str(), || screen::status(&found, now))
        }
        RecoveryCommand::Sentinels => {
            let found: Sentinels = client.get_admin("/recovery/jobs/sentinels").await?;
            let ids = found.sentinels.iter().map(|one| one.job_id);
            ctx.out.one(&found, &lines(ids), || screen::sentinels(&found))
        }
        RecoveryCommand::Heartbeats => {
            let found: Heartbeats = client.get_admin("/recovery/jobs/heartbeats").await?;
            ctx.out
                .one(&found, &lines(found.jobs.iter().map(|one| one.job_id)), || screen::heartbeats(&found))
        }
        RecoveryCommand::Metrics => {
            let found: RecoveryMetrics = client.get_admin("/recovery/jobs/metrics").await?;
            ctx.out.one(&found, &found.total.to_string(), || screen::metrics(&found))
        }
        RecoveryCommand::Failed => {
            let found: FailedJobs = client.get_admin("/recovery/jobs/failed").await?;
            let ids = found.failed_jobs.iter().map(|one| one.job_id);
            ctx.out.one(&found, &lines(ids), || screen::failed(&found, now))
        }
        RecoveryCommand::Stale => {
            let found: StaleJobs = client.get_admin("/recovery/jobs/stale").await?;
            let ids = found.stale_jobs.iter().map(|one| one.job_id);
            ctx.out.one(&found, &lines(ids), || screen::stale(&found))
        }
    }
}

pub(super) async fn startup_log(ctx: &Context) -> Result<()> {
    let found: StartupLog = ctx.client()?.get_admin("/startup-log").await?;
    let ids = found.startups.iter().map(|one| &one.owner_id);
    ctx.out.one(&found, &lines(ids), || screen::startups(&found, ctx.now()))
}

fn lines(ids: impl Iterator<Item = impl ToString>) -> String {
    ids.map(|id| id.to_string()).collect::<Vec<_>>().join("\n")
}
