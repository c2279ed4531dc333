//! `parhelia sessions`: what cascades do, what they wait for; their output, their end, their going on.

mod cancel;
mod logs;
pub(crate) mod watch;

use parhelia_core::ids::SessionId;
use parhelia_core::session::Session;
use parhelia_core::session::api::{
    CleanupSessions, CleanupSessionsReport, ResumeSession, SessionDetail, SessionList, SessionTotals,
    SessionTree, SessionView,
};

use super::containers::watch::INTERVAL;
use crate::args::{SessionListArgs, SessionResumeArgs, SessionWatchArgs, SessionsArgs, SessionsCommand};
use crate::client::{Client, segment};
use crate::context::Context;
use crate::error::{CliError, Result};
use crate::output::{self, text};

/// How many sessions one question asks for.
const PAGE: u64 = 500;

pub(super) async fn run(ctx: &Context, args: SessionsArgs) -> Result<()> {
    let Some(command) = args.command else { return list(ctx, args.list).await };
    if args.list != SessionListArgs::default() {
        return Err(CliError::usage("filters stand after the command that they are for")
            .fix("write it like 'parhelia sessions list --status running'"));
    }
    match command {
        SessionsCommand::List(args) => list(ctx, args).await,
        SessionsCommand::Show { id } => show(ctx, &id).await,
        SessionsCommand::Tree { id } => tree(ctx, &id).await,
        SessionsCommand::Watch(SessionWatchArgs { id: Some(id), .. }) => watch::one(ctx, &id).await,
        SessionsCommand::Watch(SessionWatchArgs { id: None, interval, count }) => {
            watch::all(ctx, &SessionListArgs::default(), interval, count).await
        }
        SessionsCommand::Cancel(args) => cancel::run(ctx, args).await,
        SessionsCommand::Resume(args) => resume(ctx, args).await,
        SessionsCommand::Cleanup { dry_run } => cleanup(ctx, dry_run).await,
        SessionsCommand::Logs(args) => logs::run(ctx, args).await,
    }
}

/// One session, by its id, a unique prefix of it, or its name.
async fn get(client: &Client, id: &str) -> Result<SessionDetail> {
    client.get(&format!("/sessions/{}", segment(id)?), &[]).await
}

pub(crate) async fn get_tree(client: &Client, id: &str) -> Result<SessionTree> {
    client.get(&format!("/sessions/{}/tree", segment(id)?), &[]).await
}

fn id_of(view: &SessionView) -> String {
    view.session.session_id.to_string()
}

fn query_of(args: &SessionListArgs) -> Vec<(&'static str, String)> {
    let mut query = Vec::new();
    if !args.status.is_empty() {
        query.push(("status", args.status.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(",")));
    }
    query.extend(args.cascade.clone().map(|cascade| ("cascade", cascade)));
    query.extend(args.parent.clone().map(|parent| ("parent", parent)));
    query.extend(args.all.then(|| ("all", "true".to_owned())));
    query
}

/// All that match, or the newest `limit`, page by page: each goes on from the oldest of the one before.
async fn fetch(client: &Client, args: &SessionListArgs) -> Result<(Vec<SessionView>, SessionTotals)> {
    let mut sessions: Vec<SessionView> = Vec::new();
    let mut before: Option<SessionId> = None;
    loop {
        let wanted = args.limit.map_or(PAGE, |limit| limit.saturating_sub(sessions.len() as u64).min(PAGE));
        let mut query = query_of(args);
        query.push(("limit", wanted.to_string()));
        query.extend(before.map(|id| ("before", id.to_string())));
        let page: SessionList = client.get("/sessions", &query).await?;
        sessions.extend(page.sessions);
        before = page.next;
        if before.is_none() || args.limit.is_some_and(|limit| sessions.len() as u64 >= limit) {
            return Ok((sessions, page.totals));
        }
    }
}

async fn list(ctx: &Context, args: SessionListArgs) -> Result<()> {
    if args.watch {
        return watch::all(ctx, &args, INTERVAL, None).await;
    }
    let (sessions, totals) = fetch(&ctx.client()?, &args).await?;
    ctx.out.list(&sessions, id_of, || match sessions.is_empty() {
        true => String::new(),
        false => {
            output::session_list::list(&sessions, &totals, ctx.now(), ctx.out.is_wide(), ctx.out.width())
        }
    })?;
    match (sessions.is_empty(), totals.inbox) {
        (true, _) => ctx.out.hint(nothing(&args, &totals)),
        (false, 0) => {}
        (false, _) => ctx.out.hint("Some wait for a person: 'parhelia inbox' shows what they ask."),
    }
    Ok(())
}

fn nothing(args: &SessionListArgs, totals: &SessionTotals) -> &'static str {
    if totals.total == 0 {
        "No sessions yet. Start one with 'parhelia run FILE'."
    } else if *args == SessionListArgs::default() {
        "No sessions. 'parhelia sessions --all' shows those too that were over more than a day ago."
    } else {
        "No sessions match. Try fewer filters."
    }
}

async fn show(ctx: &Context, id: &str) -> Result<()> {
    let detail = get(&ctx.client()?, id).await?;
    ctx.out.one(&detail, &id_of(&detail.view), || output::sessions::show(&detail, ctx.now()))
}

async fn tree(ctx: &Context, id: &str) -> Result<()> {
    let tree = get_tree(&ctx.client()?, id).await?;
    let width = ctx.out.width();
    ctx.out.one(&tree, &id_of(&tree.detail.view), || output::session_tree::screen(&tree, ctx.now(), width))
}

async fn resume(ctx: &Context, args: SessionResumeArgs) -> Result<()> {
    let client = ctx.client()?;
    let path = format!("/sessions/{}/resume", segment(&args.id)?);
    let session: Session = client.post_once(&path, &ResumeSession { from: args.from }).await?;
    ctx.out.one(&session, session.session_id.as_str(), || output::sessions::resumed(&session))?;
    ctx.out.hint(&format!("Follow it with 'parhelia sessions watch {}'.", session.session_id));
    Ok(())
}

async fn cleanup(ctx: &Context, dry_run: bool) -> Result<()> {
    let report: CleanupSessionsReport =
        ctx.client()?.post_again("/sessions/cleanup", &CleanupSessions { dry_run }).await?;
    ctx.out.list(
        &report.zombies,
        |zombie| zombie.session_id.to_string(),
        || match report.zombies.is_empty() {
            true => String::new(),
            false => output::sessions::zombies(&report, ctx.now()),
        },
    )?;
    if report.zombies.is_empty() {
        ctx.out.hint("Every session that is not over has a living server: nothing to clean up.");
    } else if report.dry_run {
        ctx.out.hint("Dry run: nothing was changed.");
    }
    Ok(())
}

fn say(ctx: &Context, line: &str) -> Result<()> {
    if ctx.out.is_human() { ctx.out.line(&text::clean(line)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parhelia_core::session::SessionStatus;

    #[test]
    fn filters_become_one_query() {
        let args = SessionListArgs {
            status: vec![SessionStatus::Running, SessionStatus::Blocked],
            cascade: Some("release".into()),
            all: true,
            ..SessionListArgs::default()
        };
        let query: Vec<String> = query_of(&args).into_iter().map(|(k, v)| format!("{k}:{v}")).collect();
        assert_eq!(query, ["status:running,blocked", "cascade:release", "all:true"]);
        assert!(query_of(&SessionListArgs::default()).is_empty());
    }
}
