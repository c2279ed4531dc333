//! What the history says of a session's steps: one event for each change, in the transaction of the change.

use serde_json::json;

use super::plan::{AttemptEnd, Patch, Step};
use super::{PhaseStatus, Session, SessionStatus};
use crate::cascade::Cascade;
use crate::event::{EventType, NewEvent, Source};
use crate::ids::SessionId;

/// What stands before the description of what a session waits for.
pub(super) const WAITS_FOR: &str = "Session waits for ";

fn about(kind: EventType, session: &SessionId, message: impl Into<String>) -> NewEvent {
    NewEvent::new(kind, Source::Sessions, message).session(session)
}

/// What a step is told as. What starts a task is told with its container, by whoever made that.
pub fn of_step(step: &Step, session: &SessionId, cascade: &Cascade) -> Option<NewEvent> {
    let name = |position: usize| cascade.phases.get(position).map_or("", |phase| phase.name.as_str());
    Some(match step {
        Step::BeginPhase { position, tasks } => {
            let name = name(*position);
            about(EventType::PhaseStarted, session, format!("Phase {name} started"))
                .details(json!({ "phase": name, "tasks": tasks.len() }))
        }
        Step::EndPhase { position, status, error, .. } => {
            let name = name(*position);
            let (kind, message) = match status {
                PhaseStatus::Completed => (EventType::PhaseCompleted, format!("Phase {name} completed")),
                PhaseStatus::Skipped => (EventType::PhaseSkipped, format!("Phase {name} skipped")),
                PhaseStatus::Failed => {
                    let why = error.as_deref().unwrap_or("no reason given");
                    (EventType::PhaseFailed, format!("Phase {name} failed: {}", short(why)))
                }
                // Told with the session.
                PhaseStatus::Cancelled | PhaseStatus::Running => return None,
            };
            about(kind, session, message).details(json!({ "phase": name }))
        }
        Step::EndAttempt { task, attempt, end } => {
            let key = &task.key;
            let (kind, message) = match end {
                AttemptEnd::Completed { .. } => (EventType::TaskCompleted, format!("Task {key} completed")),
                AttemptEnd::Retried { message, at, .. } => {
                    let text = format!("Task {key} is tried again at {at}: {}", short(message));
                    (EventType::TaskRetried, text)
                }
                AttemptEnd::Failed { message, .. } => {
                    (EventType::TaskFailed, format!("Task {key} failed: {}", short(message)))
                }
                AttemptEnd::NotYet { .. } | AttemptEnd::Waiting { .. } | AttemptEnd::Cancelled => {
                    return None;
                }
            };
            about(kind, session, message)
                .task(Some(task.id.as_str()))
                .details(json!({ "phase": task.phase, "task": key, "attempt": attempt }))
        }
        Step::FailTask { task, message } => {
            about(EventType::TaskFailed, session, format!("Task {} failed: {}", task.key, short(message)))
                .task(Some(task.id.as_str()))
                .details(json!({ "phase": task.phase, "task": task.key }))
        }
        Step::Deliver { signal, wait, name, .. } => {
            about(EventType::SignalDelivered, session, format!("Signal '{name}' delivered"))
                .details(json!({ "signal": signal, "wait": wait }))
        }
        Step::TimeOutWait { wait, description, then } => {
            let message = format!("Nobody answered '{}' in time: {then}", short(description));
            about(EventType::WaitTimedOut, session, message).details(json!({ "wait": wait, "then": then }))
        }
        Step::CancelChild { child } => {
            about(EventType::SessionCancelRequested, child, format!("Cancelled with {session}"))
                .details(json!({ "by": session }))
        }
        Step::StartWorker
        | Step::StartAttempt { .. }
        | Step::StartVerify { .. }
        | Step::OpenWait { .. }
        | Step::WithdrawWait { .. }
        // Told with its phase.
        | Step::FulfilWait { .. }
        | Step::StartChild { .. }
        | Step::Outputs { .. } => return None,
    })
}

/// The change of the session itself, where there is one.
pub fn of_patch(before: &Session, patch: &Patch) -> Option<NewEvent> {
    let id = &before.session_id;
    let blocked = patch.blocked.as_ref();
    let (kind, message) = match patch.status {
        SessionStatus::Blocked => {
            let now = blocked.map(|b| (b.kind, b.on.as_str(), b.since));
            let earlier = before.blocked_type.zip(before.blocked_on.as_deref()).zip(before.blocked_since);
            if before.status == SessionStatus::Blocked && earlier.map(|((k, on), at)| (k, on, at)) == now {
                return None;
            }
            let text = blocked.map_or("", |b| b.description.as_str());
            (EventType::SessionBlocked, format!("{WAITS_FOR}{}", short(text)))
        }
        status if status == before.status => return None,
        SessionStatus::Running if before.status == SessionStatus::Blocked => {
            (EventType::SessionUnblocked, "Session goes on".to_owned())
        }
        SessionStatus::Running if before.status == SessionStatus::Starting => {
            (EventType::SessionRunning, "Session runs".to_owned())
        }
        SessionStatus::Completed => (EventType::SessionCompleted, "Session completed".to_owned()),
        SessionStatus::Error => {
            let why = patch.error_message.as_deref().unwrap_or("no reason given");
            (EventType::SessionFailed, format!("Session failed: {}", short(why)))
        }
        SessionStatus::Cancelled => {
            (EventType::SessionCancelled, "Session cancelled; everything of it is gone".to_owned())
        }
        _ => return None,
    };
    let mut details = json!({ "cascade": before.cascade_id });
    if let Some(blocked) = blocked {
        details["type"] = json!(blocked.kind);
        details["on"] = json!(blocked.on);
        details["deadline"] = json!(blocked.timeout_at);
    }
    if let Some(phase) = patch.error_phase.as_ref().or(patch.current_phase.as_ref()) {
        details["phase"] = json!(phase);
    }
    if let Some(parent) = &before.parent_session_id {
        details["parent"] = json!(parent);
    }
    Some(about(kind, id, message).change(before.status, patch.status).details(details))
}

fn short(text: &str) -> String {
    const MOST: usize = 300;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let cut: String = text.chars().take(MOST).collect();
    format!("{cut}…")
}
