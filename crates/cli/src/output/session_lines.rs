//! What happened in a session, in lines: for whoever follows it without a terminal. Everything is taken from what the
//! session keeps (phases, attempts, waits), so that nothing is missed between two looks.

use jiff::Timestamp;
use parhelia_core::session::api::{PhaseView, SessionTree, TaskView};
use parhelia_core::session::{
    AttemptStatus, BlockedType, PhaseStatus, SessionStatus, TaskStatus, WaitRow, WaitStatus, explain,
};

use super::sessions::span;
use super::text::{clean, shortened};

/// Levels with more tasks than this are told as a whole.
const TASKS_TOLD: i64 = 20;
/// What of a reason is told.
const SHOWN: usize = 200;

/// Something that happened.
#[derive(Debug)]
pub(crate) struct Line {
    at: Timestamp,
    /// It is told once under this.
    pub(crate) key: String,
    pub(crate) text: String,
}

/// Everything that has happened so far, in its order.
pub(crate) fn all(tree: &SessionTree) -> Vec<Line> {
    let mut lines = Vec::new();
    of_session(tree, "", &mut lines);
    // What happened in one step stays in the order in which it was gathered.
    lines.sort_by_key(|line| line.at);
    lines
}

fn of_session(tree: &SessionTree, indent: &str, lines: &mut Vec<Line>) {
    let session = &tree.detail.view.session;
    let id = session.session_id.as_str();
    let say = |lines: &mut Vec<Line>, at: Timestamp, key: String, text: String| {
        lines.push(Line { at, key: format!("{id} {key}"), text: format!("{indent}{}", clean(&text)) });
    };
    for phase in &tree.detail.phases {
        let Some(row) = &phase.row else { continue };
        let name = &phase.name;
        if row.status != PhaseStatus::Skipped && phase.kind != "set" {
            say(lines, row.started_at, format!("{name} begins"), format!("phase {name} begins"));
        }
        let whole = phase.tasks.len() as i64 + phase.tasks_left_out > TASKS_TOLD;
        for view in &phase.tasks {
            if !whole {
                for (at, key, text) in retries(phase, view) {
                    say(lines, at, key, text);
                }
            }
            if phase.kind == "tasks"
                && let Some((at, key, text)) = end_of_task(phase, view, whole)
            {
                say(lines, at, key, text);
            }
        }
        for wait in tree.detail.waits.iter().filter(|wait| wait.phase == *name) {
            for (at, key, text) in of_wait(wait) {
                say(lines, at, key, text);
            }
        }
        let child = row.child_session_id.as_ref();
        let child =
            child.and_then(|id| tree.below.iter().find(|one| one.detail.view.session.session_id == *id));
        if let Some(child) = child {
            of_session(child, &format!("{indent}  "), lines);
        }
        if row.status.is_over() {
            let at = row.completed_at.unwrap_or(row.started_at);
            let why = row.error.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            let time = match row.status {
                PhaseStatus::Skipped => String::new(),
                _ => format!(" after {}", span(row.started_at, at)),
            };
            say(
                lines,
                at,
                format!("{name} {}", row.status),
                format!("phase {name} {}{time}{why}", row.status),
            );
        }
    }
    if session.status.is_over() || session.status == SessionStatus::Orphaned {
        let at = session.completed_at.unwrap_or(session.updated_at);
        say(lines, at, session.status.to_string(), format!("session {id} {}", session.status));
    }
}

type Said = (Timestamp, String, String);

/// Its failures that were not its last word. A check of a sensor that finds nothing is none.
fn retries(phase: &PhaseView, view: &TaskView) -> Vec<Said> {
    let task = &view.task;
    let goes_on = |attempt: i64| attempt < task.attempt || task.state == TaskStatus::Pending;
    let failed = view.attempts.iter().filter(|one| {
        one.status == AttemptStatus::Failed && one.failure_reason.is_some() && goes_on(one.attempt)
    });
    failed
        .map(|one| {
            let why = one.message.as_deref().map(|why| format!(": {}", shortened(why, SHOWN)));
            let text = format!(
                "{}: attempt {} failed{}; it is tried again",
                called(phase, view),
                one.attempt,
                why.unwrap_or_default()
            );
            (one.ended_at.unwrap_or(one.started_at), format!("{} {} again", task.id, one.attempt), text)
        })
        .collect()
}

fn called(phase: &PhaseView, view: &TaskView) -> String {
    match phase.kind.as_str() {
        "tasks" => format!("task {}/{}", phase.name, view.task.key),
        _ => format!("phase {}", phase.name),
    }
}

fn end_of_task(phase: &PhaseView, view: &TaskView, whole: bool) -> Option<Said> {
    let task = &view.task;
    let text = match task.state {
        TaskStatus::Failed => {
            let why = task.error.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            format!("{} failed{why}", called(phase, view))
        }
        TaskStatus::Completed if !whole => format!("{} completed", called(phase, view)),
        _ => return None,
    };
    let row = phase.row.as_ref()?;
    Some((task.completed_at.unwrap_or(row.started_at), format!("{} {}", task.id, task.state), text))
}

/// That it waits, and what came of it.
fn of_wait(wait: &WaitRow) -> Vec<Said> {
    let phase = &wait.phase;
    let what = explain::awaited(wait);
    let about = explain::said(wait).map(|text| format!(": {text}")).unwrap_or_default();
    let how = explain::command(wait).filter(|_| wait.status == WaitStatus::Open);
    let how = how.map(|how| format!("; {how}")).unwrap_or_default();
    let mut said =
        vec![(wait.since, wait.id.to_string(), format!("phase {phase}: waits for {what}{about}{how}"))];
    let key = format!("{} {}", wait.id, wait.status);
    match wait.status {
        WaitStatus::TimedOut => {
            let then = match wait.on_timeout.as_str() {
                "continue" | "default" => format!("; it {}", explain::on_timeout(wait)),
                _ => String::new(),
            };
            let who = match wait.wait_type {
                BlockedType::Signal | BlockedType::Sensor => format!("{what} did not come in time"),
                _ => "nobody answered in time".to_owned(),
            };
            said.push((wait.deadline.unwrap_or(wait.since), key, format!("phase {phase}: {who}{then}")));
        }
        WaitStatus::Answered => {
            let verdict = match (wait.wait_type, wait.answer.as_ref().and_then(|answer| answer.as_bool())) {
                (BlockedType::Signal | BlockedType::Sensor, _) => format!("{what} came"),
                (BlockedType::Approval | BlockedType::Checkpoint, Some(false)) => "denied".to_owned(),
                (BlockedType::Approval | BlockedType::Checkpoint, _) => "approved".to_owned(),
                _ => "answered".to_owned(),
            };
            let by = wait.answered_by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
            let why = wait.answer_reason.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
            said.push((
                wait.answered_at.unwrap_or(wait.since),
                key,
                format!("phase {phase}: {verdict}{by}{why}"),
            ));
        }
        WaitStatus::Open | WaitStatus::Withdrawn => {}
    }
    said
}
