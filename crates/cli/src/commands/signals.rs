//! `parhelia signals`: say something to whoever waits for it, and see what was said.

use parhelia_core::session::SignalRow;
use parhelia_core::session::api::{FireSignal, SignalList};

use crate::args::{SignalListArgs, SignalsArgs, SignalsCommand};
use crate::context::Context;
use crate::error::Result;
use crate::output;

pub(super) async fn run(ctx: &Context, args: SignalsArgs) -> Result<()> {
    match args.command {
        Some(SignalsCommand::Fire { name, session, payload }) => {
            fire(ctx, FireSignal { name, session, payload: payload.unwrap_or_default() }).await
        }
        Some(SignalsCommand::List(args)) => list(ctx, args).await,
        None => list(ctx, SignalListArgs { limit: 100, ..SignalListArgs::default() }).await,
    }
}

async fn fire(ctx: &Context, request: FireSignal) -> Result<()> {
    let signal: SignalRow = ctx.client()?.post_once("/signals", &request).await?;
    ctx.out.one(&signal, signal.id.as_str(), || output::signals::fired(&signal))
}

async fn list(ctx: &Context, args: SignalListArgs) -> Result<()> {
    let mut query = vec![("limit", args.limit.to_string())];
    query.extend(args.pending.then(|| ("pending", "true".to_owned())));
    query.extend(args.name.map(|name| ("name", name)));
    query.extend(args.session.map(|session| ("session", session)));
    let found: SignalList = ctx.client()?.get("/signals", &query).await?;
    let signals = &found.signals;
    ctx.out.list(
        signals,
        |signal| signal.id.to_string(),
        || match signals.is_empty() {
            true => String::new(),
            false => output::signals::table(signals, ctx.now(), ctx.out.is_wide(), ctx.out.width()),
        },
    )?;
    if signals.is_empty() {
        ctx.out.hint(if args.pending { "Every signal was taken." } else { "No signals match." });
    } else if found.next.is_some() {
        ctx.out.hint("There are more: see --limit.");
    }
    Ok(())
}
