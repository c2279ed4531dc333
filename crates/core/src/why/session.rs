//! Why a session, one of its waits or one of its tasks is as it is.

use jiff::Timestamp;

use super::{NOBODY, OPERATOR, Page, Why, ago};
use crate::event::Event;
use crate::session::api::{SessionDetail, SessionView, TaskView};
use crate::session::{AttemptRow, BlockedType, SessionStatus, TaskStatus, WaitRow, WaitStatus, explain};
use crate::time::{human_age, seconds_between};

/// How many open waits get their command.
const ANSWERS: usize = 5;

fn span(from: Timestamp, to: Timestamp) -> String {
    human_age(seconds_between(from, to).max(0.0))
}

pub fn session(detail: &SessionDetail, events: &[Event], now: Timestamp) -> Why {
    let view = &detail.view;
    let session = &view.session;
    let id = &session.session_id;
    let mut page = Page::new(id.as_str(), "session", now, state(detail, now));
    let name = session.name.as_deref().map(|name| format!(", named {name}")).unwrap_or_default();
    page.evidence(
        "cascade",
        format!(
            "{}{name}; started {} by {}",
            session.cascade_id,
            ago(session.started_at, now),
            session.created_by
        ),
    );
    let progress = &view.progress;
    page.evidence(
        "progress",
        format!(
            "{} of {} phases, {} of {} tasks; {} running, {} failed",
            progress.phases_done,
            progress.phases,
            progress.tasks_done,
            progress.tasks,
            progress.tasks_running,
            progress.tasks_failed
        ),
    );
    for phase in
        detail.phases.iter().filter(|phase| phase.row.as_ref().is_some_and(|row| !row.status.is_over()))
    {
        let began = phase.row.as_ref().map_or(now, |row| row.started_at);
        page.evidence(format!("phase {}", phase.name), format!("{} for {}", phase.kind, span(began, now)));
    }
    if session.status == SessionStatus::Orphaned {
        page.evidence("advanced by", "nobody");
    } else if !session.status.is_over() {
        owner(&mut page, view, now);
    }
    if session.cancel_requested {
        page.evidence("cancel requested", cancel_receipt(detail, now));
        let seen = session.cancel_seen_at.map_or_else(|| "not yet".to_owned(), |at| ago(at, now));
        page.evidence("cancel seen", seen);
        let gone = session.cancelled_at.map_or_else(|| "not yet".to_owned(), |at| ago(at, now));
        page.evidence("everything gone", gone);
    }
    if let Some(error) = &session.error_message {
        let phase = session.error_phase.as_deref().unwrap_or("the session");
        page.evidence(format!("error of {phase}"), error);
    }
    for view in detail.phases.iter().flat_map(|phase| &phase.tasks) {
        if let Some(error) = view.task.error.as_ref().filter(|_| view.task.state != TaskStatus::Completed) {
            page.evidence(
                format!("task {}", view.task.key),
                format!("attempt {}: {error}", view.task.attempt),
            );
        }
    }
    if let Some(checkpoint) = &detail.last_checkpoint {
        page.evidence(
            "last checkpoint",
            format!("{} ({}), {}", checkpoint.id, checkpoint.phase, ago(checkpoint.at, now)),
        );
    }
    if let Some(parent) = &session.parent_session_id {
        page.evidence("part of", parent.as_str());
    }
    if let Some(origin) = &session.origin_id {
        page.evidence("continues", origin.as_str());
    }
    for reason in &detail.waiting {
        let what = reason.split_once("; parhelia ").map_or(reason.as_str(), |(what, _)| what);
        page.wait(what, None);
    }
    remedies(&mut page, detail);
    page.events(events)
}

fn state(detail: &SessionDetail, now: Timestamp) -> String {
    let session = &detail.view.session;
    let ended = session.completed_at.or(session.cancelled_at).unwrap_or(session.updated_at);
    match session.status {
        SessionStatus::Completed => format!("It is done: it completed {}.", ago(ended, now)),
        SessionStatus::Error => {
            let why = session.error_message.as_deref().unwrap_or("for no known reason");
            format!("It failed {}: {why}.", ago(ended, now))
        }
        SessionStatus::Cancelled => {
            let by = session.cancel_requested_by.as_deref().unwrap_or("somebody");
            format!("It was cancelled by {by}; everything of it was confirmed gone {}.", ago(ended, now))
        }
        SessionStatus::Orphaned => {
            "Its server died, and nobody may go on with it before somebody says so.".to_owned()
        }
        _ if session.cancel_requested => {
            "It is being cancelled, and something of it may still be alive.".to_owned()
        }
        SessionStatus::Blocked => {
            let since =
                session.blocked_since.map_or_else(String::new, |at| format!(" for {}", span(at, now)));
            let named = |wait: &&WaitRow| {
                Some(wait.wait_type) == session.blocked_type
                    && Some(&wait.wait_on) == session.blocked_on.as_ref()
            };
            let open = || detail.waits.iter().filter(|wait| wait.status == WaitStatus::Open);
            let on = open().find(named).or_else(|| open().next_back());
            let what = on.map_or_else(|| "something outside".to_owned(), explain::awaited);
            format!("It is blocked{since}: nothing of it runs, and it waits for {what}.")
        }
        SessionStatus::Starting => "It is about to begin.".to_owned(),
        SessionStatus::Running => {
            let phase =
                session.current_phase.as_deref().map(|phase| format!(" (in {phase})")).unwrap_or_default();
            format!("It is running{phase}, for {}.", span(session.started_at, now))
        }
    }
}

fn cancel_receipt(detail: &SessionDetail, now: Timestamp) -> String {
    let session = &detail.view.session;
    let by = session.cancel_requested_by.as_deref().unwrap_or("somebody");
    let when = session.cancel_requested_at.map_or_else(String::new, |at| format!(" {}", ago(at, now)));
    let why = session.cancel_reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    let grace = match (session.cancel_force, session.cancel_grace_seconds) {
        (true, _) => ", by force".to_owned(),
        (false, Some(seconds)) => format!(", with a grace of {seconds}s"),
        (false, None) => String::new(),
    };
    format!("by {by}{when}{grace}{why}")
}

fn owner(page: &mut Page, view: &SessionView, now: Timestamp) {
    let session = &view.session;
    let says = match &session.owner_id {
        Some(owner) => {
            let alive = if view.owner_alive { "alive" } else { "not known to be alive" };
            format!(
                "{owner}, {alive}, last heard {}, epoch {}",
                ago(session.heartbeat_at, now),
                session.owner_epoch
            )
        }
        None => "nobody".to_owned(),
    };
    page.evidence("advanced by", says);
}

fn remedies(page: &mut Page, detail: &SessionDetail) {
    let session = &detail.view.session;
    let id = &session.session_id;
    let open: Vec<&WaitRow> = detail
        .waits
        .iter()
        .filter(|wait| wait.status == WaitStatus::Open && explain::command(wait).is_some())
        .collect();
    for wait in open.iter().take(ANSWERS) {
        answers(page, wait);
    }
    if let Some(more) = open.len().checked_sub(ANSWERS).filter(|more| *more > 0) {
        page.remedy(
            OPERATOR,
            format!("sees the {more} more that wait"),
            format!("parhelia sessions show {id}"),
        );
    }
    match session.status {
        SessionStatus::Orphaned => {
            page.remedy(OPERATOR, "goes on with it", format!("parhelia sessions resume {id}"));
        }
        SessionStatus::Error | SessionStatus::Cancelled => {
            page.remedy(
                OPERATOR,
                "goes on with it in a new session, which keeps what was done",
                format!("parhelia sessions resume {id}"),
            );
        }
        SessionStatus::Completed => {}
        _ if !detail.view.owner_alive => {
            page.remedy(NOBODY, "has to: another server takes it over by itself", String::new());
        }
        _ => {}
    }
    let failed = detail
        .phases
        .iter()
        .flat_map(|phase| &phase.tasks)
        .find(|view| view.task.state == TaskStatus::Failed);
    if let Some(view) = failed {
        let task = format!("{}/{}", view.task.phase, view.task.key);
        page.remedy(OPERATOR, "reads what it said", format!("parhelia sessions logs {id} --task {task}"));
    }
    if !session.status.is_over() {
        if session.cancel_requested && !session.cancel_force {
            page.remedy(
                OPERATOR,
                "ends it without a grace",
                format!("parhelia sessions cancel --force {id}"),
            );
        } else if !session.cancel_requested {
            page.remedy(
                OPERATOR,
                "ends it and everything below it",
                format!("parhelia sessions cancel {id}"),
            );
        }
    }
}

fn answers(page: &mut Page, wait: &WaitRow) {
    let Some(command) = explain::command(wait) else { return };
    page.remedy(OPERATOR, format!("ends the wait of {}", wait.phase), command);
    if matches!(wait.wait_type, BlockedType::Approval | BlockedType::Checkpoint) {
        page.remedy(OPERATOR, "denies it, and its phase fails", format!("parhelia inbox deny {}", wait.id));
    }
}

pub fn wait(wait: &WaitRow, view: &SessionView, events: &[Event], now: Timestamp) -> Why {
    let what = explain::awaited(wait);
    let state = match wait.status {
        WaitStatus::Open => {
            format!("It is open: {} waits for {what}, for {}.", wait.phase, span(wait.since, now))
        }
        WaitStatus::Answered => {
            let by = match (&wait.answered_by, &wait.signal_id) {
                (Some(by), _) => by.clone(),
                (None, Some(signal)) => format!("the signal {signal}"),
                (None, None) => "somebody".to_owned(),
            };
            let when = wait.answered_at.map_or_else(String::new, |at| format!(" {}", ago(at, now)));
            format!("It is over: {by} ended it{when}.")
        }
        WaitStatus::TimedOut => {
            format!(
                "It is over: nobody answered in time (which is not a denial), and its phase {}.",
                explain::on_timeout(wait)
            )
        }
        WaitStatus::Withdrawn => "It is over: its session needs no answer any more.".to_owned(),
    };
    let mut page = Page::new(wait.id.as_str(), "wait", now, state);
    if !wait.description.is_empty() {
        page.evidence("asks", &wait.description);
    }
    page.evidence("wants", crate::session::answer::Asked::of(wait).fits());
    let session = &view.session;
    page.evidence("session", format!("{} ({}), {}", session.session_id, session.cascade_id, session.status));
    if let Some(reason) = &wait.answer_reason {
        page.evidence("because", reason);
    }
    if wait.status == WaitStatus::Open {
        if let Some(deadline) = wait.deadline {
            page.wait(format!("{what}; then it {}", explain::on_timeout(wait)), Some(deadline));
        } else {
            page.wait(format!("{what}, for as long as it takes"), None);
        }
        owner(&mut page, view, now);
        answers(&mut page, wait);
    }
    page.remedy(OPERATOR, "sees the whole session", format!("parhelia why {}", session.session_id));
    page.events(events)
}

pub fn session_task(task: &TaskView, view: &SessionView, events: &[Event], now: Timestamp) -> Why {
    let TaskView { task, attempts } = task;
    let state = match task.state {
        TaskStatus::Completed => "It is done.".to_owned(),
        TaskStatus::Failed => {
            let why = task.error.as_deref().unwrap_or("for no known reason");
            format!("It failed: {why}.")
        }
        TaskStatus::Cancelled => "It was cancelled.".to_owned(),
        TaskStatus::Pending => match task.retry_at.filter(|at| *at > now) {
            Some(at) => format!("Its next attempt begins in {}.", span(now, at)),
            None if task.attempt == 0 => "It waits for its turn.".to_owned(),
            None => "It waits for its next attempt.".to_owned(),
        },
        TaskStatus::Claimed => "A worker has it and has not begun.".to_owned(),
        TaskStatus::Running => format!("Attempt {} is running.", task.attempt),
        TaskStatus::Verifying => format!("Attempt {} has ended, and is being verified.", task.attempt),
    };
    let session = &view.session;
    let mut page = Page::new(task.id.as_str(), "task", now, state);
    page.evidence("session", format!("{} ({}), {}", session.session_id, session.cascade_id, session.status));
    page.evidence("task", format!("{} of phase {}", task.key, task.phase));
    if !task.title.is_empty() && task.title != task.key {
        page.evidence("title", &task.title);
    }
    for attempt in attempts.iter().rev().take(5).rev() {
        page.evidence(format!("attempt {}", attempt.attempt), attempt_line(attempt, now));
    }
    if let (TaskStatus::Pending, Some(at)) = (task.state, task.retry_at) {
        page.wait(format!("its next attempt, after {}", super::times(task.retry_count)), Some(at));
    }
    if let Some(container) = attempts.last().and_then(|attempt| attempt.container_id.as_ref()) {
        let running = !task.state.is_over();
        page.remedy(
            OPERATOR,
            if running { "sees what it does" } else { "reads what it said" },
            format!("parhelia sessions logs {} --task {}/{}", session.session_id, task.phase, task.key),
        );
        page.remedy(OPERATOR, "sees how its container is", format!("parhelia why {container}"));
    }
    page.remedy(OPERATOR, "sees the whole session", format!("parhelia why {}", session.session_id));
    page.events(events)
}

fn attempt_line(attempt: &AttemptRow, now: Timestamp) -> String {
    let mut text = match attempt.ended_at {
        Some(end) => format!("{}, after {}", attempt.status, span(attempt.started_at, end)),
        None => format!("{}, for {}", attempt.status, span(attempt.started_at, now)),
    };
    if let Some(code) = attempt.exit_code {
        text.push_str(&format!(", exit code {code}"));
    }
    if let Some(message) = &attempt.message {
        text.push_str(&format!(": {message}"));
    }
    if let Some(container) = &attempt.container_id {
        text.push_str(&format!(" ({container})"));
    }
    text
}
