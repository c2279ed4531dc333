//! Answers for somebody who only reads text: short, and nothing in it that the structured answer has not.

use std::fmt::Write as _;

use parhelia_core::api::{ContainerView, Totals};
use parhelia_core::event::Event;
use parhelia_core::overview::Overview;

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
        let who = event.container_id.as_deref().unwrap_or("-");
        let message = event.message.as_deref().map(clean).unwrap_or_default();
        format!("{} {} {who} {message}", event.timestamp, event.event_type)
    };
    events.iter().map(line).collect::<Vec<_>>().join("\n")
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
