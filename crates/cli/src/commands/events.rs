//! `parhelia events`: the history, read backwards (list), forwards (tail) or whole (export).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parhelia_core::api::EventList;
use parhelia_core::event::{Event, EventType};

use crate::args::{EventsExportArgs, EventsListArgs, EventsTailArgs, ExportFormat};
use crate::client::Client;
use crate::context::Context;
use crate::error::{CliError, Result};
use crate::output;

const PAGE: u64 = 1000;
/// How long the server may hold a question about events that have not happened yet.
const HOLD: Duration = Duration::from_secs(25);

pub(super) fn types(types: &[EventType]) -> Option<(&'static str, String)> {
    let words = types.iter().map(|t| t.as_str()).collect::<Vec<_>>().join(",");
    (!words.is_empty()).then_some(("type", words))
}

pub(super) async fn list(ctx: &Context, args: EventsListArgs) -> Result<()> {
    let now = ctx.now();
    let mut query = vec![("limit", args.limit.to_string()), ("order", "desc".to_owned())];
    query.extend(args.container.map(|id| ("container", id)));
    query.extend(args.task.map(|id| ("task", id)));
    query.extend(args.session.map(|id| ("session", id)));
    query.extend(types(&args.types));
    query.extend(args.since.map(|since| ("since", since.resolve(now).to_string())));
    query.extend(args.until.map(|until| ("until", until.resolve(now).to_string())));
    let mut found: EventList = ctx.client()?.get("/events", &query).await?;
    found.events.sort_by_key(|event| event.id);
    let events = &found.events;
    ctx.out.list(
        events,
        |e| e.id.to_string(),
        || match events.is_empty() {
            true => String::new(),
            false => output::events::list(events, ctx.out.is_wide()),
        },
    )?;
    if events.is_empty() {
        ctx.out.hint("No events match.");
    } else if events.len() as u64 >= args.limit {
        ctx.out.hint(&format!(
            "The latest {}; there may be more: see --limit, --since and 'parhelia events export'.",
            events.len()
        ));
    }
    Ok(())
}

/// Where the tail goes on after this answer.
fn next(after: i64, page: &EventList) -> i64 {
    page.events.iter().map(|event| event.id).chain([after, page.last_id]).max().unwrap_or(after)
}

pub(super) async fn tail(ctx: &Context, args: EventsTailArgs) -> Result<()> {
    let client = ctx.client()?;
    let mut filter: Vec<(&str, String)> = Vec::new();
    filter.extend(args.container.map(|id| ("container", id)));
    filter.extend(args.session.map(|id| ("session", id)));
    filter.extend(types(&args.types));
    let mut after = match args.after {
        Some(after) => after,
        None => {
            let latest = [("limit", "1".to_owned()), ("order", "desc".to_owned())];
            // Not the newest id: on a shared database something may still come before that one.
            client.get::<EventList>("/events", &latest).await?.last_id
        }
    };
    let mut left = args.count;
    loop {
        let mut query = filter.clone();
        query.extend([
            ("after", after.to_string()),
            ("order", "asc".to_owned()),
            ("limit", PAGE.to_string()),
            ("wait_seconds", HOLD.as_secs().to_string()),
        ]);
        let page: EventList = client.get_held("/events", &query, HOLD).await?;
        for event in &page.events {
            ctx.out.streamed(event, &event.id.to_string(), || output::events::line(event))?;
            left = left.map(|left| left - 1);
            if left == Some(0) {
                return Ok(());
            }
        }
        if page.events.is_empty() {
            // A server that does not hold the question must not be asked without a pause.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        after = next(after, &page);
    }
}

pub(super) async fn export(ctx: &Context, args: EventsExportArgs) -> Result<()> {
    let now = ctx.now();
    // An end, so that a busy fleet does not keep us for ever.
    let mut range = vec![("until", args.until.map_or(now, |until| until.resolve(now)).to_string())];
    range.extend(args.since.map(|since| ("since", since.resolve(now).to_string())));
    let client = ctx.client()?;
    let Some(path) = args.file else {
        let mut stdout = BufWriter::new(std::io::stdout().lock());
        write_all(&client, &range, args.format, &mut stdout).await?;
        return Ok(());
    };
    let part = partial(&path);
    let failed = |e: std::io::Error| CliError::io(format!("cannot write {}", part.display()), &e);
    let mut file = BufWriter::new(File::create(&part).map_err(failed)?);
    let count = write_all(&client, &range, args.format, &mut file).await?;
    let file = file.into_inner().map_err(|e| failed(e.into_error()))?;
    file.sync_all().map_err(failed)?;
    std::fs::rename(&part, &path)
        .map_err(|e| CliError::io(format!("cannot write {}", path.display()), &e))?;
    ctx.out.note(&format!("{count} events written to {}.", path.display()));
    Ok(())
}

fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}

/// Every event of the range, oldest first, page by page.
async fn write_all(
    client: &Client,
    range: &[(&str, String)],
    format: ExportFormat,
    to: &mut impl Write,
) -> Result<u64> {
    let mut put = |text: &str| to.write_all(text.as_bytes()).map_err(CliError::output);
    if format == ExportFormat::Csv {
        put(output::events::CSV_HEADER)?;
    }
    let (mut after, mut count) = (0_i64, 0_u64);
    loop {
        let mut query = range.to_vec();
        query.extend([
            ("after", after.to_string()),
            ("order", "asc".to_owned()),
            ("limit", PAGE.to_string()),
        ]);
        let page: EventList = client.get("/events", &query).await?;
        for event in &page.events {
            put(&record(event, format)?)?;
        }
        count += page.events.len() as u64;
        match page.events.last() {
            // By the last event itself: nothing between two pages can be skipped.
            Some(last) => after = last.id.max(after),
            None => break,
        }
    }
    to.flush().map_err(CliError::output)?;
    Ok(count)
}

fn record(event: &Event, format: ExportFormat) -> Result<String> {
    Ok(match format {
        ExportFormat::Jsonl => output::to_json(event)? + "\n",
        ExportFormat::Csv => output::events::csv(event),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures::event;

    #[test]
    fn the_tail_goes_on_after_everything_it_was_told_of() {
        let one = event(7, "2026-01-21T14:30:00Z", EventType::ContainerCreated, "x");
        assert_eq!(next(3, &EventList { events: vec![one.clone()], last_id: 9 }), 9);
        assert_eq!(next(3, &EventList { events: vec![one], last_id: 0 }), 7);
        assert_eq!(next(3, &EventList { events: vec![], last_id: 0 }), 3);
    }

    #[test]
    fn types_are_one_parameter() {
        assert_eq!(types(&[]), None);
        assert_eq!(
            types(&[EventType::ContainerDead, EventType::StopFailed]),
            Some(("type", "container_dead,stop_failed".to_owned()))
        );
    }
}
