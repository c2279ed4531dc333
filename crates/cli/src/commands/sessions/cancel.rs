//! `parhelia sessions cancel`: ask for the end; with `--wait` until everything is confirmed gone. The server goes on
//! trying whether or not anybody waits.

use std::time::Duration;

use parhelia_core::session::api::{CancelSession, SessionDetail};
use parhelia_core::session::{Session, SessionStatus};
use parhelia_core::time::Clock;

use super::{get, id_of, say};
use crate::args::SessionCancelArgs;
use crate::client::Client;
use crate::context::Context;
use crate::error::{CliError, Result};

const USUAL_GRACE: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn run(ctx: &Context, args: SessionCancelArgs) -> Result<()> {
    let client = ctx.client()?;
    // Every id must be known before anything is done to any of them.
    let mut details: Vec<SessionDetail> = Vec::new();
    for id in &args.ids {
        let detail = get(&client, id).await?;
        if details.iter().all(|known| id_of(&known.view) != id_of(&detail.view)) {
            details.push(detail);
        }
    }
    let request = CancelSession {
        reason: args.reason.clone(),
        force: args.force,
        grace_seconds: args.grace.map(|grace| grace.as_secs_f64().ceil() as i64),
    };
    ctx.if_interrupted("no longer waiting; the server goes on trying");
    let mut pending = Vec::new();
    for (index, detail) in details.iter().enumerate() {
        let (id, status) = (id_of(&detail.view), detail.view.session.status);
        if status.is_over() {
            say(ctx, &format!("Session {id} was already over ({status})."))?;
            continue;
        }
        let _: Session = client.post_again(&format!("/sessions/{id}/cancel"), &request).await?;
        say(ctx, &format!("Cancelling session {id}..."))?;
        pending.push(index);
    }
    let grace = if args.force { Duration::ZERO } else { args.grace.unwrap_or(USUAL_GRACE) };
    if args.wait {
        let deadline = ctx.clock.monotonic() + args.timeout + grace;
        for index in &pending {
            settle(ctx, &client, &id_of(&details[*index].view), deadline).await?;
        }
    } else if !pending.is_empty() {
        ctx.out.hint("Requested; each receipt is in 'parhelia sessions show'. --wait waits for the end.");
    }
    if !ctx.out.is_human() {
        let mut views = Vec::with_capacity(details.len());
        for detail in &details {
            views.push(get(&client, &id_of(&detail.view)).await?.view);
        }
        ctx.out.list(&views, id_of, String::new)?;
    }
    Ok(())
}

async fn settle(ctx: &Context, client: &Client, id: &str, deadline: Duration) -> Result<()> {
    let mut pause = FIRST_PAUSE;
    loop {
        let detail = get(client, id).await?;
        match detail.view.session.status {
            SessionStatus::Cancelled => {
                return say(ctx, &format!("Session {id} is cancelled: everything of it is gone."));
            }
            over if over.is_over() => {
                return say(ctx, &format!("Session {id} was over before it could be cancelled ({over})."));
            }
            _ => {}
        }
        let left = deadline.saturating_sub(ctx.clock.monotonic());
        if left.is_zero() {
            let why = detail.waiting.first().map_or_else(String::new, |why| format!(" ({why})"));
            return Err(CliError::timeout(format!(
                "session {id} is not gone yet{why}; the server goes on trying"
            ))
            .fix(format!(
                "see 'parhelia why {id}', or do not wait: 'parhelia sessions cancel --force {id}'"
            )));
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}
