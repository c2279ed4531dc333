//! A session and everything below it, as a tree: phases, tasks, and the sessions that phases are.

use std::fmt::Write;

use anstyle::Style;
use jiff::Timestamp;
use parhelia_core::session::api::{PhaseView, SessionTree, TaskView};

use super::sessions::{
    ended, phase_style, progress, reason_parts, span, status_style, task_style, tasks_worth_showing, what,
};
use super::text::{BOLD, DIM, YELLOW_BOLD, clean, painted, shortened, wrapped};

/// `width` is the terminal's: the reasons for waiting are broken to fit, so that no command is lost at its edge.
pub(crate) fn screen(tree: &SessionTree, now: Timestamp, width: Option<usize>) -> String {
    let mut out = String::new();
    branch(&mut out, tree, "", now, width);
    out
}

/// The same in at most `room` lines. What it waits for stands at the end, and is what somebody looks for.
pub(crate) fn fitted(tree: &SessionTree, now: Timestamp, width: Option<usize>, room: usize) -> Vec<String> {
    let screen = screen(tree, now, width);
    let lines: Vec<&str> = screen.lines().collect();
    if lines.len() <= room {
        return lines.into_iter().map(str::to_owned).collect();
    }
    let mut reasons = String::new();
    waiting(&mut reasons, &tree.detail.waiting, "", width);
    let tail = reasons.lines().count().min(room * 3 / 4);
    let head = room.saturating_sub(tail + 1);
    let left_out = lines.len() - head - tail;
    let more = painted(&format!("… and {left_out} more lines"), DIM);
    let (first, last) = (&lines[..head], &lines[lines.len() - tail..]);
    first
        .iter()
        .map(|line| (*line).to_owned())
        .chain([more])
        .chain(last.iter().map(|l| (*l).to_owned()))
        .collect()
}

fn branch(out: &mut String, tree: &SessionTree, indent: &str, now: Timestamp, width: Option<usize>) {
    let detail = &tree.detail;
    let view = &detail.view;
    let session = &view.session;
    let name = session.name.as_deref().map_or_else(String::new, |name| format!(" {}", clean(name)));
    let until = session.completed_at.unwrap_or(now);
    let _ = writeln!(
        out,
        "{} {}{name} {} {} {}",
        painted(session.session_id.as_str(), BOLD),
        clean(&session.cascade_id),
        painted(session.status.as_str(), status_style(session.status)),
        progress(&view.progress),
        painted(&span(session.started_at, until), DIM),
    );
    let wide = detail.phases.iter().map(|phase| phase.name.chars().count()).max().unwrap_or(0).min(40);
    let phases = detail.phases.len();
    for (at, phase) in detail.phases.iter().enumerate() {
        let last = at + 1 == phases && detail.waiting.is_empty();
        let (twig, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let _ = write!(out, "{indent}{twig}");
        phase_line(out, phase, wide, now);
        let deeper = format!("{indent}{below}");
        let child = phase.row.as_ref().and_then(|row| row.child_session_id.as_ref());
        let child =
            child.and_then(|id| tree.below.iter().find(|one| one.detail.view.session.session_id == *id));
        tasks(out, phase, &deeper, child.is_some(), now);
        if let Some(child) = child {
            let _ = write!(out, "{deeper}└─ ");
            branch(out, child, &format!("{deeper}   "), now, width);
        }
    }
    waiting(out, &detail.waiting, indent, width);
}

/// Why it is not done; the command that would change it on a line of its own, to be copied.
fn waiting(out: &mut String, reasons: &[String], indent: &str, width: Option<usize>) {
    for (at, reason) in reasons.iter().enumerate() {
        let (twig, below) = if at + 1 == reasons.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let (why, command) = reason_parts(reason);
        let why = clean(&why);
        let lines = match width {
            Some(width) => wrapped(&why, width.saturating_sub(indent.chars().count() + 3).max(20)),
            None => vec![why],
        };
        for (line, twig) in lines.iter().zip(std::iter::once(twig).chain(std::iter::repeat(below))) {
            let _ = writeln!(out, "{indent}{twig}{}", painted(line, YELLOW_BOLD));
        }
        if let Some(command) = command {
            let _ = writeln!(out, "{indent}{below}  {}", painted(&clean(&command), BOLD));
        }
    }
}

fn phase_line(out: &mut String, phase: &PhaseView, wide: usize, now: Timestamp) {
    let row = phase.row.as_ref();
    let status = row.map_or("-", |row| row.status.as_str());
    let time = row.map_or_else(String::new, |row| span(row.started_at, row.completed_at.unwrap_or(now)));
    let first = format!("{:<wide$}  {:<7}", clean(&shortened(&phase.name, 40)), clean(&phase.kind));
    let style = phase_style(row.map(|row| row.status));
    let _ = writeln!(out, "{first}  {}", rest(status, style, &time, &clean(&what(phase))));
}

/// Status, time and the rest, without what would stand empty at the end of the line.
fn rest(status: &str, style: Style, time: &str, what: &str) -> String {
    match (time, what) {
        ("", "") => painted(status, style),
        (time, "") => format!("{}  {time}", painted(&format!("{status:<9}"), style)),
        (time, what) => format!("{}  {time:<5}  {what}", painted(&format!("{status:<9}"), style)),
    }
}

fn tasks(out: &mut String, phase: &PhaseView, indent: &str, more_below: bool, now: Timestamp) {
    let shown = tasks_worth_showing(phase);
    let wide = shown.iter().map(|view| view.task.key.chars().count()).max().unwrap_or(0).min(40);
    for (at, view) in shown.iter().enumerate() {
        let last = at + 1 == shown.len() && phase.tasks_left_out == 0 && !more_below;
        let twig = if last { "└─ " } else { "├─ " };
        let _ = writeln!(out, "{indent}{twig}{}", task_line(view, wide, now));
    }
    if phase.tasks_left_out > 0 {
        let _ = writeln!(out, "{indent}└─ {}", painted(&format!("… and {} more", phase.tasks_left_out), DIM));
    }
}

fn task_line(view: &TaskView, wide: usize, now: Timestamp) -> String {
    let task = &view.task;
    let began = task.started_at.or_else(|| view.attempts.first().map(|attempt| attempt.started_at));
    let time = began.map_or_else(String::new, |at| span(at, task.completed_at.unwrap_or(now)));
    let first = format!("{:<wide$}", clean(&shortened(&task.key, 40)));
    format!("{first}  {}", rest(task.state.as_str(), task_style(task.state), &time, &clean(&ended(view))))
}
