//! `parhelia containers`: what is there, how it is, what it costs.

pub(crate) mod logs;
mod run;
mod stop;
pub(crate) mod watch;

use parhelia_core::api::{ContainerList, ContainerView, EventList, HeartbeatHistory, Totals};
use parhelia_core::ids::ContainerId;
use parhelia_core::state::ContainerState;

use crate::args::{
    ContainerEventsArgs, ContainersArgs, ContainersCommand, FilterArgs, Format, HeartbeatsArgs, ListArgs,
};
use crate::client::{Client, segment};
use crate::context::Context;
use crate::error::{CliError, Result};
use crate::output;

/// How many containers one question asks for.
const PAGE: u64 = 2000;

pub(super) async fn run(ctx: &Context, args: ContainersArgs) -> Result<()> {
    let Some(command) = args.command else { return list(ctx, args.list).await };
    if args.list != ListArgs::default() {
        return Err(CliError::usage("filters stand after the command that they are for")
            .fix("write it like 'parhelia containers list --state running'"));
    }
    match command {
        ContainersCommand::List(args) => list(ctx, args).await,
        ContainersCommand::Show { id } => show(ctx, &id).await,
        ContainersCommand::Events(args) => events(ctx, args).await,
        ContainersCommand::Orphans => orphans(ctx).await,
        ContainersCommand::Health => health(ctx).await,
        ContainersCommand::Watch(args) => watch::run(ctx, &args.filter, args.interval, args.count).await,
        ContainersCommand::Run(args) => run::run(ctx, *args).await,
        ContainersCommand::Stop(args) => stop::stop(ctx, args).await,
        ContainersCommand::Terminate(args) => stop::terminate(ctx, args).await,
        ContainersCommand::Logs(args) => logs::run(ctx, args).await,
        ContainersCommand::Heartbeats(args) => heartbeats(ctx, args).await,
    }
}

pub(crate) fn id_of(view: &ContainerView) -> String {
    view.record.id.to_string()
}

fn query_of(filter: &FilterArgs) -> Vec<(&'static str, String)> {
    let mut query = Vec::new();
    let mut add = |key, value: String| {
        if !value.is_empty() {
            query.push((key, value));
        }
    };
    add("state", filter.state.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(","));
    add("health", filter.health.iter().map(|h| h.as_str()).collect::<Vec<_>>().join(","));
    add("provider", filter.provider.clone().unwrap_or_default());
    add("task", filter.task.clone().unwrap_or_default());
    for (key, value) in &filter.label {
        add("label", format!("{key}={value}"));
    }
    // Who asks for terminated ones by name wants to see them.
    if filter.all || filter.state.contains(&ContainerState::Terminated) {
        add("all", "true".to_owned());
    }
    query
}

/// What was found, newest last.
struct Found {
    containers: Vec<ContainerView>,
    totals: Totals,
    as_of: Option<jiff::Timestamp>,
}

/// All that match, or the newest `limit`, page by page. A page goes on from the oldest container of the one
/// before, so that nothing is missed or doubled while others come and go.
async fn fetch(client: &Client, query: &[(&'static str, String)], limit: Option<u64>) -> Result<Found> {
    let mut pages: Vec<Vec<ContainerView>> = Vec::new();
    let (mut count, mut totals, mut before) = (0, None, None);
    loop {
        let wanted = limit.map_or(PAGE, |limit| limit.saturating_sub(count).min(PAGE));
        let mut page_query = query.to_vec();
        page_query.push(("limit", wanted.to_string()));
        page_query.extend(before.map(|id: ContainerId| ("before", id.to_string())));
        let page: ContainerList = client.get("/containers", &page_query).await?;
        totals = totals.or(page.totals);
        count += page.containers.len() as u64;
        pages.push(page.containers);
        before = page.next;
        if before.is_none() || limit.is_some_and(|limit| count >= limit) {
            let containers = pages.into_iter().rev().flatten().collect();
            return Ok(Found { containers, totals: totals.unwrap_or_default(), as_of: page.as_of });
        }
    }
}

async fn list(ctx: &Context, args: ListArgs) -> Result<()> {
    if args.watch {
        return watch::run(ctx, &args.filter, watch::INTERVAL, None).await;
    }
    let mut query = query_of(&args.filter);
    // Once, so that every page is about the same moment.
    query.extend(args.at.map(|at| ("at", at.resolve(ctx.now()).to_string())));
    let found = fetch(&ctx.client()?, &query, args.limit).await?;
    let Found { containers, totals, as_of } = &found;
    let foreign = totals.foreign > 0;
    ctx.out.list(containers, id_of, || match (containers.is_empty(), foreign) {
        (true, true) => output::containers::totals(totals) + "\n",
        (true, false) => String::new(),
        _ => output::containers::list(containers, totals, *as_of, ctx.out.is_wide()),
    })?;
    if let (true, Some(at)) = (containers.is_empty(), as_of) {
        ctx.out.hint(&format!("No containers match as of {}.", output::text::time_utc(*at)));
    } else if containers.is_empty() {
        ctx.out.hint(nothing(&args.filter));
    } else if (containers.len() as i64) < totals.total {
        ctx.out.hint(&format!("Showing {} of {}; see --limit.", containers.len(), totals.total));
    }
    Ok(())
}

fn nothing(filter: &FilterArgs) -> &'static str {
    if *filter == FilterArgs::default() {
        "No containers. Run one with 'parhelia containers run -- sleep 600'; \
         'parhelia containers --all' shows terminated ones too."
    } else if *filter == (FilterArgs { all: true, ..FilterArgs::default() }) {
        "No containers yet. Run one with 'parhelia containers run -- sleep 600'."
    } else if filter.all || !filter.state.is_empty() {
        "No containers match. Try fewer filters."
    } else {
        "No containers match. Try fewer filters, or --all for terminated ones too."
    }
}

async fn show(ctx: &Context, id: &str) -> Result<()> {
    let view = get(&ctx.client()?, id).await?;
    ctx.out.one(&view, view.record.id.as_str(), || output::containers::show(&view, ctx.now()))
}

/// One container, by its id or a unique prefix of it.
async fn get(client: &Client, id: &str) -> Result<ContainerView> {
    client.get(&format!("/containers/{}", segment(id)?), &[]).await
}

async fn events(ctx: &Context, args: ContainerEventsArgs) -> Result<()> {
    let mut query = vec![("limit", args.limit.to_string()), ("order", "desc".to_owned())];
    query.extend(super::events::types(&args.types));
    query.extend(args.since.map(|since| ("since", since.resolve(ctx.now()).to_string())));
    let path = format!("/containers/{}/events", segment(&args.id)?);
    let mut found: EventList = ctx.client()?.get(&path, &query).await?;
    found.events.sort_by_key(|event| event.id);
    let events = &found.events;
    ctx.out.list(
        events,
        |e| e.id.to_string(),
        || match events.is_empty() {
            true => String::new(),
            false => output::events::of_container(events),
        },
    )?;
    if events.is_empty() {
        ctx.out.hint("No events match.");
    }
    Ok(())
}

async fn orphans(ctx: &Context) -> Result<()> {
    let found = fetch(&ctx.client()?, &[("orphans", "true".to_owned())], None).await?;
    let orphans = found.containers;
    ctx.out.list(&orphans, id_of, || match orphans.is_empty() {
        true => String::new(),
        false => output::containers::orphans(&orphans),
    })?;
    if orphans.is_empty() {
        ctx.out.hint("No orphans.");
    }
    Ok(())
}

async fn health(ctx: &Context) -> Result<()> {
    let found = fetch(&ctx.client()?, &[], None).await?;
    let rows = parhelia_core::overview::health_rows(&found.containers);
    ctx.out.list(&rows, |row| row.health.clone(), || output::containers::health(&rows))
}

async fn heartbeats(ctx: &Context, args: HeartbeatsArgs) -> Result<()> {
    let mut query = vec![("limit", args.limit.to_string())];
    query.extend(args.since.map(|since| ("since", since.resolve(ctx.now()).to_string())));
    let path = format!("/containers/{}/heartbeats", segment(&args.id)?);
    let mut history: HeartbeatHistory = ctx.client()?.get(&path, &query).await?;
    history.heartbeats.sort_by_key(|beat| (beat.timestamp, beat.id));
    history.hours.sort_by_key(|hour| hour.hour);
    if history.heartbeats.is_empty() && history.hours.is_empty() {
        ctx.out.hint("No heartbeats.");
        if ctx.out.is_human() {
            return Ok(());
        }
    }
    let beats = &history.heartbeats;
    match ctx.out.format() {
        // The hours are a second list; only a document can hold both.
        Format::Jsonl | Format::Name => ctx.out.list(beats, |beat| beat.id.to_string(), String::new),
        _ => ctx.out.one(&history, "", || output::containers::heartbeats(&history)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parhelia_core::state::Health;

    #[test]
    fn filters_become_one_query() {
        let filter = FilterArgs {
            state: vec![ContainerState::Running, ContainerState::Terminated],
            health: vec![Health::Dead],
            provider: Some("process".into()),
            task: None,
            label: vec![("a".into(), "b".into()), ("c".into(), String::new())],
            all: false,
        };
        let query: Vec<String> = query_of(&filter).into_iter().map(|(k, v)| format!("{k}:{v}")).collect();
        assert_eq!(
            query,
            [
                "state:running,terminated",
                "health:dead",
                "provider:process",
                "label:a=b",
                "label:c=",
                "all:true"
            ]
        );
        assert!(query_of(&FilterArgs::default()).is_empty());
    }
}
