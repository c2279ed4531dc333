//! Sessions as they are shown outside our store: rows of the seed's `session_state` and of `session_history`, in
//! ClickHouse's JSONEachRow. Pure: what a row says is decided here, when it is sent is `server/src/relay/clickhouse/`.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{BlockedType, Session, SessionStatus, tell};
use crate::event::{Event, EventType};
use crate::time;

/// The columns of `session_state`, in the seed's order. An INSERT names them, so that a column that somebody has added
/// over there harms nothing.
pub const STATE_COLUMNS: &str = "session_id, cascade_id, parent_session_id, status, current_phase, depth, \
    blocked_type, blocked_on, blocked_description, blocked_timeout_at, heartbeat_at, heartbeat_lease_seconds, \
    cancel_requested, cancel_reason, cancelled_at, error_message, error_phase, last_checkpoint_id, resumable, \
    started_at, completed_at, updated_at, metadata";

/// What a row of `session_history` says besides.
pub const HISTORY_COLUMNS: &str = "event_id, event_type, event_at, message, version";

#[derive(Debug, Serialize)]
pub struct StateRow<'a> {
    session_id: &'a str,
    cascade_id: &'a str,
    parent_session_id: Option<&'a str>,
    status: SessionStatus,
    current_phase: Option<&'a str>,
    depth: i64,
    blocked_type: Option<BlockedType>,
    blocked_on: Option<&'a str>,
    blocked_description: Option<&'a str>,
    blocked_timeout_at: Option<String>,
    heartbeat_at: String,
    heartbeat_lease_seconds: i64,
    cancel_requested: bool,
    cancel_reason: Option<&'a str>,
    cancelled_at: Option<String>,
    error_message: Option<&'a str>,
    error_phase: Option<&'a str>,
    last_checkpoint_id: Option<&'a str>,
    resumable: bool,
    started_at: String,
    completed_at: Option<String>,
    updated_at: String,
    metadata: String,
}

#[derive(Debug, Serialize)]
pub struct HistoryRow<'a> {
    #[serde(flatten)]
    state: StateRow<'a>,
    event_id: i64,
    event_type: EventType,
    event_at: String,
    message: Option<&'a str>,
    /// The first version of the session's row in `session_state` that shows it.
    version: i64,
}

/// A session's row of `session_state`. Of two rows of a session the one with the later `updated_at` counts, so that is
/// the version under which it is sent, in milliseconds; when the session itself last changed stands in `metadata`.
/// Numbers are brought into the range of their column: one that does not fit would hold up all others.
pub fn state_row(session: &Session, version: i64) -> StateRow<'_> {
    StateRow {
        session_id: session.session_id.as_str(),
        cascade_id: &session.cascade_id,
        parent_session_id: session.parent_session_id.as_ref().map(|id| id.as_str()),
        status: session.status,
        current_phase: session.current_phase.as_deref(),
        depth: session.depth.clamp(0, u8::MAX.into()),
        blocked_type: session.blocked_type,
        blocked_on: session.blocked_on.as_deref(),
        blocked_description: session.blocked_description.as_deref(),
        blocked_timeout_at: session.blocked_timeout_at.map(time::to_text),
        heartbeat_at: time::to_text(session.heartbeat_at),
        heartbeat_lease_seconds: session.heartbeat_lease_seconds.clamp(0, u16::MAX.into()),
        cancel_requested: session.cancel_requested,
        cancel_reason: session.cancel_reason.as_deref(),
        cancelled_at: session.cancelled_at.map(time::to_text),
        error_message: session.error_message.as_deref(),
        error_phase: session.error_phase.as_deref(),
        last_checkpoint_id: session.last_checkpoint_id.as_ref().map(|id| id.as_str()),
        resumable: session.resumable,
        started_at: time::to_text(session.started_at),
        completed_at: session.completed_at.map(time::to_text),
        updated_at: time::to_text(moment(version)),
        metadata: metadata(session),
    }
}

/// The row of one change of status. `at` is its place in time, in milliseconds: later than any other of the session.
pub fn history_row<'a>(then: &'a Session, event: &'a Event, at: i64, version: i64) -> HistoryRow<'a> {
    HistoryRow {
        state: state_row(then, at),
        event_id: event.id,
        event_type: event.event_type,
        event_at: time::to_text(event.timestamp),
        message: event.message.as_deref(),
        version,
    }
}

/// The last sign of life of a session: its owner beats for all of its sessions at once, by its lease.
pub fn heartbeat(session: &Session, lease_until: Option<Timestamp>) -> Timestamp {
    let beaten = lease_until.filter(|_| !session.status.is_over());
    let beaten = beaten.map(|until| time::plus_seconds(until, -session.heartbeat_lease_seconds));
    beaten.map_or(session.heartbeat_at, |at| at.max(session.heartbeat_at))
}

fn moment(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)
}

/// What the seed's table has no column for. Whoever started the session has put in the rest.
fn metadata(session: &Session) -> String {
    let mut all = match &session.metadata {
        Value::Object(own) => own.clone(),
        _ => Map::new(),
    };
    let at = |at: Option<Timestamp>| at.map(|at| Value::from(time::to_text(at)));
    let text = |text: Option<&str>| text.map(Value::from);
    let ours = [
        ("blocked_since", at(session.blocked_since)),
        ("name", text(session.name.as_deref())),
        ("parent_phase", text(session.parent_phase.as_deref())),
        ("owner_id", text(session.owner_id.as_deref())),
        ("owner_epoch", Some(session.owner_epoch.into())),
        ("auto_resume", Some(session.auto_resume.into())),
        ("origin_id", text(session.origin_id.as_ref().map(|id| id.as_str()))),
        ("origin_phase", text(session.origin_phase.as_deref())),
        ("created_by", text(Some(&session.created_by))),
        ("changed_at", at(Some(session.updated_at))),
        ("cancel_requested_at", at(session.cancel_requested_at)),
        ("cancel_requested_by", text(session.cancel_requested_by.as_deref())),
        ("cancel_seen_at", at(session.cancel_seen_at)),
    ];
    for (key, value) in ours {
        match value {
            Some(value) => drop(all.insert(key.to_owned(), value)),
            None => drop(all.remove(key)),
        }
    }
    Value::Object(all).to_string()
}

/// The status that an event of a session tells of; `None` when its status is what it was.
pub fn change_of(event: &Event) -> Option<SessionStatus> {
    use EventType::*;
    let usual = match event.event_type {
        SessionStarted => SessionStatus::Starting,
        SessionRunning | SessionUnblocked | SessionResumed => SessionStatus::Running,
        SessionBlocked => SessionStatus::Blocked,
        SessionCompleted => SessionStatus::Completed,
        SessionFailed => SessionStatus::Error,
        SessionCancelled => SessionStatus::Cancelled,
        SessionOrphaned => SessionStatus::Orphaned,
        _ => return None,
    };
    let word = |text: &Option<String>| text.as_deref().and_then(|word| word.parse::<SessionStatus>().ok());
    let to = word(&event.new_value).unwrap_or(usual);
    (word(&event.old_value) != Some(to)).then_some(to)
}

/// The session as it was when this happened, from the row as it is now. Several changes may have passed before the
/// row was read: whatever belongs to a later one is not shown.
pub fn as_it_was(now: &Session, event: &Event, status: SessionStatus) -> Session {
    let at = event.timestamp;
    let told = |key: &str| event.details.get(key).and_then(Value::as_str).map(str::to_owned);
    let told_at = |key: &str| told(key).and_then(|text| time::from_text(&text).ok());
    let over = status.is_over();
    let mut then = now.clone();
    then.status = status;
    if now.status != status || now.updated_at > at {
        let waits_for = |message: &str| message.strip_prefix(tell::WAITS_FOR).unwrap_or(message).to_owned();
        then.current_phase = told("phase").or_else(|| now.current_phase.clone().filter(|_| over));
        then.last_checkpoint_id = now.last_checkpoint_id.clone().filter(|_| over);
        then.blocked_type = told("type").and_then(|word| word.parse().ok());
        then.blocked_on = told("on");
        then.blocked_description = event.message.as_deref().map(waits_for);
        then.blocked_since = Some(at);
        then.blocked_timeout_at = told_at("deadline");
    }
    if status != SessionStatus::Blocked {
        then.blocked_type = None;
        then.blocked_on = None;
        then.blocked_description = None;
        then.blocked_since = None;
        then.blocked_timeout_at = None;
    }
    // Whoever told of it was alive at that moment.
    then.heartbeat_at = now.heartbeat_at.min(at);
    then.updated_at = at;
    then.completed_at = now.completed_at.filter(|_| over);
    then.cancelled_at = now.cancelled_at.filter(|_| status == SessionStatus::Cancelled);
    let failed = status == SessionStatus::Error;
    then.error_message = now.error_message.clone().filter(|_| failed);
    then.error_phase = now.error_phase.clone().filter(|_| failed);
    if now.cancel_requested_at.is_some_and(|asked| asked > at) {
        then.cancel_requested = false;
        then.cancel_reason = None;
        then.cancel_requested_at = None;
        then.cancel_requested_by = None;
        then.cancel_seen_at = None;
    }
    then
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::Source;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn session(change: Value) -> Session {
        let mut whole = json!({
            "session_id": "sess-0000000000000000", "cascade_id": "deploy", "status": "running", "depth": 0,
            "current_phase": "build", "heartbeat_at": at(30), "heartbeat_lease_seconds": 60, "cancel_requested": false,
            "cancel_force": false, "resumable": true, "auto_resume": true, "started_at": at(0), "updated_at": at(30),
            "created_by": "ann", "metadata": { "ticket": 7 }, "owner_id": "o-1", "owner_epoch": 3,
        });
        for (key, value) in change.as_object().unwrap() {
            whole[key] = value.clone();
        }
        serde_json::from_value(whole).unwrap()
    }

    fn event(kind: EventType, second: i64, old: Option<&str>, new: Option<&str>) -> Event {
        Event {
            id: second,
            timestamp: at(second),
            event_type: kind,
            container_id: None,
            worker_id: None,
            task_id: None,
            session_id: Some("sess-0000000000000000".to_owned()),
            old_value: old.map(str::to_owned),
            new_value: new.map(str::to_owned),
            message: Some("told".to_owned()),
            details: json!({}),
            source: Source::Sessions,
            owner_id: None,
            epoch: None,
        }
    }

    #[test]
    fn a_row_has_every_column_of_the_seed_and_nothing_else() {
        let blocked = session(json!({
            "status": "blocked", "blocked_type": "approval", "blocked_on": "ship", "blocked_since": at(20), "depth": 999,
            "heartbeat_lease_seconds": 100_000,
        }));
        let row = serde_json::to_value(state_row(&blocked, 1_800_000_040_001)).unwrap();
        let columns: Vec<&str> = STATE_COLUMNS.split(", ").collect();
        assert_eq!(columns.len(), 23);
        assert!(columns.iter().all(|column| row.get(column).is_some()), "{row}");
        assert_eq!(row.as_object().unwrap().len(), columns.len());
        assert_eq!(row["updated_at"], "2027-01-15T08:00:40.001Z");
        assert_eq!((&row["depth"], &row["heartbeat_lease_seconds"]), (&json!(255), &json!(65_535)));
        let metadata: Value = serde_json::from_str(row["metadata"].as_str().unwrap()).unwrap();
        assert_eq!(
            (&metadata["blocked_since"], &metadata["ticket"], &metadata["owner_id"]),
            (&json!("2027-01-15T08:00:20.000Z"), &json!(7), &json!("o-1"))
        );
        assert_eq!(metadata.get("name"), None);
        let told = event(EventType::SessionBlocked, 20, None, None);
        let row = serde_json::to_value(history_row(&blocked, &told, 5, 6)).unwrap();
        let columns = HISTORY_COLUMNS.split(", ");
        assert!(columns.clone().all(|column| row.get(column).is_some()), "{row}");
        assert_eq!(row.as_object().unwrap().len(), 23 + columns.count());
    }

    #[test]
    fn an_owner_beats_for_its_sessions_until_they_are_over() {
        let lives = session(json!({}));
        assert_eq!(heartbeat(&lives, None), at(30));
        assert_eq!(heartbeat(&lives, Some(at(100))), at(40));
        assert_eq!(heartbeat(&lives, Some(at(80))), at(30));
        assert_eq!(heartbeat(&session(json!({ "status": "completed" })), Some(at(100))), at(30));
    }

    #[test]
    fn only_what_changes_the_status_is_a_change() {
        use EventType::*;
        let of = |kind, old, new| change_of(&event(kind, 1, old, new));
        assert_eq!(of(SessionStarted, None, None), Some(SessionStatus::Starting));
        assert_eq!(of(SessionRunning, Some("starting"), Some("running")), Some(SessionStatus::Running));
        assert_eq!(of(SessionFailed, Some("running"), Some("error")), Some(SessionStatus::Error));
        assert_eq!(of(SessionResumed, Some("running"), Some("running")), None);
        assert_eq!(of(SessionCancelRequested, None, None), None);
        assert_eq!(of(TaskStarted, Some("pending"), Some("running")), None);
    }

    #[test]
    fn a_change_shows_nothing_of_what_came_after_it() {
        let over = session(json!({
            "status": "error", "current_phase": "ship", "completed_at": at(30), "error_message": "it broke",
            "error_phase": "ship", "cancel_requested": true, "cancel_reason": "enough", "cancel_requested_at": at(29),
        }));
        let then =
            as_it_was(&over, &event(EventType::SessionStarted, 0, None, None), SessionStatus::Starting);
        assert_eq!(
            (then.status, then.current_phase, then.completed_at),
            (SessionStatus::Starting, None, None)
        );
        assert_eq!((then.error_message, then.cancel_requested, then.heartbeat_at), (None, false, at(0)));
        let mut told = event(EventType::SessionBlocked, 10, Some("running"), Some("blocked"));
        told.details = json!({ "type": "signal", "on": "go", "phase": "wait" });
        let then = as_it_was(&over, &told, SessionStatus::Blocked);
        assert_eq!(then.blocked_type, Some(BlockedType::Signal));
        assert_eq!((then.blocked_on.as_deref(), then.blocked_since), (Some("go"), Some(at(10))));
        assert_eq!(then.current_phase.as_deref(), Some("wait"));
        let last = as_it_was(&over, &event(EventType::SessionFailed, 30, None, None), SessionStatus::Error);
        assert_eq!((last.error_message.as_deref(), last.cancel_requested), (Some("it broke"), true));
        assert_eq!(last.completed_at, Some(at(30)));
    }

    #[test]
    fn the_second_of_two_waits_is_not_taken_for_the_first() {
        let again = session(json!({
            "status": "blocked", "blocked_type": "hitl", "blocked_on": "b", "blocked_since": at(20), "updated_at": at(20),
        }));
        let then =
            as_it_was(&again, &event(EventType::SessionBlocked, 10, None, None), SessionStatus::Blocked);
        assert_eq!((then.blocked_on, then.blocked_since), (None, Some(at(10))));
        let then =
            as_it_was(&again, &event(EventType::SessionBlocked, 20, None, None), SessionStatus::Blocked);
        assert_eq!((then.blocked_on.as_deref(), then.blocked_since), (Some("b"), Some(at(20))));
    }
}
