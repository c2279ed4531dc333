//! `parhelia jobs`: what runs as a job, how it is, what it waits for; its output, its end, its going on.

mod cancel;
mod cleanup;

use parhelia_core::job::admin::JobHealth;
use parhelia_core::job::api::{JobList, JobTotals, JobView, ResumeRequest};
use uuid::Uuid;

use super::containers::{logs, watch};
use crate::args::{JobListArgs, JobsArgs, JobsCommand, LogsArgs, ResumeArgs};
use crate::client::{Client, segment};
use crate::context::Context;
use crate::error::{CliError, Result};
use crate::output::{self, text};

/// How many jobs one question asks for.
const PAGE: u64 = 500;

pub(super) async fn run(ctx: &Context, args: JobsArgs) -> Result<()> {
    let Some(command) = args.command else { return list(ctx, args.list).await };
    if args.list != JobListArgs::default() {
        return Err(CliError::usage("filters stand after the command that they are for")
            .fix("write it like 'parhelia jobs list --status fresh'"));
    }
    match command {
        JobsCommand::List(args) => list(ctx, args).await,
        JobsCommand::Show { id } => show(ctx, &id).await,
        JobsCommand::Logs(args) => job_logs(ctx, args).await,
        JobsCommand::Health { id } => health(ctx, &id).await,
        JobsCommand::Attach(args) => super::exec::attach(ctx, args).await,
        JobsCommand::Cancel(args) => cancel::run(ctx, args).await,
        JobsCommand::Resume(args) => resume(ctx, args).await,
        JobsCommand::Cleanup(args) => cleanup::run(ctx, args).await,
    }
}

/// One job, by its id, a unique prefix of it, its container's id or its name.
pub(crate) async fn get(client: &Client, id: &str) -> Result<JobView> {
    client.get(&format!("/jobs/{}", segment(id)?), &[]).await
}

fn id_of(view: &JobView) -> String {
    view.job.id.to_string()
}

fn query_of(args: &JobListArgs) -> Vec<(&'static str, String)> {
    let mut query = Vec::new();
    if !args.status.is_empty() {
        query.push(("status", args.status.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(",")));
    }
    query.extend(args.engine.clone().map(|engine| ("engine", engine)));
    for (key, is) in [("waiting", args.waiting), ("all", args.all)] {
        query.extend(is.then(|| (key, "true".to_owned())));
    }
    query
}

/// All that match, or the newest `limit`, page by page: each goes on from the oldest of the one before.
async fn fetch(client: &Client, args: &JobListArgs) -> Result<(Vec<JobView>, JobTotals)> {
    let mut jobs: Vec<JobView> = Vec::new();
    let mut before: Option<Uuid> = None;
    loop {
        let wanted = args.limit.map_or(PAGE, |limit| limit.saturating_sub(jobs.len() as u64).min(PAGE));
        let mut query = query_of(args);
        query.push(("limit", wanted.to_string()));
        query.extend(before.map(|id| ("before", id.to_string())));
        let page: JobList = client.get("/jobs", &query).await?;
        jobs.extend(page.jobs);
        before = page.next;
        if before.is_none() || args.limit.is_some_and(|limit| jobs.len() as u64 >= limit) {
            return Ok((jobs, page.totals));
        }
    }
}

async fn list(ctx: &Context, args: JobListArgs) -> Result<()> {
    let client = ctx.client()?;
    if args.watch {
        return follow(ctx, &client, &args).await;
    }
    let (jobs, totals) = fetch(&client, &args).await?;
    ctx.out.list(&jobs, id_of, || match jobs.is_empty() {
        true => String::new(),
        false => output::jobs::list(&jobs, &totals, ctx.now(), ctx.out.is_wide()),
    })?;
    match (jobs.is_empty(), totals.waiting) {
        (true, _) => ctx.out.hint(nothing(&args, &totals)),
        (false, 0) => {}
        (false, _) => ctx.out.hint(output::jobs::WAITING_HINT),
    }
    Ok(())
}

fn nothing(args: &JobListArgs, totals: &JobTotals) -> &'static str {
    if *args == JobListArgs::default() && totals.total == 0 {
        "No jobs yet. Run one with 'parhelia exec -- make test'."
    } else if args.waiting {
        "Nobody waits for a person."
    } else if args.all || !args.status.is_empty() {
        "No jobs match. Try fewer filters."
    } else {
        "No jobs. 'parhelia jobs --all' shows those too that were over more than a day ago."
    }
}

/// On a terminal a table that redraws itself; elsewhere each round's jobs, one after another.
async fn follow(ctx: &Context, client: &Client, args: &JobListArgs) -> Result<()> {
    use std::io::IsTerminal;
    let live = ctx.out.is_human() && std::io::stdout().is_terminal();
    let mut first = true;
    loop {
        let (jobs, totals) = fetch(client, args).await?;
        let now = ctx.now();
        if live {
            let title = format!("{} UTC, every 2s; Ctrl-C ends", text::clock(now));
            let mut lines = vec![text::painted(&title, text::DIM), String::new()];
            let screen = output::jobs::list(&jobs, &totals, now, ctx.out.is_wide());
            let room = watch::terminal_rows().map_or(usize::MAX, |rows| rows.saturating_sub(3).max(2));
            lines.extend(screen.lines().take(room).map(str::to_owned));
            watch::draw(&lines, first)?;
        } else {
            for view in &jobs {
                let line = || output::jobs::line(view, now);
                ctx.out.streamed(view, &id_of(view), line)?;
            }
        }
        first = false;
        tokio::time::sleep(watch::INTERVAL).await;
    }
}

async fn show(ctx: &Context, id: &str) -> Result<()> {
    let view = get(&ctx.client()?, id).await?;
    ctx.out.one(&view, &id_of(&view), || output::jobs::show(&view, ctx.now()))
}

async fn health(ctx: &Context, id: &str) -> Result<()> {
    let client = ctx.client()?;
    let id = get(&client, id).await?.job.id;
    let found: JobHealth = client.get_admin(&format!("/jobs/{id}/health")).await?;
    ctx.out.one(&found, &id.to_string(), || output::jobs::health(&found))
}

async fn job_logs(ctx: &Context, args: LogsArgs) -> Result<()> {
    let client = ctx.client()?;
    let view = get(&client, &args.id).await?;
    logs::show(ctx, &client, view.job.container_id.as_str(), &args).await
}

async fn resume(ctx: &Context, args: ResumeArgs) -> Result<()> {
    let client = ctx.client()?;
    let path = format!("/jobs/{}/resume", segment(&args.id)?);
    let view: JobView = client.post_once(&path, &ResumeRequest { arguments: args.arguments }).await?;
    ctx.out.one(&view, &id_of(&view), || output::jobs::resumed(&view))?;
    let short = output::jobs::short(&view.job);
    ctx.out.hint(&match view.job.interactive {
        true => format!("Sit down at it with 'parhelia jobs attach {short}'."),
        false => format!("Follow it with 'parhelia jobs logs {short} -f'."),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use parhelia_core::job::JobStatus;

    #[test]
    fn filters_become_one_query() {
        let args = JobListArgs {
            status: vec![JobStatus::Fresh, JobStatus::Stale],
            waiting: true,
            engine: Some("codex".into()),
            ..JobListArgs::default()
        };
        let query: Vec<String> = query_of(&args).into_iter().map(|(k, v)| format!("{k}:{v}")).collect();
        assert_eq!(query, ["status:fresh,stale", "engine:codex", "waiting:true"]);
        assert!(query_of(&JobListArgs::default()).is_empty());
    }
}
