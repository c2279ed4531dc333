//! The screens of `parhelia sessions`: the list, and everything about one.

use std::fmt::Write;

use anstyle::Style;
use jiff::Timestamp;
use parhelia_core::session::api::{
    CleanupSessionsReport, PhaseView, Progress, SessionDetail, SessionView, TaskView,
};
use parhelia_core::session::{
    AttemptStatus, FailureReason, PhaseStatus, Session, SessionStatus, TaskStatus, WaitRow, WaitStatus,
    explain,
};
use parhelia_core::time::{human_age, seconds_between};
use serde_json::Value;

use super::table::{Cell, Table, cell, styled};
use super::text::{
    BOLD, DIM, GREEN, PLAIN, RED, RED_BOLD, YELLOW, YELLOW_BOLD, clean, counted, painted, shortened, time_utc,
};

/// What of a long value is shown.
const SHOWN: usize = 160;

pub(crate) fn status_style(status: SessionStatus) -> Style {
    match status {
        SessionStatus::Starting => PLAIN,
        SessionStatus::Running => GREEN,
        SessionStatus::Blocked => YELLOW_BOLD,
        SessionStatus::Completed => DIM,
        SessionStatus::Error => RED_BOLD,
        SessionStatus::Cancelled => YELLOW,
        SessionStatus::Orphaned => RED,
    }
}

pub(crate) fn phase_style(status: Option<PhaseStatus>) -> Style {
    match status {
        Some(PhaseStatus::Running) => GREEN,
        Some(PhaseStatus::Failed) => RED_BOLD,
        Some(PhaseStatus::Cancelled) => YELLOW,
        Some(PhaseStatus::Completed) => PLAIN,
        Some(PhaseStatus::Skipped) | None => DIM,
    }
}

pub(crate) fn task_style(state: TaskStatus) -> Style {
    match state {
        TaskStatus::Running | TaskStatus::Verifying | TaskStatus::Claimed => GREEN,
        TaskStatus::Failed => RED_BOLD,
        TaskStatus::Cancelled => YELLOW,
        TaskStatus::Completed => PLAIN,
        TaskStatus::Pending => DIM,
    }
}

pub(crate) fn span(from: Timestamp, to: Timestamp) -> String {
    human_age(seconds_between(from, to).max(0.0))
}

pub(crate) fn ago(at: Timestamp, now: Timestamp) -> String {
    format!("{} ago", span(at, now))
}

/// `3/5`, with what went wrong.
pub(crate) fn progress(progress: &Progress) -> String {
    let mut text = format!("{}/{}", progress.phases_done, progress.phases);
    if progress.tasks > 0 {
        let _ = write!(text, " ({}/{} tasks)", progress.tasks_done, progress.tasks);
    }
    text
}

pub(crate) fn resumed(session: &Session) -> String {
    match (&session.origin_id, &session.origin_phase) {
        (Some(origin), Some(phase)) => {
            format!("{} started: continues {origin} from {}\n", session.session_id, clean(phase))
        }
        (Some(origin), None) => format!("{} started: continues {origin}\n", session.session_id),
        _ => format!("{} goes on ({})\n", session.session_id, session.status),
    }
}

pub(crate) fn zombies(report: &CleanupSessionsReport, now: Timestamp) -> String {
    let title = if report.dry_run { "WOULD BE" } else { "BECAME" };
    let mut table =
        Table::new(&[("SESSION", 0), ("CASCADE", 0), ("STATUS", 12), ("HEARTBEAT", 0), (title, 0)]);
    for zombie in &report.zombies {
        table.row(vec![
            cell(zombie.session_id.as_str()),
            cell(&zombie.cascade_id),
            styled(zombie.status.as_str(), status_style(zombie.status)),
            cell(ago(zombie.heartbeat_at, now)),
            styled(&zombie.outcome, if zombie.outcome == "orphaned" { RED } else { GREEN }),
        ]);
    }
    format!("{}\n{}\n", table.render(), counted(report.zombies.len() as i64, "session"))
}

struct Block(String);

impl Block {
    fn field(&mut self, label: &str, value: impl AsRef<str>) {
        let _ = writeln!(self.0, "  {:<13} {}", format!("{label}:"), value.as_ref());
    }

    fn maybe(&mut self, label: &str, value: Option<impl AsRef<str>>) {
        if let Some(value) = value {
            self.field(label, clean(value.as_ref()));
        }
    }

    fn section(&mut self, title: &str) {
        let _ = writeln!(self.0, "\n  {title}:");
    }

    fn detail(&mut self, label: &str, value: impl AsRef<str>) {
        let _ = writeln!(self.0, "    {:<11} {}", format!("{label}:"), value.as_ref());
    }
}

/// JSON on one line, cut where it is long; nothing of what is empty.
fn value(value: &Value) -> Option<String> {
    let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    (!empty).then(|| shortened(&value.to_string(), SHOWN))
}

/// The one screen of `sessions show`; `next` went on with it.
pub(crate) fn show(detail: &SessionDetail, now: Timestamp) -> String {
    let view = &detail.view;
    let session = &view.session;
    let mut block = Block(format!("Session: {}\n", session.session_id));
    block.maybe("Name", session.name.as_ref());
    block.field("Cascade", clean(&session.cascade_id));
    let mut status = painted(session.status.as_str(), status_style(session.status));
    if let (SessionStatus::Blocked, Some(since)) = (session.status, session.blocked_since) {
        let _ = write!(status, " for {}", span(since, now));
    }
    block.field("Status", status);
    block.maybe("Phase", session.current_phase.as_ref());
    block.field("Progress", tally(&view.progress));
    if let Some(error) = &session.error_message {
        let phase = session.error_phase.as_deref().map_or_else(String::new, |phase| format!("{phase}: "));
        block.field("Error", painted(&clean(&format!("{phase}{error}")), RED_BOLD));
    }
    block.field("Started", clean(&format!("{} by {}", time_utc(session.started_at), session.created_by)));
    if let Some(at) = session.completed_at {
        block.field("Ended", format!("{} (after {})", time_utc(at), span(session.started_at, at)));
    }
    if !session.status.is_over() {
        block.field("Owner", owner(view, now));
    }
    block.maybe(
        "Parent",
        session.parent_session_id.as_ref().map(|id| match &session.parent_phase {
            Some(phase) => format!("{id} (its phase {phase})"),
            None => id.to_string(),
        }),
    );
    block.maybe(
        "Continues",
        session.origin_id.as_ref().map(|id| match &session.origin_phase {
            Some(phase) => format!("{id} from {phase}"),
            None => id.to_string(),
        }),
    );
    for id in &detail.continued_by {
        block.field("Continued by", id.as_str());
    }
    if let Some(checkpoint) = &detail.last_checkpoint {
        let what = if checkpoint.task_id.is_some() { "a task of " } else { "" };
        block.field(
            "Checkpoint",
            clean(&format!("{} ({what}{}, {})", checkpoint.id, checkpoint.phase, ago(checkpoint.at, now))),
        );
    }
    block.field("Resumable", resumable(session));
    block.maybe("Inputs", value(&detail.inputs));
    block.maybe("Outputs", value(&detail.outputs));
    if session.cancel_requested {
        cancel(&mut block, session);
    }
    block.section("Phases");
    block.0.push_str(&phases(&detail.phases, now));
    let open: Vec<&WaitRow> = detail.waits.iter().filter(|wait| wait.status == WaitStatus::Open).collect();
    let settled: Vec<&WaitRow> =
        detail.waits.iter().rev().filter(|wait| wait.status != WaitStatus::Open).collect();
    if !settled.is_empty() {
        block.section("Answers");
        for wait in settled {
            let _ = writeln!(block.0, "    {}", clean(&answered(wait, now)));
        }
    }
    if !detail.waiting.is_empty() {
        block.section("Not done because");
        for reason in &detail.waiting {
            // The command stands on a line of its own, to be copied.
            let (why, command) = reason_parts(reason);
            let _ = writeln!(block.0, "    {}", clean(&why));
            if let Some(command) = command {
                let _ = writeln!(block.0, "      {}", painted(&clean(&command), BOLD));
            }
        }
    }
    for wait in open {
        if let Some(options) = options(&wait.question) {
            let _ = writeln!(block.0, "    {} can be: {}", wait.id, clean(&options));
        }
    }
    block.0
}

/// Why something is not done, and the command that would change it.
pub(crate) fn reason_parts(reason: &str) -> (String, Option<String>) {
    let (why, command) = match reason.rsplit_once("; parhelia ") {
        Some((why, command)) => (why, Some(format!("parhelia {command}"))),
        None => (reason, None),
    };
    // The only task of a phase is called like it, and need not be named twice.
    let once = why.split_once(": ").and_then(|(phase, rest)| {
        let rest = rest.strip_prefix(phase)?.strip_prefix(" tries again")?;
        Some(format!("{phase}: tries again{rest}"))
    });
    (once.unwrap_or_else(|| why.to_owned()), command)
}

/// What somebody may choose from, each told apart from the next.
pub(crate) fn options(question: &Value) -> Option<String> {
    let all = question.get("options").and_then(Value::as_array).filter(|all| !all.is_empty())?;
    let shown = all.iter().filter_map(Value::as_str).map(|option| {
        let plain = !option.is_empty() && !option.contains([',', ' ', '\'', '"']);
        if plain { option.to_owned() } else { format!("{option:?}") }
    });
    Some(shown.collect::<Vec<_>>().join(", "))
}

/// How it would go on if its server died, or now that it is over.
fn resumable(session: &Session) -> &'static str {
    match session.status {
        _ if !session.resumable => "no",
        SessionStatus::Completed => "from a phase, with 'parhelia sessions resume --from PHASE'",
        SessionStatus::Error | SessionStatus::Cancelled | SessionStatus::Orphaned => {
            "yes, with 'parhelia sessions resume'"
        }
        _ if session.auto_resume => "yes, by itself",
        _ => "yes, with 'parhelia sessions resume'",
    }
}

fn tally(progress: &Progress) -> String {
    let mut text = format!("{} of {} phases", progress.phases_done, progress.phases);
    if progress.tasks > 0 {
        let _ = write!(text, ", {} of {} tasks", progress.tasks_done, progress.tasks);
    }
    if progress.tasks_running > 0 {
        let _ = write!(text, ", {} running", progress.tasks_running);
    }
    if progress.tasks_failed > 0 {
        let _ = write!(text, ", {}", painted(&format!("{} failed", progress.tasks_failed), RED_BOLD));
    }
    text
}

fn owner(view: &SessionView, now: Timestamp) -> String {
    let session = &view.session;
    let Some(owner) = &session.owner_id else { return painted("none", RED) };
    let alive = if view.owner_alive { painted("alive", GREEN) } else { painted("not heard", RED) };
    let beat = ago(session.heartbeat_at, now);
    format!("{} ({alive}, heartbeat {beat}, epoch {})", clean(owner), session.owner_epoch)
}

/// Contract 12: each receipt, or that it is still missing.
fn cancel(block: &mut Block, session: &Session) {
    block.section("Cancel");
    let at = |at: Option<Timestamp>| at.map_or_else(|| painted("not yet", DIM), time_utc);
    let by =
        session.cancel_requested_by.as_deref().map_or_else(String::new, |by| format!(" by {}", clean(by)));
    let why = session.cancel_reason.as_deref().map_or_else(String::new, |why| format!(" ({})", clean(why)));
    block.detail("Requested", format!("{}{by}{why}", at(session.cancel_requested_at)));
    match (session.cancel_force, session.cancel_grace_seconds) {
        (true, _) => block.detail("Grace", "none: by force"),
        (false, Some(grace)) => block.detail("Grace", format!("{grace}s")),
        (false, None) => {}
    }
    block.detail("Seen", at(session.cancel_seen_at));
    block.detail("Gone", at(session.cancelled_at));
}

fn phases(phases: &[PhaseView], now: Timestamp) -> String {
    let mut table =
        Table::new(&[("", 4), ("PHASE", 0), ("KIND", 0), ("STATUS", 12), ("TIME", 0), ("WHAT", 0)]);
    for phase in phases {
        let row = phase.row.as_ref();
        let time =
            row.map_or_else(|| "-".to_owned(), |row| span(row.started_at, row.completed_at.unwrap_or(now)));
        table.row(vec![
            cell(""),
            cell(&phase.name),
            cell(&phase.kind),
            styled(row.map_or("-", |row| row.status.as_str()), phase_style(row.map(|row| row.status))),
            cell(time),
            cell(what(phase)),
        ]);
        for task in tasks_worth_showing(phase) {
            table.row(task_row(task, now));
        }
        if phase.tasks_left_out > 0 {
            table.row(vec![cell(""), styled(format!("  … and {} more", phase.tasks_left_out), DIM)]);
        }
    }
    // The titles of this inner table say nothing that the rows do not.
    let rendered = table.render();
    let (_, rows) = rendered.split_once('\n').unwrap_or_default();
    rows.to_owned()
}

/// The only task of a phase that is a command says what the phase says, until something went wrong.
pub(crate) fn tasks_worth_showing(phase: &PhaseView) -> &[TaskView] {
    match phase.tasks.as_slice() {
        [only] if only.task.key == phase.name && only.attempts.len() < 2 && only.task.error.is_none() => &[],
        all => all,
    }
}

pub(crate) fn what(phase: &PhaseView) -> String {
    let row = phase.row.as_ref();
    if let Some(error) = row.and_then(|row| row.error.as_deref()) {
        return shortened(error, 80);
    }
    if let Some(child) = row.and_then(|row| row.child_session_id.as_ref()) {
        return child.to_string();
    }
    if let [only] = phase.tasks.as_slice()
        && tasks_worth_showing(phase).is_empty()
    {
        return ended(only);
    }
    let total: i64 = phase.tasks_by_state.values().sum();
    if total > 0 {
        let done = phase.tasks_by_state.get(TaskStatus::Completed.as_str()).copied().unwrap_or(0);
        return format!("{done}/{total} tasks");
    }
    phase.description.as_deref().map(|text| shortened(text, 60)).unwrap_or_default()
}

/// How the last attempt ended, and where its output is.
pub(crate) fn ended(view: &TaskView) -> String {
    let task = &view.task;
    let mut parts = Vec::new();
    if task.attempt > 1 {
        parts.push(format!("attempt {}", task.attempt));
    }
    let last = view.attempts.last();
    // The exit code of a failed verification is not that of the task, and the error says it.
    let refused = task.failure_reason == Some(FailureReason::VerificationFailed);
    match task.exit_code {
        Some(code) if refused && task.error.is_none() => parts.push(format!("verify exit {code}")),
        Some(code) if !refused => parts.push(format!("exit {code}")),
        _ => {}
    }
    if last.is_some_and(|attempt| attempt.status == AttemptStatus::Waiting) {
        parts.push("needs a person".to_owned());
    }
    if let Some(error) = task.error.as_deref().or(last.and_then(|attempt| attempt.message.as_deref())) {
        parts.push(shortened(error, 60));
    }
    if let Some(container) = last.and_then(|attempt| attempt.container_id.as_ref()) {
        parts.push(container.to_string());
    }
    if let Some(verify) = last.and_then(|attempt| attempt.verify_container_id.as_ref()) {
        parts.push(format!("verified in {verify}"));
    }
    parts.join(", ")
}

fn task_row(view: &TaskView, now: Timestamp) -> Vec<Cell> {
    let task = &view.task;
    let time = task
        .started_at
        .or_else(|| view.attempts.first().map(|attempt| attempt.started_at))
        .map_or_else(|| "-".to_owned(), |at| span(at, task.completed_at.unwrap_or(now)));
    vec![
        cell(""),
        cell(format!("  {}", task.key)),
        cell(""),
        styled(task.state.as_str(), task_style(task.state)),
        cell(time),
        cell(ended(view)),
    ]
}

fn answered(wait: &WaitRow, now: Timestamp) -> String {
    let what = explain::awaited(wait);
    match wait.status {
        WaitStatus::Answered => {
            let by = match (&wait.answered_by, &wait.signal_id) {
                (Some(by), _) => by.clone(),
                (None, Some(signal)) => signal.to_string(),
                (None, None) => "somebody".to_owned(),
            };
            let answer =
                wait.answer.as_ref().map_or_else(String::new, |answer| shortened(&answer.to_string(), 60));
            let when = wait.answered_at.map_or_else(String::new, |at| format!(", {}", ago(at, now)));
            let why = wait.answer_reason.as_deref().map_or_else(String::new, |why| format!(" ({why})"));
            format!("{}: {what}: {answer} by {by}{why}{when}", wait.phase)
        }
        WaitStatus::TimedOut => format!("{}: {what}: nobody answered in time", wait.phase),
        WaitStatus::Withdrawn => format!("{}: {what}: no longer needed", wait.phase),
        WaitStatus::Open => format!("{}: {what}", wait.phase),
    }
}

#[cfg(test)]
#[path = "sessions_tests.rs"]
mod tests;
