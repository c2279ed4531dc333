//! `parhelia containers watch`: on a terminal a table that redraws itself, in a pipe a line per container.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use super::{Found, fetch, query_of};
use crate::args::FilterArgs;
use crate::context::Context;
use crate::error::{CliError, Result};
use crate::output::{self, text};

pub(crate) const INTERVAL: Duration = Duration::from_secs(2);

pub(super) async fn run(
    ctx: &Context,
    filter: &FilterArgs,
    interval: Duration,
    count: Option<u64>,
) -> Result<()> {
    let client = ctx.client()?;
    let query = query_of(filter);
    let live = ctx.out.is_human() && std::io::stdout().is_terminal();
    let mut round = 0_u64;
    loop {
        let found = fetch(&client, &query, None).await?;
        if live {
            draw(&frame(ctx, &found, interval), round == 0)?;
        } else {
            lines(ctx, &found)?;
        }
        round += 1;
        if count.is_some_and(|count| round >= count) {
            return Ok(());
        }
        tokio::time::sleep(interval).await;
    }
}

fn lines(ctx: &Context, found: &Found) -> Result<()> {
    let now = ctx.now();
    for view in &found.containers {
        ctx.out.streamed(view, view.record.id.as_str(), || output::containers::watch_line(view, now))?;
    }
    Ok(())
}

fn frame(ctx: &Context, found: &Found, interval: Duration) -> Vec<String> {
    let now = text::clock(ctx.now());
    let seconds = text::number(interval.as_secs_f64());
    let title = format!("{now} UTC, every {seconds}s; Ctrl-C ends");
    let mut lines = vec![text::painted(&title, text::DIM), String::new()];
    let table = output::containers::table(&found.containers, ctx.out.is_wide());
    let rows: Vec<&str> = table.lines().collect();
    // Title, empty line, an empty line and the totals, and one for the cursor.
    let room = terminal_rows().map_or(usize::MAX, |all| all.saturating_sub(5).max(2));
    if rows.len() > room {
        let shown = room - 1;
        lines.extend(rows[..shown].iter().map(|row| (*row).to_owned()));
        lines.push(text::painted(&format!("… and {} more", rows.len() - shown), text::DIM));
    } else {
        lines.extend(rows.iter().map(|row| (*row).to_owned()));
    }
    lines.extend([String::new(), output::containers::totals(&found.totals)]);
    lines
}

pub(crate) fn terminal_rows() -> Option<usize> {
    rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .map(|size| usize::from(size.ws_row))
        .filter(|rows| *rows > 0)
}

/// Draws over the last frame. Long lines are cut by the terminal itself, and nothing is left switched off
/// if we are ended between two frames.
pub(crate) fn draw(lines: &[String], first: bool) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let colours = anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never;
    let mut screen = String::from(if first { "\x1b[2J\x1b[H\x1b[?7l" } else { "\x1b[H\x1b[?7l" });
    for line in lines {
        // Cleared before it is written: behind a line that fills the row the cursor stands on its last letter.
        screen.push_str("\x1b[K");
        if colours {
            screen.push_str(line);
        } else {
            screen.push_str(&anstream::adapter::strip_str(line).to_string());
        }
        screen.push('\n');
    }
    screen.push_str("\x1b[J\x1b[?7h");
    stdout.write_all(screen.as_bytes()).and_then(|()| stdout.flush()).map_err(CliError::output)
}
