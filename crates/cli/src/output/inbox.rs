//! The screen of `parhelia inbox`: each thing that waits, what it asks, and the command that answers it.

use std::fmt::Write;

use jiff::Timestamp;
use parhelia_core::session::WaitRow;
use parhelia_core::session::api::{Inbox, InboxItem, Verdict, WaitingJob};
use parhelia_core::time::{human_age, seconds_between};

use super::text::{BOLD, DIM, YELLOW_BOLD, clean, counted, painted, shortened};

pub(crate) fn screen(inbox: &Inbox, now: Timestamp) -> String {
    let mut out = String::new();
    for item in &inbox.items {
        item_block(&mut out, item, now);
    }
    for job in &inbox.jobs {
        job_block(&mut out, job);
    }
    let waiting = (inbox.items.len() + inbox.jobs.len()) as i64;
    if waiting > 0 {
        let more = if inbox.more { " and more" } else { "" };
        let verb = if waiting == 1 && !inbox.more { "waits" } else { "wait" };
        let _ = write!(out, "{}{more} {verb} for a person", counted(waiting, "thing"));
        if inbox.blocked_elsewhere > 0 {
            let _ = write!(out, "; {} for signals or sensors", counted(inbox.blocked_elsewhere, "wait"));
        }
        out.push('\n');
    }
    out
}

fn who(item: &InboxItem) -> String {
    let session = item.session_name.clone().unwrap_or_else(|| item.session_id.to_string());
    let task = item
        .task
        .as_deref()
        .filter(|task| *task != item.phase)
        .map_or_else(String::new, |task| format!("/{task}"));
    format!("{} {session}: {}{task}", item.cascade_id, item.phase)
}

fn item_block(out: &mut String, item: &InboxItem, now: Timestamp) {
    let _ = writeln!(
        out,
        "{}  {}  {}  {}",
        painted(item.id.as_str(), BOLD),
        painted(item.kind.as_str(), YELLOW_BOLD),
        clean(&who(item)),
        painted(&format!("for {}", human_age(item.waiting as f64)), DIM)
    );
    let _ = writeln!(out, "    {}", clean(&shortened(&item.description, 300)));
    let mut wants = fits(item);
    if let Some(deadline) = item.deadline {
        let left = seconds_between(now, deadline);
        let when = if left > 0.0 { format!("in {}", human_age(left)) } else { "any moment".to_owned() };
        let then = match item.on_timeout.as_str() {
            "continue" => "it goes on without an answer",
            "default" => "it goes on with its default",
            _ => "its phase fails",
        };
        let _ = write!(wants, "; {when} {then}");
    }
    let _ = writeln!(out, "    {}", painted(&clean(&wants), DIM));
    let _ = writeln!(out, "    {}\n", clean(&item.command));
}

/// What an answer must be. Options that have a comma or a space in them are quoted, so that each is seen for itself.
fn fits(item: &InboxItem) -> String {
    match (item.fits.split_once(": "), super::sessions::options(&item.question)) {
        (Some((some, _)), Some(options)) => format!("{some}: {options}"),
        _ => item.fits.clone(),
    }
}

fn job_block(out: &mut String, job: &WaitingJob) {
    let name = job.name.as_deref().map_or_else(String::new, |name| format!(" {name}"));
    let _ = writeln!(
        out,
        "{}  {}  {}{}  {}",
        painted(&job.job_id.to_string(), BOLD),
        painted("job", YELLOW_BOLD),
        clean(&job.engine),
        clean(&name),
        painted(&format!("for {}", human_age(job.waiting as f64)), DIM)
    );
    let reason = job.reason.as_deref().unwrap_or("it needs a person");
    let _ = writeln!(out, "    {}", clean(&shortened(reason, 300)));
    let _ = writeln!(out, "    {}\n", clean(&job.command));
}

/// One in a stream.
pub(crate) fn line(item: &InboxItem) -> String {
    clean(&format!(
        "{} {} {}: {} ({})",
        item.id,
        item.kind,
        who(item),
        shortened(&item.description, 120),
        item.command
    ))
}

pub(crate) fn job_line(job: &WaitingJob) -> String {
    let reason = job.reason.as_deref().unwrap_or("it needs a person");
    clean(&format!("{} job {}: {} ({})", job.job_id, job.engine, shortened(reason, 120), job.command))
}

pub(crate) fn answered(wait: &WaitRow, verdict: Verdict) -> String {
    let answer = wait.answer.as_ref().map_or_else(String::new, |answer| shortened(&answer.to_string(), 120));
    let done = match verdict {
        Verdict::Answer => format!("answered: {answer}"),
        Verdict::Approve => "approved".to_owned(),
        Verdict::Deny => "denied".to_owned(),
    };
    clean(&format!("{} {done} ({}, session {})", wait.id, wait.phase, wait.session_id)) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures::{at, plain};
    use parhelia_core::ids::{SessionId, WaitId};
    use parhelia_core::session::BlockedType;

    #[test]
    fn each_shows_what_it_asks_what_fits_and_how_to_answer() {
        let item = InboxItem {
            id: WaitId::parse("wait-01k9z3q8").unwrap(),
            kind: BlockedType::Hitl,
            session_id: SessionId::parse("sess-01k9z3q8").unwrap(),
            cascade_id: "release".into(),
            phase: "ask".into(),
            task: None,
            description: "Which \u{1b}[31mcolour?".into(),
            session_name: Some("nightly".into()),
            question: serde_json::json!({"kind": "choice", "options": ["blue", "light, green", "red"]}),
            fits: "one of: blue, light, green, red".into(),
            command: "parhelia inbox answer wait-01k9z3q8 blue".into(),
            since: at("2026-01-21T14:30:00Z"),
            deadline: Some(at("2026-01-21T15:30:00Z")),
            on_timeout: "fail".into(),
            waiting: 120,
        };
        let inbox = Inbox { items: vec![item.clone()], jobs: Vec::new(), more: false, blocked_elsewhere: 2 };
        assert_eq!(
            plain(&screen(&inbox, at("2026-01-21T14:32:00Z"))),
            "\
wait-01k9z3q8  hitl  release nightly: ask  for 2m
    Which \\u{1b}[31mcolour?
    one of: blue, \"light, green\", red; in 58m its phase fails
    parhelia inbox answer wait-01k9z3q8 blue

1 thing waits for a person; 2 waits for signals or sensors
"
        );
        assert!(!line(&item).contains('\u{1b}'));
    }
}
