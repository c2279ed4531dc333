//! Why a session is not done, in sentences, and the command that would change it. Pure: from what every door shows.

use jiff::Timestamp;
use serde_json::Value;

use super::answer::Asked;
use super::api::{PhaseView, SessionDetail};
use super::{AttemptStatus, BlockedType, Session, SessionStatus, TaskStatus, WaitRow, WaitStatus};
use crate::cascade::QuestionKind;
use crate::time::{human_age, seconds_between};

/// How many tasks of a phase are named.
const NAMED: usize = 3;

/// The command that ends a wait; none where no person can.
pub fn command(wait: &WaitRow) -> Option<String> {
    let id = &wait.id;
    Some(match Asked::of(wait) {
        Asked::Permission => format!("parhelia inbox approve {id}"),
        Asked::FreeText => format!("parhelia inbox answer {id} 'TEXT'"),
        Asked::Question(question) => match question.kind {
            QuestionKind::Confirmation => format!("parhelia inbox answer {id} yes"),
            QuestionKind::Choice => {
                let first = question.options.first().map_or("OPTION", String::as_str);
                format!("parhelia inbox answer {id} {}", quoted(first))
            }
            QuestionKind::MultiChoice => {
                let first = question.options.first().map_or("OPTION", String::as_str);
                format!("parhelia inbox answer {id} --choice {}", quoted(first))
            }
            QuestionKind::Text => format!("parhelia inbox answer {id} 'TEXT'"),
            QuestionKind::Rating => {
                format!("parhelia inbox answer {id} {}", question.max.map_or(5, |max| max.floor() as i64))
            }
        },
        Asked::Nobody if wait.wait_type == BlockedType::Signal => {
            format!("parhelia signals fire {} --session {}", quoted(&wait.wait_on), wait.session_id)
        }
        Asked::Nobody => return None,
    })
}

/// As a shell takes it for one word.
fn quoted(text: &str) -> String {
    let plain = !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/' | b':' | b'@'));
    // What begins so would be taken for an option.
    if plain && !text.starts_with('-') {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

fn span(from: Timestamp, to: Timestamp) -> String {
    human_age(seconds_between(from, to).max(0.0))
}

/// `an approval`, `the signal x`, …
pub fn awaited(wait: &WaitRow) -> String {
    match wait.wait_type {
        BlockedType::Signal => format!("the signal {}", wait.wait_on),
        BlockedType::Sensor => match wait.question.get("command").and_then(Value::as_str) {
            Some(command) => format!("'{command}' to succeed"),
            None if wait.wait_on.starts_with("time ") => format!("the {}", wait.wait_on),
            None => format!("the sensor {}", wait.wait_on),
        },
        BlockedType::Approval => "an approval".to_owned(),
        BlockedType::Checkpoint => "somebody to look at what was done".to_owned(),
        BlockedType::Hitl if wait.task_id.is_some() => "an answer to its agent".to_owned(),
        BlockedType::Hitl => "an answer".to_owned(),
    }
}

/// What somebody wrote for people about it; nothing where that would only say again what it waits for.
pub fn said(wait: &WaitRow) -> Option<&str> {
    let text = wait.description.as_str();
    let says_nothing = match wait.wait_type {
        BlockedType::Signal => text == format!("the signal '{}'", wait.wait_on),
        BlockedType::Sensor => {
            text == format!("the sensor of phase {}", wait.phase)
                || wait.wait_on.strip_prefix("time ").is_some_and(|at| at == text)
        }
        _ => false,
    };
    (!text.is_empty() && !says_nothing).then_some(text)
}

/// What a deadline means; a timeout is not a denial.
pub fn on_timeout(wait: &WaitRow) -> &'static str {
    match wait.on_timeout.as_str() {
        "continue" => "goes on without it",
        "default" => "goes on with the default",
        _ => "fails because nobody answered in time",
    }
}

/// One open wait in a sentence.
pub fn of_wait(wait: &WaitRow, now: Timestamp) -> String {
    let mut text = format!("{}: waits for {}, for {}", wait.phase, awaited(wait), span(wait.since, now));
    if let Some(said) = said(wait) {
        text.push_str(&format!(": {said}"));
    }
    if let Some(deadline) = wait.deadline {
        let left = if deadline > now {
            format!("in {}", span(now, deadline))
        } else {
            format!("since {}", span(deadline, now))
        };
        text.push_str(&format!("; {left} it {}", on_timeout(wait)));
    }
    if let Some(command) = command(wait) {
        text.push_str(&format!("; {command}"));
    }
    text
}

/// Why it is not done. Empty: it is over.
pub fn not_done(detail: &SessionDetail, now: Timestamp) -> Vec<String> {
    let session = &detail.view.session;
    let mut said = Vec::new();
    if session.status.is_over() {
        return said;
    }
    if session.cancel_requested {
        said.push(cancelling(session, now));
    }
    if session.status == SessionStatus::Orphaned {
        said.push(format!(
            "its server died and nobody may go on with it before somebody says so; parhelia sessions resume {}",
            session.session_id
        ));
        return said;
    }
    if !detail.view.owner_alive {
        said.push(match &session.owner_id {
            Some(owner) => format!(
                "its server ({owner}) was last heard {} ago; another takes over when it is known to be dead, at the latest {}s after that",
                span(session.heartbeat_at, now),
                session.heartbeat_lease_seconds
            ),
            None => "no server has taken it yet".to_owned(),
        });
    }
    if session.status == SessionStatus::Starting && detail.phases.iter().all(|phase| phase.row.is_none()) {
        said.push("it has not begun: its server has yet to take the first step".to_owned());
    }
    let waits = detail.waits.iter().filter(|wait| wait.status == WaitStatus::Open);
    said.extend(waits.map(|wait| match last_check(wait, detail) {
        Some(code) => format!("{}; its last check ended with code {code}", of_wait(wait, now)),
        None => of_wait(wait, now),
    }));
    said.extend(
        detail
            .waits
            .iter()
            .filter(|wait| is_untaken(wait, detail))
            .map(|wait| format!("{}: the answer is there, and the session is about to take it", wait.phase)),
    );
    said.extend(detail.phases.iter().filter_map(|phase| of_tasks(phase, now)));
    let children = detail.children.iter().filter(|child| !child.session.status.is_over());
    said.extend(children.map(|child| {
        let child = &child.session;
        format!(
            "{}: the session {} is {}; parhelia why {}",
            child.parent_phase.as_deref().unwrap_or("a phase"),
            child.session_id,
            child.status,
            child.session_id
        )
    }));
    said
}

/// How the command of a sensor ended the last time.
fn last_check(wait: &WaitRow, detail: &SessionDetail) -> Option<i64> {
    if wait.wait_type != BlockedType::Sensor {
        return None;
    }
    let phase = detail.phases.iter().find(|phase| phase.name == wait.phase)?;
    let attempts = phase.tasks.iter().flat_map(|view| &view.attempts);
    attempts.rev().find_map(|attempt| attempt.exit_code)
}

/// Answered, and its phase still runs with nothing else of it.
fn is_untaken(wait: &WaitRow, detail: &SessionDetail) -> bool {
    wait.status == WaitStatus::Answered
        && wait.task_id.is_none()
        && detail.phases.iter().any(|phase| {
            phase.name == wait.phase && phase.row.as_ref().is_some_and(|row| !row.status.is_over())
        })
}

fn cancelling(session: &Session, now: Timestamp) -> String {
    let by = session.cancel_requested_by.as_deref().unwrap_or("somebody");
    let when = session.cancel_requested_at.map_or_else(String::new, |at| format!(" {} ago", span(at, now)));
    let seen = match session.cancel_seen_at {
        Some(_) => "everything of it was told to end, and it is cancelled once all of it is confirmed gone",
        None => "its server has not seen that yet",
    };
    format!("{by} asked to cancel it{when}; {seen}")
}

fn of_tasks(phase: &PhaseView, now: Timestamp) -> Option<String> {
    let row = phase.row.as_ref().filter(|row| !row.status.is_over())?;
    let count = |state: TaskStatus| phase.tasks_by_state.get(state.as_str()).copied().unwrap_or(0);
    let total: i64 = phase.tasks_by_state.values().sum();
    if total == 0 {
        return None;
    }
    let busy = count(TaskStatus::Running) + count(TaskStatus::Verifying) + count(TaskStatus::Claimed);
    let mut parts = Vec::new();
    if busy > 0 {
        let names: Vec<_> = phase
            .tasks
            .iter()
            .filter(|view| {
                matches!(view.task.state, TaskStatus::Running | TaskStatus::Verifying | TaskStatus::Claimed)
            })
            .take(NAMED)
            .map(|view| {
                let since = view.attempts.last().map_or(row.started_at, |attempt| attempt.started_at);
                format!("{} for {}", view.task.key, span(since, now))
            })
            .collect();
        let more = if busy > names.len() as i64 { ", …" } else { "" };
        parts.push(format!("{busy} of {total} tasks at work ({}{more})", names.join(", ")));
    }
    let pending = count(TaskStatus::Pending);
    let asking = phase
        .tasks
        .iter()
        .filter(|view| view.attempts.last().is_some_and(|attempt| attempt.status == AttemptStatus::Waiting))
        .count() as i64;
    let retries: Vec<_> =
        phase.tasks.iter().filter(|view| view.task.retry_at.is_some_and(|at| at > now)).take(NAMED).collect();
    for view in &retries {
        let at = view.task.retry_at.unwrap_or(now);
        parts.push(format!("{} tries again in {}", view.task.key, span(now, at)));
    }
    let queued = pending - retries.len() as i64 - asking;
    if queued > 0 {
        parts.push(format!("{queued} wait for their turn"));
    }
    (!parts.is_empty()).then(|| format!("{}: {}", phase.name, parts.join(", ")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test the panic is the message")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ids::{SessionId, WaitId};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn wait(kind: BlockedType, on: &str, description: &str, question: Value) -> WaitRow {
        WaitRow {
            id: WaitId::mint(1, 1),
            session_id: SessionId::mint(1, 1),
            phase: "p".to_owned(),
            task_id: None,
            wait_type: kind,
            wait_on: on.to_owned(),
            description: description.to_owned(),
            question,
            on_timeout: "fail".to_owned(),
            default_value: None,
            since: at(0),
            deadline: None,
            status: WaitStatus::Open,
            answer: None,
            answered_by: None,
            answer_reason: None,
            answered_at: None,
            signal_id: None,
        }
    }

    #[test]
    fn a_description_is_shown_where_it_says_more() {
        let told = |kind, on: &str, description: &str, question| {
            let text = of_wait(&wait(kind, on, description, question), at(5));
            text.split("; parhelia").next().unwrap().to_owned()
        };
        let signal = BlockedType::Signal;
        assert_eq!(
            told(signal, "news", "the signal 'news'", json!({})),
            "p: waits for the signal news, for 5s"
        );
        assert_eq!(
            told(signal, "news", "what the press says", json!({})),
            "p: waits for the signal news, for 5s: what the press says"
        );
        let (sensor, noon) = (BlockedType::Sensor, "2026-01-21T12:00:00Z");
        let on = format!("time {noon}");
        assert_eq!(
            told(sensor, &on, noon, json!({ "at": noon })),
            format!("p: waits for the time {noon}, for 5s")
        );
        assert_eq!(
            told(sensor, "command", "the sensor of phase p", json!({ "command": "make ready" })),
            "p: waits for 'make ready' to succeed, for 5s"
        );
    }
}
