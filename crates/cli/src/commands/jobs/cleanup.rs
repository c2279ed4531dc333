//! `parhelia jobs cleanup`: show whose directories could go, ask, and remove exactly those.

use parhelia_core::job::api::{JobCleanupOutcome, JobCleanupReport, JobCleanupRequest, JobCleanupVerdict};
use uuid::Uuid;

use super::id_of;
use crate::args::JobCleanupArgs;
use crate::context::Context;
use crate::error::{CliError, Result};
use crate::output::text::counted;
use crate::output::{self, confirm, text};

/// Ids in one request.
const PORTION: usize = 64;

pub(super) async fn run(ctx: &Context, args: JobCleanupArgs) -> Result<()> {
    let client = ctx.client()?;
    let older_than_seconds = args.older_than.map(|age| i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
    let look = JobCleanupRequest { older_than_seconds, statuses: args.status.clone(), ids: None };
    let found: JobCleanupReport = client.post_again("/jobs/cleanup", &look).await?;
    let candidates = found.candidates;
    if candidates.is_empty() {
        ctx.out.hint("No job that is over for long enough: nothing to clean up.");
        return ctx.out.list(&candidates, id_of, String::new);
    }
    let screen = || output::jobs::candidates(&candidates, ctx.now());
    if args.dry_run {
        ctx.out.list(&candidates, id_of, screen)?;
        ctx.out.hint("Dry run: nothing was removed.");
        return Ok(());
    }
    if ctx.out.is_human() {
        ctx.out.text(&screen())?;
    }
    let count = counted(candidates.len() as i64, "job");
    if !args.yes && !confirm(&format!("Remove the output of {count}?"), "parhelia jobs cleanup").await? {
        ctx.out.note("Nothing was removed.");
        return Ok(());
    }
    let ids: Vec<Uuid> = candidates.iter().map(|view| view.job.id).collect();
    let mut outcomes: Vec<JobCleanupOutcome> = Vec::new();
    for portion in ids.chunks(PORTION) {
        let act = JobCleanupRequest { ids: Some(portion.to_vec()), ..look.clone() };
        let part: JobCleanupReport = client.post_again("/jobs/cleanup", &act).await?;
        outcomes.extend(part.outcomes);
    }
    tell(ctx, &outcomes)
}

fn tell(ctx: &Context, outcomes: &[JobCleanupOutcome]) -> Result<()> {
    let of = |verdict| outcomes.iter().filter(move |one| one.verdict == verdict);
    ctx.out.list(
        outcomes,
        |one| one.id.to_string(),
        || {
            let cleaned = of(JobCleanupVerdict::Cleaned).count();
            let mut out = format!("{} cleaned up.\n", counted(cleaned as i64, "job"));
            for one in of(JobCleanupVerdict::Skipped) {
                out.push_str(&format!("{} was left alone: {}\n", one.id, text::clean(&one.message)));
            }
            out
        },
    )?;
    let failed: Vec<String> =
        of(JobCleanupVerdict::Failed).map(|one| format!("  {}: {}", one.id, one.message)).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let count = counted(failed.len() as i64, "job");
    Err(CliError::failure(
        "not_all_cleaned",
        format!("{count} could not be cleaned up:\n{}", failed.join("\n")),
    )
    .fix("what was begun is tried again with its age; see 'parhelia jobs show ID'"))
}
