//! What a receiver of alerts gets to read: our own JSON, or what Slack's incoming webhooks take.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::alert::AlertFormat;
use crate::event::{Event, Severity};

/// Slack takes 40,000 characters of text; a screen has room for less.
const MESSAGE_CHARS: usize = 2000;

/// An event for somebody outside, or a test.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    /// The type of the event; `test` when somebody tries an alert out.
    pub kind: String,
    pub severity: Severity,
    pub timestamp: Timestamp,
    pub message: String,
    /// None: a test.
    pub event: Option<Event>,
}

impl Notice {
    pub fn of(event: Event) -> Self {
        Self {
            kind: event.event_type.to_string(),
            severity: event.event_type.severity(),
            timestamp: event.timestamp,
            message: event.message.clone().unwrap_or_default(),
            event: Some(event),
        }
    }

    pub fn test(alert: &str, by: &str, now: Timestamp) -> Self {
        Self {
            kind: "test".to_owned(),
            severity: Severity::Info,
            timestamp: now,
            message: format!("A test of the alert {alert}, asked for by {by}"),
            event: None,
        }
    }

    /// The whole body.
    pub fn body(&self, format: AlertFormat, alert: &str, delivery: &str) -> Value {
        match format {
            AlertFormat::Generic => self.generic(alert, delivery),
            AlertFormat::Slack => self.slack(alert, delivery),
        }
    }

    fn generic(&self, alert: &str, delivery: &str) -> Value {
        let event = self.event.as_ref();
        json!({
            "id": event.map(|e| e.id),
            "delivery": delivery,
            "alert": alert,
            "type": self.kind,
            "severity": self.severity,
            "timestamp": self.timestamp,
            "message": self.message,
            "container_id": event.and_then(|e| e.container_id.as_ref()),
            "worker_id": event.and_then(|e| e.worker_id.as_ref()),
            "task_id": event.and_then(|e| e.task_id.as_ref()),
            "session_id": event.and_then(|e| e.session_id.as_ref()),
            "event": event,
        })
    }

    fn slack(&self, alert: &str, delivery: &str) -> Value {
        let (mark, color) = match self.severity {
            Severity::Info => ("ℹ", "#2eb67d"),
            Severity::Warning => ("⚠", "#ecb22e"),
            Severity::Error => ("✖", "#e01e5a"),
        };
        let message: String = self.message.chars().take(MESSAGE_CHARS).collect();
        let mut fields = vec![field("Severity", self.severity.as_str()), field("Event", &self.kind)];
        let event = self.event.as_ref();
        let ids = [
            ("Container", event.and_then(|e| e.container_id.as_deref())),
            ("Task", event.and_then(|e| e.task_id.as_deref())),
            ("Worker", event.and_then(|e| e.worker_id.as_deref())),
            ("Session", event.and_then(|e| e.session_id.as_deref())),
        ];
        let known: Vec<_> = ids.into_iter().filter_map(|(name, id)| id.map(|id| (name, id))).collect();
        fields.extend(known.iter().map(|(name, id)| field(name, id)));
        let why = known.first().map(|(_, id)| format!("\n`parhelia why {}`", escaped(id)));
        json!({
            "text": format!("{mark} {}: {}", escaped(&self.kind), escaped(&message)),
            "attachments": [{
                "color": color,
                "fallback": message,
                "text": format!("{}{}", escaped(&message), why.unwrap_or_default()),
                "mrkdwn_in": ["text"],
                "fields": fields,
                "footer": format!("parhelia · {alert} · {delivery}"),
                "ts": self.timestamp.as_second(),
            }],
        })
    }
}

fn field(title: &str, value: &str) -> Value {
    json!({ "title": title, "value": escaped(value), "short": true })
}

/// The three that Slack reads as its own: an event must not mention everybody by accident.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventType, Source};

    fn dead() -> Notice {
        Notice::of(Event {
            id: 7,
            timestamp: "2026-02-03T05:41:55.123Z".parse().unwrap(),
            event_type: EventType::ContainerDead,
            container_id: Some("c-abc123".into()),
            worker_id: None,
            task_id: Some("t<1>".into()),
            session_id: None,
            old_value: Some("unhealthy".into()),
            new_value: Some("dead".into()),
            message: Some("<!channel> & more".into()),
            details: json!({ "silent_seconds": 601 }),
            source: Source::HealthMonitor,
            owner_id: None,
            epoch: None,
        })
    }

    #[test]
    fn the_generic_body_has_the_event_and_what_it_is_sorted_by() {
        let body = dead().body(AlertFormat::Generic, "ops", "dlv-1");
        insta::assert_json_snapshot!(body, @r#"
        {
          "alert": "ops",
          "container_id": "c-abc123",
          "delivery": "dlv-1",
          "event": {
            "container_id": "c-abc123",
            "details": {
              "silent_seconds": 601
            },
            "event_type": "container_dead",
            "id": 7,
            "message": "<!channel> & more",
            "new_value": "dead",
            "old_value": "unhealthy",
            "session_id": null,
            "source": "health_monitor",
            "task_id": "t<1>",
            "timestamp": "2026-02-03T05:41:55.123Z",
            "worker_id": null
          },
          "id": 7,
          "message": "<!channel> & more",
          "session_id": null,
          "severity": "error",
          "task_id": "t<1>",
          "timestamp": "2026-02-03T05:41:55.123Z",
          "type": "container_dead",
          "worker_id": null
        }
        "#);
    }

    #[test]
    fn slack_gets_text_and_cannot_be_made_to_call_everybody() {
        let body = dead().body(AlertFormat::Slack, "ops", "dlv-1");
        assert_eq!(body["text"], "✖ container_dead: &lt;!channel&gt; &amp; more");
        let attached = &body["attachments"][0];
        assert_eq!(attached["text"], "&lt;!channel&gt; &amp; more\n`parhelia why c-abc123`");
        assert_eq!(attached["fields"][0], json!({"title": "Severity", "value": "error", "short": true}));
        assert_eq!(attached["fields"][3]["value"], "t&lt;1&gt;");
        assert_eq!(attached["footer"], "parhelia · ops · dlv-1");
        let test = Notice::test("ops", "local", dead().timestamp);
        assert_eq!(test.body(AlertFormat::Generic, "ops", "dlv-1")["type"], "test");
        assert!(test.body(AlertFormat::Slack, "ops", "dlv-1")["text"].as_str().unwrap().contains("A test"));
    }
}
