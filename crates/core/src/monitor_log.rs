//! The line of `monitor.log` for an event, and the way back from a line to its event.

use serde_json::{Map, Value, json};

use crate::event::{Event, Severity};
use crate::time;

/// One JSON object without a line break: `ts`, `level`, `worker_id`, `event`, `task_id`, `data`, in that order. What
/// else an event has is in `data`, beside its details.
pub fn line(event: &Event) -> String {
    let level = match event.event_type.severity() {
        Severity::Info => "INFO",
        Severity::Warning => "WARNING",
        Severity::Error => "ERROR",
    };
    let mut data = match &event.details {
        Value::Object(details) => details.clone(),
        _ => Map::new(),
    };
    let mut add = |key: &str, value: Option<&String>| {
        if let Some(value) = value {
            data.insert(key.to_owned(), json!(value));
        }
    };
    add("container_id", event.container_id.as_ref());
    add("session_id", event.session_id.as_ref());
    add("old_value", event.old_value.as_ref());
    add("new_value", event.new_value.as_ref());
    add("message", event.message.as_ref());
    data.insert("source".to_owned(), json!(event.source));
    data.insert("event_id".to_owned(), json!(event.id));
    // By hand: the order is part of the format.
    format!(
        r#"{{"ts":{},"level":"{level}","worker_id":{},"event":"{}","task_id":{},"data":{}}}"#,
        json!(time::to_text(event.timestamp)),
        json!(event.worker_id),
        event.event_type,
        json!(event.task_id),
        Value::Object(data),
    )
}

/// Which event a line is of. `None`: it is not one of ours, or not whole.
pub fn event_id(line: &str) -> Option<i64> {
    serde_json::from_str::<Value>(line).ok()?["data"]["event_id"].as_i64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventType, Source};

    #[test]
    fn a_line_has_the_seeds_format_and_leads_back_to_its_event() {
        let event = Event {
            id: 42,
            timestamp: "2026-02-03T05:41:55.123Z".parse().unwrap(),
            event_type: EventType::ContainerDegraded,
            container_id: Some("c-1".into()),
            worker_id: Some("W0".into()),
            task_id: Some("A-L1-002".into()),
            session_id: None,
            old_value: None,
            new_value: Some("degraded".into()),
            message: Some("two\nlines \"quoted\"".into()),
            details: json!({ "previous_owner": null, "event_id": 1 }),
            source: Source::HealthMonitor,
            owner_id: None,
            epoch: None,
        };
        let text = line(&event);
        assert!(
            text.starts_with(
                r#"{"ts":"2026-02-03T05:41:55.123Z","level":"WARNING","worker_id":"W0","event":"container_degraded","task_id":"A-L1-002","data":{"#
            ),
            "{text}"
        );
        assert!(!text.contains('\n'));
        assert_eq!(event_id(&text), Some(42));
        assert_eq!(event_id(&text[..text.len() - 1]), None);
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["data"]["previous_owner"], Value::Null);
        assert_eq!(read["data"]["message"], "two\nlines \"quoted\"");
        assert_eq!(read.as_object().unwrap().len(), 6);
    }
}
