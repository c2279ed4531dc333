//! The screens of events, and their two export formats.

use parhelia_core::event::Event;

use super::table::{Table, cell, styled};
use super::text::{clean, or_dash, painted, severity_style, time};

/// `containers events`: every row is of the same container.
pub(crate) fn of_container(events: &[Event]) -> String {
    let mut table = Table::new(&[("TIMESTAMP", 24), ("EVENT", 19), ("MESSAGE", 0)]);
    for event in events {
        table.row(vec![
            cell(time(event.timestamp)),
            styled(event.event_type.short(), severity_style(event.event_type.severity())),
            cell(or_dash(event.message.as_deref())),
        ]);
    }
    table.render()
}

/// Its container, or else its session.
fn of(event: &Event) -> &str {
    or_dash(event.container_id.as_deref().or(event.session_id.as_deref()))
}

/// `events list`
pub(crate) fn list(events: &[Event], wide: bool) -> String {
    let mut columns = vec![("TIMESTAMP", 24), ("EVENT", 19), ("CONTAINER", 0)];
    if wide {
        columns.extend([("ID", 0), ("TASK", 0), ("SESSION", 0), ("SOURCE", 0), ("OLD", 0), ("NEW", 0)]);
    }
    columns.push(("MESSAGE", 0));
    let mut table = Table::new(&columns);
    for event in events {
        let mut row = vec![
            cell(time(event.timestamp)),
            styled(event.event_type.short(), severity_style(event.event_type.severity())),
            cell(of(event)),
        ];
        if wide {
            row.extend([
                cell(event.id.to_string()),
                cell(or_dash(event.task_id.as_deref())),
                cell(or_dash(event.session_id.as_deref())),
                cell(event.source.as_str()),
                cell(or_dash(event.old_value.as_deref())),
                cell(or_dash(event.new_value.as_deref())),
            ]);
        }
        row.push(cell(or_dash(event.message.as_deref())));
        table.row(row);
    }
    table.render()
}

/// One line of `events tail`.
pub(crate) fn line(event: &Event) -> String {
    let style = severity_style(event.event_type.severity());
    let kind = painted(&format!("{:<16}", event.event_type.short()), style);
    let container = clean(of(event));
    format!(
        "{}  {kind}  {container:<18}  {}",
        time(event.timestamp),
        clean(or_dash(event.message.as_deref()))
    )
}

pub(crate) const CSV_HEADER: &str = "id,timestamp,event_type,container_id,worker_id,task_id,session_id,old_value,new_value,message,details,source\r\n";

/// One record of RFC 4180.
pub(crate) fn csv(event: &Event) -> String {
    let optional = |text: &Option<String>| text.clone().unwrap_or_default();
    let fields = [
        event.id.to_string(),
        parhelia_core::time::to_text(event.timestamp),
        event.event_type.as_str().to_owned(),
        optional(&event.container_id),
        optional(&event.worker_id),
        optional(&event.task_id),
        optional(&event.session_id),
        optional(&event.old_value),
        optional(&event.new_value),
        optional(&event.message),
        event.details.to_string(),
        event.source.as_str().to_owned(),
    ];
    fields.map(|field| quoted(&field)).join(",") + "\r\n"
}

fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{event, plain};
    use super::*;
    use parhelia_core::event::EventType;

    #[test]
    fn the_seeds_screen_of_events() {
        let events = [
            event(
                1,
                "2026-01-21T14:30:00Z",
                EventType::ContainerCreated,
                "Container created for task ta-def456",
            ),
            event(2, "2026-01-21T14:30:15Z", EventType::ContainerStarted, "Modal sandbox sb-xyz789 started"),
            event(3, "2026-01-21T15:45:00Z", EventType::ContainerDegraded, "Missed 2 heartbeats"),
        ];
        assert_eq!(
            plain(&of_container(&events)),
            "\
TIMESTAMP               EVENT              MESSAGE
2026-01-21 14:30:00     created            Container created for task ta-def456
2026-01-21 14:30:15     started            Modal sandbox sb-xyz789 started
2026-01-21 15:45:00     degraded           Missed 2 heartbeats
"
        );
    }

    #[test]
    fn the_list_names_the_container_and_a_tail_line_is_one_line() {
        let one = event(7, "2026-01-21T14:30:00Z", EventType::OrphanDetected, "line one\nline two");
        assert_eq!(
            plain(&list(std::slice::from_ref(&one), false)),
            "TIMESTAMP               EVENT              CONTAINER   MESSAGE\n\
             2026-01-21 14:30:00     orphan_detected    c-abc123    line one\\nline two\n"
        );
        assert_eq!(
            plain(&line(&one)),
            "2026-01-21 14:30:00  orphan_detected   c-abc123            line one\\nline two"
        );
    }

    #[test]
    fn csv_quotes_what_it_must() {
        let one = event(7, "2026-01-21T14:30:00Z", EventType::OrphanDetected, "a, \"b\"\nc");
        assert_eq!(
            csv(&one),
            "7,2026-01-21T14:30:00.000Z,orphan_detected,c-abc123,,,,,,\"a, \"\"b\"\"\nc\",{},reconciler\r\n"
        );
        assert_eq!(CSV_HEADER.split(',').count(), 12);
    }
}
