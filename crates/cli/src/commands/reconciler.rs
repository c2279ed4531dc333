//! `parhelia reconciler`: whether records and reality are being compared, and what the last pass found.

use std::time::Duration;

use parhelia_core::api::ReconcilerStatus;

use crate::context::Context;
use crate::error::{CliError, Result};
use crate::output;

/// A pass may ask every provider about many containers.
const PATIENCE: Duration = Duration::from_secs(660);

pub(super) async fn status(ctx: &Context) -> Result<()> {
    let status: ReconcilerStatus = ctx.client()?.get("/reconciler", &[]).await?;
    let word = if status.running { "running" } else { "stopped" };
    ctx.out.one(&status, word, || output::reconciler::status(&status, ctx.now()))
}

pub(super) async fn run(ctx: &Context) -> Result<()> {
    ctx.if_interrupted("no longer waiting; the server finishes the pass");
    let status: ReconcilerStatus = ctx.client()?.post_bare("/reconciler/run", PATIENCE).await?;
    let screen = || output::reconciler::providers(&status, ctx.now()).trim_start_matches('\n').to_owned();
    ctx.out.one(&status, "done", screen)?;
    let silent: Vec<&str> =
        status.providers.iter().filter(|p| p.unreachable_since.is_some()).map(|p| p.name.as_str()).collect();
    if silent.is_empty() {
        return Ok(());
    }
    Err(CliError::failure("provider_unreachable", format!("no answer from {}", silent.join(", ")))
        .fix("nothing was changed there; it is tried again by itself"))
}
