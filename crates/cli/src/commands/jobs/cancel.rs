//! `parhelia jobs cancel`: ask for the end; with `--wait` until it is confirmed. The server goes on trying whether or
//! not anybody waits.

use std::time::Duration;

use parhelia_core::api::StopRequest;
use parhelia_core::job::api::JobView;
use parhelia_core::state::ContainerState;
use parhelia_core::time::Clock;

use super::{get, id_of};
use crate::args::CancelArgs;
use crate::client::Client;
use crate::commands::wait::{self, Waited};
use crate::context::Context;
use crate::error::{CliError, Result};
use crate::output::{self, text};

const USUAL_GRACE: Duration = Duration::from_secs(10);

fn is_gone(state: ContainerState) -> bool {
    matches!(state, ContainerState::Stopped | ContainerState::Terminated)
}

pub(super) async fn run(ctx: &Context, args: CancelArgs) -> Result<()> {
    let client = ctx.client()?;
    // Every id must be known before anything is done to any of them.
    let mut views: Vec<JobView> = Vec::new();
    for id in &args.ids {
        let view = get(&client, id).await?;
        if views.iter().all(|known| known.job.id != view.job.id) {
            views.push(view);
        }
    }
    let grace = if args.force { Some(Duration::ZERO) } else { args.grace };
    let request = StopRequest {
        grace_seconds: grace.map(|grace| grace.as_secs_f64().ceil() as i64),
        reason: args.reason.clone(),
    };
    ctx.if_interrupted("no longer waiting; the server goes on trying");
    let mut pending = Vec::new();
    for (index, view) in views.iter_mut().enumerate() {
        let short = output::jobs::short(&view.job);
        if is_gone(view.state) {
            say(ctx, &format!("Job {short} was already over ({}).", output::jobs::ended(view)))?;
            continue;
        }
        *view = client.post_again(&format!("/jobs/{}/cancel", view.job.id), &request).await?;
        say(ctx, &format!("Cancelling job {short}..."))?;
        pending.push(index);
    }
    if args.wait {
        let deadline = ctx.clock.monotonic() + args.timeout + grace.unwrap_or(USUAL_GRACE);
        for index in pending {
            views[index] = settle(ctx, &client, &views[index], deadline).await?;
            let short = output::jobs::short(&views[index].job);
            say(ctx, &format!("Job {short} is gone ({}).", output::jobs::ended(&views[index])))?;
        }
    } else if !pending.is_empty() {
        ctx.out.hint("Requested; each receipt is in 'parhelia jobs show'. --wait waits for the end.");
    }
    if !ctx.out.is_human() {
        ctx.out.list(&views, id_of, String::new)?;
    }
    Ok(())
}

async fn settle(ctx: &Context, client: &Client, view: &JobView, deadline: Duration) -> Result<JobView> {
    let gone = |container: &parhelia_core::api::ContainerView| is_gone(container.record.state);
    let waited = wait::until(ctx, client, &view.job.container_id, Some(deadline), gone).await?;
    if let Waited::TimedOut(container) = waited {
        let id = view.job.id;
        let why =
            container.record.stop_error.as_deref().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(CliError::timeout(format!("job {id} is not gone yet{why}; the server goes on trying"))
            .fix(format!(
                "see 'parhelia jobs show {id}', or do not wait: 'parhelia jobs cancel --force {id}'"
            )));
    }
    get(client, &view.job.id.to_string()).await
}

fn say(ctx: &Context, line: &str) -> Result<()> {
    if ctx.out.is_human() { ctx.out.line(&text::clean(line)) } else { Ok(()) }
}
