//! The list of `parhelia sessions`. On a terminal it takes a line for each session, whatever has to be left out for
//! that; in a pipe nothing is.

use std::fmt::Write;

use jiff::Timestamp;
use parhelia_core::session::api::{SessionTotals, SessionView};
use parhelia_core::session::{Session, SessionStatus};
use parhelia_core::time::human_age;

use super::sessions::{ago, progress, status_style};
use super::table::{Cell, Table, cell, styled};
use super::text::{PLAIN, RED, YELLOW, YELLOW_BOLD, clean, clock, counted, or_dash, painted, time_utc};

/// What a session waits for is worth this much room, before other columns.
const WAITS_FOR: usize = 12;

/// Which columns there are.
#[derive(Debug, Clone, Copy)]
struct Layout {
    wide: bool,
    named: bool,
    heartbeat: bool,
    tasks: bool,
    progress: bool,
    /// The name, or else the cascade, in one column.
    merged: bool,
    narrow: bool,
}

impl Layout {
    /// From everything to the least.
    fn ever_less(self) -> [Self; 5] {
        let less = Self { heartbeat: false, ..self };
        let short = Self { tasks: false, ..less };
        let narrow = Self { narrow: true, ..short };
        let merged = Self { merged: self.named, ..narrow };
        [self, less, narrow, merged, Self { progress: false, ..merged }]
    }

    fn table(self, views: &[SessionView], now: Timestamp) -> Table {
        let mut columns = vec![("SESSION", 0)];
        columns.extend(self.named.then_some(("NAME", 0)));
        columns.extend((!self.merged).then_some(("CASCADE", 0)));
        columns.extend([("STATUS", 12), ("PHASE", 0)]);
        columns.extend(self.progress.then_some(("PROGRESS", 0)));
        columns.push(("AGE", 8));
        columns.extend(self.heartbeat.then_some(("HEARTBEAT", 0)));
        if self.wide {
            columns.extend([("PARENT", 0), ("OWNER", 0), ("BY", 0), ("STARTED", 0)]);
        }
        columns.push(("WAITS FOR", 0));
        let mut table = Table::new(&columns);
        for view in views {
            table.row(self.row(view, now));
        }
        if self.narrow { table.narrow() } else { table }
    }

    fn row(self, view: &SessionView, now: Timestamp) -> Vec<Cell> {
        let session = &view.session;
        let mut row = vec![cell(session.session_id.as_str())];
        if self.named {
            let instead = if self.merged { session.cascade_id.as_str() } else { "-" };
            row.push(cell(session.name.as_deref().unwrap_or(instead)));
        }
        if !self.merged {
            row.push(cell(&session.cascade_id));
        }
        row.push(styled(session.status.as_str(), status_style(session.status)));
        row.push(cell(or_dash(session.current_phase.as_deref())));
        if self.progress {
            row.push(cell(match self.tasks {
                true => progress(&view.progress),
                false => format!("{}/{}", view.progress.phases_done, view.progress.phases),
            }));
        }
        row.push(cell(human_age(view.age as f64)));
        if self.heartbeat {
            row.push(heartbeat(view, now));
        }
        if self.wide {
            row.extend([
                cell(or_dash(session.parent_session_id.as_ref().map(|id| id.as_str()))),
                cell(or_dash(session.owner_id.as_deref())),
                cell(&session.created_by),
                cell(time_utc(session.started_at)),
            ]);
        }
        row.push(waits_for(session));
        row
    }
}

pub(crate) fn list(
    views: &[SessionView],
    sums: &SessionTotals,
    now: Timestamp,
    wide: bool,
    width: Option<usize>,
) -> String {
    let named = wide || views.iter().any(|view| view.session.name.is_some());
    let all =
        Layout { wide, named, heartbeat: true, tasks: true, progress: true, merged: false, narrow: false };
    let mut table = all.table(views, now);
    if let Some(width) = width {
        for layout in all.ever_less() {
            table = layout.table(views, now);
            if table.fits(width, WAITS_FOR) {
                break;
            }
        }
    }
    format!("{}\n{}\n", table.render_within(width), totals(sums))
}

/// What it waits for, in a few words.
fn waits_for(session: &Session) -> Cell {
    if session.cancel_requested && !session.status.is_over() {
        return styled("its end (cancelling)", YELLOW);
    }
    match (session.status, session.blocked_type) {
        (SessionStatus::Blocked, Some(kind)) => {
            let on = session.blocked_on.as_deref().unwrap_or("");
            let what = session.blocked_description.as_deref().filter(|text| !text.is_empty()).unwrap_or(on);
            styled(format!("{kind}: {}", what), YELLOW_BOLD)
        }
        (SessionStatus::Orphaned, _) => styled("sessions resume", RED),
        (SessionStatus::Error, _) => cell(or_dash(session.error_message.as_deref())),
        _ => cell("-"),
    }
}

fn heartbeat(view: &SessionView, now: Timestamp) -> Cell {
    if view.session.status.is_over() {
        return cell("-");
    }
    let style = if view.owner_alive { PLAIN } else { RED };
    styled(ago(view.session.heartbeat_at, now), style)
}

fn totals(totals: &SessionTotals) -> String {
    let mut line = format!("Total: {}", counted(totals.total, "session"));
    for status in SessionStatus::ALL {
        let count = totals.by_status.get(status.as_str()).copied().unwrap_or(0);
        if count > 0 {
            let word = format!("{}: {count}", capital(status.as_str()));
            let _ = write!(line, " | {}", painted(&word, status_style(*status)));
        }
    }
    if totals.inbox > 0 {
        let _ =
            write!(line, " | {}", painted(&format!("Waiting for a person: {}", totals.inbox), YELLOW_BOLD));
    }
    line
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

/// One session in a stream.
pub(crate) fn line(view: &SessionView, now: Timestamp) -> String {
    let session = &view.session;
    format!(
        "[{}] {} {} {} {} {} {}",
        clock(now),
        session.session_id,
        clean(&session.cascade_id),
        session.status,
        clean(or_dash(session.current_phase.as_deref())),
        progress(&view.progress),
        human_age(view.age as f64)
    )
}
