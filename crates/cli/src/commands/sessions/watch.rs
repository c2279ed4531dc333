//! `parhelia sessions watch`: on a terminal a screen that redraws itself whenever something happens; in a pipe the
//! events of one session as they come, or of all a line whenever one changes.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::Duration;

use parhelia_core::api::EventList;
use parhelia_core::ids::SessionId;
use parhelia_core::session::SessionStatus;
use parhelia_core::session::api::{Progress, SessionTree, SessionView};

use super::{fetch, get, get_tree, id_of};
use crate::args::SessionListArgs;
use crate::client::Client;
use crate::commands::containers::watch::{draw, terminal_rows};
use crate::context::Context;
use crate::error::{CliError, Exit, Result};
use crate::output::{self, text};

/// How long the server may hold a question about events that have not happened yet. Ages on the screen move meanwhile.
const HOLD: Duration = Duration::from_secs(1);
const LONG_HOLD: Duration = Duration::from_secs(25);

/// Everything that can be over with it is over: what its end means for whoever waited.
pub(crate) fn verdict(id: &str, status: SessionStatus, error: Option<&str>) -> Result<()> {
    match status {
        SessionStatus::Completed => Ok(()),
        SessionStatus::Cancelled => {
            Err(CliError::new(Exit::WorkFailed, "work_failed", format!("session {id} was cancelled")))
        }
        _ => {
            let why = error.map_or_else(String::new, |error| format!(": {error}"));
            Err(CliError::new(Exit::WorkFailed, "work_failed", format!("session {id} failed{why}")).fix(
                format!("see 'parhelia sessions show {id}'; 'parhelia sessions resume {id}' goes on with it"),
            ))
        }
    }
}

pub(super) async fn one(ctx: &Context, given: &str) -> Result<()> {
    let client = ctx.client()?;
    let detail = get(&client, given).await?;
    let id = id_of(&detail.view);
    if ctx.out.is_human() && std::io::stdout().is_terminal() {
        screen(ctx, &client, &id).await
    } else {
        events(ctx, &client, &id).await
    }
}

/// Whatever happens anywhere: it may be of a session or of one below it.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    after: Option<i64>,
}

impl Changes {
    /// At once the first time; afterwards until something has happened, or for a moment: ages on a screen move.
    pub(crate) async fn wait(&mut self, client: &Client) -> Result<()> {
        let Some(after) = self.after else {
            self.after = Some(last_event(client).await?);
            return Ok(());
        };
        let query = [
            ("after", after.to_string()),
            ("limit", "1".to_owned()),
            ("wait_seconds", HOLD.as_secs().to_string()),
        ];
        let news: EventList = client.get_held("/events", &query, HOLD).await?;
        if !news.events.is_empty() {
            // Many come at once: look where they end, and not at each.
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.after = Some(last_event(client).await?);
        }
        Ok(())
    }
}

/// Draws its tree until it is over.
async fn screen(ctx: &Context, client: &Client, id: &str) -> Result<()> {
    let mut changes = Changes::default();
    let mut first = true;
    loop {
        changes.wait(client).await?;
        let tree = get_tree(client, id).await?;
        draw(&frame(ctx, &tree, "Ctrl-C ends the watching, not the session"), first)?;
        first = false;
        let session = &tree.detail.view.session;
        if session.status.is_over() {
            return verdict(id, session.status, session.error_message.as_deref());
        }
    }
}

async fn last_event(client: &Client) -> Result<i64> {
    let latest = [("limit", "1".to_owned()), ("order", "desc".to_owned())];
    Ok(client.get::<EventList>("/events", &latest).await?.last_id)
}

/// The tree under a title, as much of it as the terminal has room for.
pub(crate) fn frame(ctx: &Context, tree: &SessionTree, title: &str) -> Vec<String> {
    let now = ctx.now();
    let mut lines =
        vec![text::painted(&format!("{} UTC; {title}", text::clock(now)), text::DIM), String::new()];
    let room = terminal_rows().map_or(usize::MAX, |rows| rows.saturating_sub(4).max(2));
    lines.extend(output::session_tree::fitted(tree, now, ctx.out.width(), room));
    lines
}

/// Prints its events, from its first, until it is over.
async fn events(ctx: &Context, client: &Client, id: &str) -> Result<()> {
    let mut after = 0_i64;
    loop {
        // Asked before the events: what it is over with has been told by then.
        let status = get(client, id).await?.view.session;
        let hold = if status.status.is_over() { Duration::ZERO } else { LONG_HOLD };
        let mut query = vec![
            ("session", id.to_owned()),
            ("after", after.to_string()),
            ("order", "asc".to_owned()),
            ("limit", "1000".to_owned()),
        ];
        query.push(("wait_seconds", hold.as_secs().to_string()));
        let page: EventList = client.get_held("/events", &query, hold).await?;
        for event in &page.events {
            ctx.out.streamed(event, &event.id.to_string(), || output::events::line(event))?;
        }
        after = page.events.iter().map(|event| event.id).max().unwrap_or(after).max(after);
        if page.events.is_empty() && status.status.is_over() {
            return verdict(id, status.status, status.error_message.as_deref());
        }
    }
}

/// The list, again and again. In a pipe each session once, and then whenever it has changed.
pub(super) async fn all(
    ctx: &Context,
    args: &SessionListArgs,
    interval: Duration,
    count: Option<u64>,
) -> Result<()> {
    let client = ctx.client()?;
    let live = ctx.out.is_human() && std::io::stdout().is_terminal();
    let mut told: HashMap<SessionId, Told> = HashMap::new();
    let mut round = 0_u64;
    loop {
        let (sessions, totals) = fetch(&client, args).await?;
        let now = ctx.now();
        if live {
            let seconds = text::number(interval.as_secs_f64());
            let title = format!("{} UTC, every {seconds}s; Ctrl-C ends", text::clock(now));
            let mut lines = vec![text::painted(&title, text::DIM), String::new()];
            let (wide, width) = (ctx.out.is_wide(), ctx.out.width());
            let screen = output::session_list::list(&sessions, &totals, now, wide, width);
            let room = terminal_rows().map_or(usize::MAX, |rows| rows.saturating_sub(3).max(2));
            lines.extend(screen.lines().take(room).map(str::to_owned));
            draw(&lines, round == 0)?;
        } else {
            let mut current = HashMap::with_capacity(sessions.len());
            for view in &sessions {
                let id = view.session.session_id.clone();
                let is = Told::of(view);
                if told.get(&id) != Some(&is) {
                    ctx.out.streamed(view, id.as_str(), || output::session_list::line(view, now))?;
                }
                current.insert(id, is);
            }
            told = current;
        }
        round += 1;
        if count.is_some_and(|count| round >= count) {
            return Ok(());
        }
        tokio::time::sleep(interval).await;
    }
}

/// What of a session is worth a line when it becomes another; its age and its heartbeat are not.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    status: SessionStatus,
    phase: Option<String>,
    progress: Progress,
    blocked_on: Option<String>,
    cancelling: bool,
}

impl Told {
    fn of(view: &SessionView) -> Self {
        let session = &view.session;
        Self {
            status: session.status,
            phase: session.current_phase.clone(),
            progress: view.progress.clone(),
            blocked_on: session.blocked_on.clone(),
            cancelling: session.cancel_requested,
        }
    }
}
