//! The screens of `parhelia alerts`.

use jiff::Timestamp;
use parhelia_core::alert::{AlertTest, AlertView};
use parhelia_core::time::{human_age, seconds_between};

use super::table::{Table, cell};
use super::text::clean;

/// What it is for, in the words of the configuration.
fn chosen(alert: &AlertView) -> String {
    let types: Vec<&str> = alert.events.iter().map(|kind| kind.as_str()).collect();
    match (alert.severity, types.is_empty()) {
        (Some(least), true) => format!("{least} or worse"),
        (Some(least), false) => format!("{}, {least} or worse", types.join(" ")),
        (None, _) => types.join(" "),
    }
}

fn ago(at: Timestamp, now: Timestamp) -> String {
    format!("{} ago", human_age(seconds_between(at, now).max(0.0)))
}

pub(crate) fn list(alerts: &[AlertView], now: Timestamp) -> String {
    let mut table = Table::new(&[
        ("ALERT", 0),
        ("URL", 0),
        ("FOR", 0),
        ("PENDING", 0),
        ("DELIVERED", 0),
        ("FAILED", 0),
        ("LAST DELIVERY", 0),
        ("LAST ERROR", 0),
    ]);
    for alert in alerts {
        let error = alert.last_error.as_ref().map(|error| {
            let when = alert.last_error_at.map(|at| format!(" ({})", ago(at, now))).unwrap_or_default();
            format!("{}{when}", clean(error))
        });
        table.row(vec![
            cell(clean(&alert.name)),
            cell(clean(&alert.url)),
            cell(chosen(alert)),
            cell(alert.pending.to_string()),
            cell(alert.delivered.to_string()),
            cell(alert.failed.to_string()),
            cell(alert.last_delivered_at.map_or_else(|| "never".to_owned(), |at| ago(at, now))),
            cell(error.unwrap_or_else(|| "-".to_owned())),
        ]);
    }
    let mut out = table.render();
    if alerts.is_empty() {
        out.push_str("No alerts. Add [[alerts]] to parhelia.toml and restart the server.\n");
    }
    out
}

pub(crate) fn test(said: &AlertTest) -> String {
    let answer = match said.status {
        Some(status) => format!("{status} {}", clean(&said.answer)),
        None => "no answer".to_owned(),
    };
    let verdict = if said.ok { "delivered" } else { "not delivered" };
    let AlertTest { alert, delivery, duration_ms, .. } = said;
    format!("{} {verdict} in {duration_ms} ms as {delivery}: {}\n", clean(alert), answer.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use parhelia_core::alert::AlertFormat;
    use parhelia_core::event::{EventType, Severity};

    #[test]
    fn the_screen_says_where_what_and_what_became_of_it() {
        let now: Timestamp = "2026-01-21T14:30:00Z".parse().unwrap();
        let ops = AlertView {
            name: "ops".into(),
            url: "https://hooks.example.com/in".into(),
            events: vec![EventType::ContainerDead, EventType::OrphanDetected],
            severity: None,
            format: AlertFormat::Generic,
            signed: true,
            pending: 1,
            delivered: 20,
            failed: 2,
            last_delivered_at: Some("2026-01-21T14:29:30Z".parse().unwrap()),
            last_error: Some("the receiver answered 500".into()),
            last_error_at: Some("2026-01-21T14:00:00Z".parse().unwrap()),
        };
        let pager = AlertView {
            name: "pager".into(),
            events: vec![],
            severity: Some(Severity::Error),
            last_delivered_at: None,
            last_error: None,
            ..ops.clone()
        };
        let screen = list(&[ops, pager], now);
        for text in [
            "container_dead orphan_detected",
            "30s ago",
            "the receiver answered 500 (30m ago)",
            "error or worse",
            "never",
        ] {
            assert!(screen.contains(text), "{screen}");
        }
        assert!(list(&[], now).contains("No alerts"));
    }
}
