//! Answers for somebody who only reads text: short, and nothing in it that the structured answer has not.

use std::fmt::Write as _;

use parhelia_core::api::{ContainerView, Totals};
use parhelia_core::event::Event;
use parhelia_core::overview::Overview;
use parhelia_core::session::SignalRow;
use parhelia_core::session::api::{
    AnswerReport, CleanupSessionsReport, Inbox, SessionDetail, SessionTotals, SessionTree, SessionView,
};

use super::wording::{in_tools, reason_in_tools};

pub(super) fn list(containers: &[ContainerView], totals: &Totals) -> String {
    if containers.is_empty() {
        return "No containers match. state_filter=all shows every one, the ended too.".to_owned();
    }
    let mut out: String = containers.iter().map(|view| line(view) + "\n").collect();
    let _ = write!(
        out,
        "{} of {} that match; {} running, {} orphaned, ${:.2}/hr.",
        containers.len(),
        totals.total,
        totals.running,
        totals.orphaned,
        totals.cost_per_hour_usd
    );
    out
}

fn line(view: &ContainerView) -> String {
    let record = &view.record;
    let name = record.name.as_deref().map_or_else(String::new, |name| format!(" name={}", clean(name)));
    let task = view.task.as_deref().map_or_else(String::new, |task| format!(" task={}", clean(task)));
    format!(
        "{} {} {}{name}{task} age={} cost=${:.2}",
        record.id,
        record.state,
        view.health,
        age(view.age),
        view.cost
    )
}

/// Everything that is known of it, a field a line; what it lacks is left out.
pub(super) fn container(view: &ContainerView) -> String {
    let fields = match serde_json::to_value(view) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => return line(view),
    };
    let mut out = line(view);
    for (name, value) in fields {
        let nothing = value.is_null() || value == serde_json::json!({}) || value == serde_json::json!([]);
        // The spec repeats what the other fields say.
        if !nothing && name != "spec" {
            let _ = write!(out, "\n{name}: {}", value.as_str().map_or_else(|| value.to_string(), clean));
        }
    }
    out
}

pub(super) fn events(events: &[Event]) -> String {
    if events.is_empty() {
        return "No events match. A larger since_minutes looks further back.".to_owned();
    }
    let line = |event: &Event| {
        let who = event.container_id.as_deref().or(event.session_id.as_deref()).unwrap_or("-");
        let message = event.message.as_deref().map(clean).unwrap_or_default();
        format!("{} {} {who} {message}", event.timestamp, event.event_type)
    };
    events.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn session_line(view: &SessionView) -> String {
    let session = &view.session;
    let mut out = format!("{} {} {}", session.session_id, clean(&session.cascade_id), session.status);
    if let Some(name) = &session.name {
        let _ = write!(out, " name={}", clean(name));
    }
    if let Some(phase) = &session.current_phase {
        let _ = write!(out, " phase={}", clean(phase));
    }
    let progress = &view.progress;
    let _ = write!(
        out,
        " phases={}/{} tasks={}/{}",
        progress.phases_done, progress.phases, progress.tasks_done, progress.tasks
    );
    if let Some(kind) = session.blocked_type {
        let _ = write!(out, " waits_for={kind}");
    }
    if let Some(error) = &session.error_message {
        let _ = write!(out, " error={}", clean(error));
    }
    let _ = write!(out, " age={}", age(view.age));
    out
}

pub(super) fn sessions(sessions: &[SessionView], totals: &SessionTotals) -> String {
    if sessions.is_empty() {
        return "No sessions match. status_filter=all shows every one, those too that were over long ago."
            .to_owned();
    }
    let mut out: String = sessions.iter().map(|view| session_line(view) + "\n").collect();
    let _ = write!(
        out,
        "{} shown of {}; {} things wait for a person.",
        sessions.len(),
        totals.total,
        totals.inbox
    );
    out
}

pub(super) fn session(detail: &SessionDetail) -> String {
    let mut out = session_line(&detail.view);
    for phase in &detail.phases {
        let status = phase.row.as_ref().map_or("not begun", |row| row.status.as_str());
        let _ = write!(out, "\nphase {} ({}): {status}", clean(&phase.name), phase.kind);
        if let Some(error) = phase.row.as_ref().and_then(|row| row.error.as_deref()) {
            let _ = write!(out, ": {}", clean(error));
        }
        if let Some(outputs) = phase.row.as_ref().and_then(|row| some(&row.outputs)) {
            let _ = write!(out, " outputs={outputs}");
        }
        for view in &phase.tasks {
            let task = &view.task;
            let _ = write!(out, "\n  task {}: {} attempt={}", clean(&task.key), task.state, task.attempt);
            if let Some(code) = task.exit_code {
                let _ = write!(out, " exit={code}");
            }
            if let Some(container) = view.attempts.last().and_then(|attempt| attempt.container_id.as_ref()) {
                let _ = write!(out, " container={container}");
            }
        }
        if phase.tasks_left_out > 0 {
            let _ = write!(out, "\n  and {} tasks more", phase.tasks_left_out);
        }
    }
    if let Some(outputs) = some(&detail.outputs) {
        let _ = write!(out, "\noutputs: {outputs}");
    }
    for why in &detail.waiting {
        let _ = write!(out, "\nnot done: {}", clean(&reason_in_tools(why)));
    }
    out
}

pub(super) fn session_tree(tree: &SessionTree) -> String {
    let mut out = session(&tree.detail);
    for below in &tree.below {
        let _ = write!(out, "\n\n{}", session_tree(below));
    }
    out
}

pub(super) fn zombies(report: &CleanupSessionsReport) -> String {
    if report.zombies.is_empty() {
        return "Every session that is not over has a living server.".to_owned();
    }
    let line = |zombie: &parhelia_core::session::api::Zombie| {
        format!(
            "{} {} was {}: {}",
            zombie.session_id,
            clean(&zombie.cascade_id),
            zombie.status,
            zombie.outcome
        )
    };
    let mut out = report.zombies.iter().map(line).collect::<Vec<_>>().join("\n");
    if report.dry_run {
        out.push_str("\nNothing was changed: dry_run.");
    }
    out
}

pub(super) fn inbox(inbox: &Inbox) -> String {
    if inbox.items.is_empty() && inbox.jobs.is_empty() {
        return format!(
            "Nothing waits for a person; {} waits for signals or sensors.",
            inbox.blocked_elsewhere
        );
    }
    let mut lines: Vec<String> = Vec::new();
    for item in &inbox.items {
        lines.push(format!(
            "{} {} {} phase={} waiting={}: {} (answer: {})",
            item.id,
            item.kind,
            item.session_id,
            clean(&item.phase),
            age(item.waiting),
            clean(&item.description),
            clean(&item.fits)
        ));
    }
    for job in &inbox.jobs {
        let reason = job.reason.as_deref().map(clean).unwrap_or_default();
        lines.push(format!(
            "job {} waiting={}: {reason} (a person runs: {})",
            job.job_id,
            age(job.waiting),
            job.command
        ));
    }
    lines.join("\n")
}

pub(super) fn answers(report: &AnswerReport) -> String {
    let mut lines: Vec<String> =
        report.answered.iter().map(|wait| format!("{} is answered; its session goes on.", wait.id)).collect();
    lines.extend(
        report
            .refused
            .iter()
            .map(|one| format!("{} was not answered: {}", clean(&one.id), clean(&in_tools(&one.reason)))),
    );
    lines.extend(report.notes.iter().map(|note| clean(note)));
    lines.join("\n")
}

pub(super) fn signals(signals: &[SignalRow]) -> String {
    if signals.is_empty() {
        return "No signals match.".to_owned();
    }
    let line = |signal: &SignalRow| {
        let whom = signal.session_id.as_ref().map_or("-", |id| id.as_str());
        format!(
            "{} {} session={whom} deliveries={} fired={} by {}",
            signal.id,
            clean(&signal.name),
            signal.deliveries,
            signal.fired_at,
            clean(&signal.fired_by)
        )
    };
    signals.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(super) fn overview(overview: &Overview) -> String {
    let mut out = format!("Control plane: {}", overview.status);
    for concern in &overview.concerns {
        let _ = write!(out, "\n- {}: {} ({})", concern.code, clean(&concern.message), clean(&concern.fix));
    }
    if let Some(fleet) = &overview.containers {
        let rows = fleet.by_health.iter().map(|row| format!("{} {}", row.count, row.health));
        let cost = fleet.totals.cost_per_hour_usd;
        let _ = write!(out, "\nContainers: {}; ${cost:.2}/hr", rows.collect::<Vec<_>>().join(", "));
    }
    if let Some(reconciler) = &overview.reconciler {
        let state = if reconciler.running { "running" } else { "stopped" };
        let last = reconciler.last_run_at.map_or_else(|| "never".to_owned(), |at| at.to_string());
        let _ = write!(out, "\nReconciler: {state}, last pass {last}");
    }
    out
}

/// Values that are there.
fn some(values: &serde_json::Value) -> Option<&serde_json::Value> {
    let nothing = values.is_null() || values.as_object().is_some_and(serde_json::Map::is_empty);
    (!nothing).then_some(values)
}

/// Words of strangers (names, messages of providers) stay on their line.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn age(seconds: i64) -> String {
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m"),
        (hours, minutes) => format!("{hours}h{minutes:02}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        assert_eq!([age(5), age(65), age(3600), age(8100)], ["5s", "1m", "1h00m", "2h15m"]);
    }

    #[test]
    fn nobody_writes_a_line_of_their_own() {
        assert_eq!(clean("a\nb\u{1b}[31mc"), "a b [31mc");
    }
}
