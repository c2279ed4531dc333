//! The text of server-sent events (WHATWG HTML, "Server-sent events"). A block that has an `id` and no `data`
//! is not shown to a program; it only moves the place from which its client resumes.

use bytes::Bytes;
use parhelia_core::event::Event;
use serde::Serialize;
use serde_json::json;

use super::tail::Lost;

/// After how long a client should come again.
const RETRY_MILLISECONDS: u64 = 1000;

fn block(id: i64, event: &str, data: &impl Serialize) -> Bytes {
    // JSON on one line: a line break in it would end the field.
    let data = serde_json::to_string(data).unwrap_or_else(|_| "{}".to_owned());
    format!("id: {id}\nevent: {event}\ndata: {data}\n\n").into()
}

pub(super) fn event(event: &Event) -> Bytes {
    block(event.id, event.event_type.as_str(), event)
}

/// The first words of every stream: when to come again, and from where if nothing happens until then.
pub(super) fn opening(at: i64) -> Bytes {
    format!("retry: {RETRY_MILLISECONDS}\nid: {at}\n\n").into()
}

pub(super) fn heartbeat(at: i64) -> Bytes {
    format!(": heartbeat\nid: {at}\n\n").into()
}

pub(super) fn snapshot(at: i64, containers: &impl Serialize) -> Bytes {
    block(at, "snapshot", &json!({ "last_event_id": at, "containers": containers }))
}

/// What came between is gone.
pub(super) fn reset(lost: Lost) -> Bytes {
    let data = json!({
        "last_event_id": lost.after,
        "oldest_id": lost.oldest,
        "message": format!(
            "what came after event {} is no longer kept; the history begins at {}: read the state afresh",
            lost.after, lost.oldest
        ),
    });
    block(lost.oldest - 1, "reset", &data)
}

/// The stream ends here and goes on with the next request.
pub(super) fn resume(at: i64, why: &str) -> Bytes {
    block(at, "resume", &json!({ "last_event_id": at, "message": why }))
}

pub(super) fn refused() -> Bytes {
    Bytes::from_static(b": the token holds no longer\n\n")
}

#[cfg(test)]
mod tests {
    use parhelia_core::event::{EventType, Source};

    use super::*;

    #[test]
    fn an_event_is_one_block_whatever_stands_in_it() {
        let told = Event {
            id: 7,
            timestamp: "2026-01-21T14:30:00Z".parse().unwrap(),
            event_type: EventType::ContainerDead,
            container_id: None,
            worker_id: None,
            task_id: None,
            session_id: None,
            old_value: None,
            new_value: None,
            message: Some("two\nlines\r\n\r\nid: 99".into()),
            details: json!({}),
            source: Source::System,
        };
        let text = event(&told);
        let text = std::str::from_utf8(&text).unwrap();
        let lines: Vec<&str> = text.split(['\n', '\r']).collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert_eq!((lines[0], lines[1], lines[3], lines[4]), ("id: 7", "event: container_dead", "", ""));
        let data = lines[2].strip_prefix("data: ").unwrap();
        assert_eq!(serde_json::from_str::<Event>(data).unwrap(), told);
    }
}
