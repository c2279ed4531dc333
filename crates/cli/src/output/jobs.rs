//! The screens of `parhelia jobs`.

use std::fmt::Write;

use anstyle::Style;
use jiff::Timestamp;
use parhelia_core::job::admin::JobHealth;
use parhelia_core::job::api::{CancelReceipts, JobTotals, JobView};
use parhelia_core::job::{Job, JobActivity, JobStatus};
use parhelia_core::time::{human_age, seconds_between};

use super::table::{Cell, Table, cell, styled};
use super::text::{
    DIM, GREEN, PLAIN, RED_BOLD, YELLOW_BOLD, clean, command_line, counted, or_dash, painted, shortened,
    time_utc,
};

pub(crate) const WAITING_HINT: &str = "Some wait for a person: 'parhelia jobs attach ID' answers, 'parhelia jobs resume ID -- …' goes on with one that has ended.";

/// Enough of an id to name it, as it stands in the list.
pub(crate) fn short(job: &Job) -> String {
    job.id.to_string().chars().take(8).collect()
}

fn status_style(status: JobStatus) -> Style {
    match status {
        JobStatus::Fresh | JobStatus::Reattached => GREEN,
        JobStatus::Stale => YELLOW_BOLD,
        JobStatus::Dead | JobStatus::Failed => RED_BOLD,
        JobStatus::Pending | JobStatus::Finished => PLAIN,
    }
}

fn is_waiting(job: &Job) -> bool {
    job.activity == JobActivity::Waiting
}

/// What it does, or what it waits for.
fn activity(job: &Job) -> Cell {
    if is_waiting(job) {
        let reason = job.waiting_reason.as_deref().unwrap_or("needs a person");
        return styled(format!("waiting: {}", shortened(reason, 48)), YELLOW_BOLD);
    }
    cell(if job.status.is_over() { "-" } else { job.activity.as_str() })
}

fn heartbeat(job: &Job, now: Timestamp) -> String {
    match job.heartbeat_at {
        Some(at) if !job.status.is_over() => format!("{} ago", human_age(seconds_between(at, now).max(0.0))),
        _ => "-".to_owned(),
    }
}

fn exit(job: &Job) -> String {
    job.exit_code.map_or_else(|| "-".to_owned(), |code| code.to_string())
}

pub(crate) fn table(views: &[JobView], now: Timestamp, wide: bool) -> String {
    let mut columns = vec![
        ("JOB", 11),
        ("NAME", 0),
        ("ENGINE", 0),
        ("STATUS", 13),
        ("ACTIVITY", 0),
        ("AGE", 9),
        ("HEARTBEAT", 0),
        ("EXIT", 0),
    ];
    if wide {
        columns.extend([("CONTAINER", 0), ("PROVIDER", 0), ("REASON", 0), ("COMMAND", 0)]);
    }
    let mut table = Table::new(&columns);
    for view in views {
        let job = &view.job;
        let mut row = vec![
            cell(short(job)),
            cell(or_dash(job.name.as_deref())),
            cell(&job.engine),
            styled(job.status.as_str(), status_style(job.status)),
            activity(job),
            cell(human_age(view.age as f64)),
            cell(heartbeat(job, now)),
            cell(exit(job)),
        ];
        if wide {
            row.extend([
                cell(job.container_id.as_str()),
                cell(&view.provider),
                cell(shortened(or_dash(job.status_reason.as_deref()), 60)),
                cell(shortened(&command_line(&view.command), 60)),
            ]);
        }
        table.row(row);
    }
    table.render()
}

fn totals(totals: &JobTotals) -> String {
    let mut line = format!("Total: {} | Open: {}", counted(totals.total, "job"), totals.open);
    for (word, status) in
        [("Stale", JobStatus::Stale), ("Failed", JobStatus::Failed), ("Dead", JobStatus::Dead)]
    {
        let count = totals.by_status.get(status.as_str()).copied().unwrap_or(0);
        if count > 0 {
            let _ = write!(line, " | {word}: {count}");
        }
    }
    if totals.waiting > 0 {
        let waiting = format!("Waiting for a person: {}", totals.waiting);
        let _ = write!(line, " | {}", painted(&waiting, YELLOW_BOLD));
    }
    line
}

pub(crate) fn list(views: &[JobView], sums: &JobTotals, now: Timestamp, wide: bool) -> String {
    format!("{}\n{}\n", table(views, now, wide), totals(sums))
}

/// `376c1a4f tests fresh running 2m`: one job in a stream.
pub(crate) fn line(view: &JobView, now: Timestamp) -> String {
    let job = &view.job;
    let doing = match &job.waiting_reason {
        Some(reason) if is_waiting(job) => format!("waiting: {}", clean(reason)),
        _ => job.activity.as_str().to_owned(),
    };
    let name = clean(or_dash(job.name.as_deref()));
    format!(
        "[{}] {} {name} {} {doing} {}",
        super::text::clock(now),
        short(job),
        job.status,
        human_age(view.age as f64)
    )
}

pub(crate) fn resumed(view: &JobView) -> String {
    let origin = view.job.origin_id.map_or_else(String::new, |origin| format!(", continues {origin}"));
    format!("{} asked for ({}{origin})\n", view.job.id, clean(&command_line(&view.command)))
}

/// How it ended, in a few words.
pub(crate) fn ended(view: &JobView) -> String {
    let reason = view.termination_reason.map_or_else(|| view.state.to_string(), |reason| reason.to_string());
    match view.job.exit_code {
        Some(code) => format!("{reason}, exit code {code}"),
        None => reason,
    }
}

/// Whose directories could go.
pub(crate) fn candidates(views: &[JobView], now: Timestamp) -> String {
    let mut table =
        Table::new(&[("JOB", 11), ("NAME", 0), ("ENGINE", 0), ("STATUS", 13), ("OVER FOR", 0), ("EXIT", 0)]);
    for view in views {
        let job = &view.job;
        let over = seconds_between(job.ended_at.unwrap_or(job.status_at), now).max(0.0);
        table.row(vec![
            cell(short(job)),
            cell(or_dash(job.name.as_deref())),
            cell(&job.engine),
            styled(job.status.as_str(), status_style(job.status)),
            cell(human_age(over)),
            cell(exit(job)),
        ]);
    }
    format!("{}\n{}\n", table.render(), counted(views.len() as i64, "job"))
}

struct Block(String);

impl Block {
    fn field(&mut self, label: &str, value: impl AsRef<str>) {
        let _ = writeln!(self.0, "  {:<13} {}", format!("{label}:"), value.as_ref());
    }

    fn maybe(&mut self, label: &str, value: Option<impl AsRef<str>>) {
        if let Some(value) = value {
            self.field(label, clean(value.as_ref()));
        }
    }

    fn detail(&mut self, label: &str, value: impl AsRef<str>) {
        let _ = writeln!(self.0, "    {:<11} {}", format!("{label}:"), value.as_ref());
    }
}

/// The block of `jobs show`.
pub(crate) fn show(view: &JobView, now: Timestamp) -> String {
    let job = &view.job;
    let mut block = Block(format!("Job: {}\n", job.id));
    block.maybe("Name", job.name.as_ref());
    let mut status = painted(job.status.as_str(), status_style(job.status));
    if let Some(reason) = &job.status_reason {
        let _ = write!(status, " ({})", clean(reason));
    }
    block.field("Status", status);
    if is_waiting(job) {
        let since = job
            .waiting_since
            .map_or_else(String::new, |at| format!(", for {}", human_age(seconds_between(at, now).max(0.0))));
        let reason = clean(job.waiting_reason.as_deref().unwrap_or("needs a person"));
        block.field("Activity", painted(&format!("waiting: {reason}{since}"), YELLOW_BOLD));
    } else if !job.status.is_over() {
        block.field("Activity", job.activity.as_str());
    }
    block.field("Engine", clean(&job.engine));
    block.maybe("Session", job.agent_session.as_ref());
    block.field("Container", format!("{} ({}, {})", job.container_id, view.state, clean(&view.provider)));
    block.field("Command", clean(&command_line(&view.command)));
    block.maybe("Continues", job.origin_id.map(|id| id.to_string()));
    block.maybe("Directory", view.directory.as_ref());
    block.maybe("Timeout", job.timeout_seconds.map(|s| human_age(s as f64)));
    block.maybe("Reason", view.termination_reason.map(|reason| reason.to_string()));
    block.maybe("Exit code", job.exit_code.map(|code| code.to_string()));
    let _ = writeln!(block.0, "\n  Life:");
    let beat = job
        .heartbeat_at
        .map(|at| format!("{} ({} ago)", time_utc(at), human_age(seconds_between(at, now).max(0.0))));
    let mut moment = |label: &str, at: Option<Timestamp>| {
        if let Some(at) = at {
            block.detail(label, time_utc(at));
        }
    };
    moment("Asked for", Some(job.created_at));
    moment("Reattached", job.reattached_at);
    moment("Ended", job.ended_at);
    moment("Cleanup at", job.cleanup_at.filter(|_| job.cleaned_at.is_none()));
    moment("Cleaned up", job.cleaned_at);
    block.detail("By", clean(&job.created_by));
    if let Some(beat) = beat {
        block.detail("Heartbeat", beat);
    }
    if let Some(receipts) = &view.receipts {
        cancelled(&mut block, receipts);
    }
    block.0
}

/// The block of `jobs health`.
pub(crate) fn health(health: &JobHealth) -> String {
    let mut block = Block(format!("Job: {}\n", health.job_id));
    let status = health.heartbeat_status;
    block.field("Heartbeat", painted(status.as_str(), status_style(status)));
    let last = match (health.last_heartbeat, health.age_seconds) {
        (Some(at), Some(age)) => format!("{} ({} ago)", time_utc(at), human_age(age.max(0) as f64)),
        (Some(at), None) => time_utc(at),
        (None, _) => "-".to_owned(),
    };
    block.field("Last", last);
    let is_there = |is: bool| if is { "there" } else { "not there" };
    block.field("Sentinel", is_there(health.sentinel_file_exists));
    block.field("Directory", is_there(health.workspace_exists));
    block.field(
        "Session",
        if health.session_data_exists { "known: it can be resumed with its context" } else { "not known" },
    );
    block.0
}

/// Contract 12: each receipt, or that it is still missing.
fn cancelled(block: &mut Block, receipts: &CancelReceipts) {
    let _ = writeln!(block.0, "\n  Cancel:");
    let at = |at: Option<Timestamp>| at.map_or_else(|| painted("not yet", DIM), time_utc);
    let by = receipts.desired_by.as_deref().map_or_else(String::new, |by| format!(" by {}", clean(by)));
    let reason = receipts.reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    block.detail("Requested", format!("{}{by}{reason}", at(receipts.desired_at)));
    if let Some(grace) = receipts.grace_seconds {
        block.detail("Grace", format!("{grace}s"));
    }
    block.detail("Seen", at(receipts.stop_seen_at));
    block.detail("Sent", at(receipts.stopping_at));
    block.detail("Gone", at(receipts.stop_confirmed_at));
    if let Some(error) = &receipts.stop_error {
        block.detail("Error", painted(&clean(error), RED_BOLD));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures::plain;
    use parhelia_core::ids::ContainerId;
    use parhelia_core::state::{ContainerState, TerminationReason};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn job(n: u128, name: &str, status: JobStatus) -> JobView {
        let container_id = ContainerId::parse("c-01k9z3q8xw4f7m2a").unwrap();
        JobView {
            job: Job {
                id: uuid::Uuid::from_u128(n << 96),
                container_id,
                name: Some(name.to_owned()),
                engine: "claude-code".to_owned(),
                origin_id: None,
                timeout_seconds: None,
                interactive: false,
                created_at: at("2026-01-21T14:30:00Z"),
                created_by: "local".to_owned(),
                status,
                status_at: at("2026-01-21T14:30:01Z"),
                status_reason: None,
                activity: JobActivity::Running,
                waiting_reason: None,
                waiting_since: None,
                agent_session: Some("s-1".to_owned()),
                heartbeat_at: Some(at("2026-01-21T14:31:30Z")),
                reattached_at: None,
                reattached_count: 0,
                reattach_ms: None,
                ended_at: None,
                exit_code: None,
                cleanup_at: None,
                cleaned_at: None,
            },
            state: ContainerState::Running,
            command: vec!["claude".to_owned(), "-p".to_owned(), "fix it".to_owned()],
            provider: "process".to_owned(),
            directory: None,
            age: 120,
            termination_reason: None,
            receipts: None,
        }
    }

    #[test]
    fn those_that_wait_stand_out_and_ended_ones_say_how() {
        let mut waiting = job(0x376c_1a4f, "fix", JobStatus::Fresh);
        waiting.job.activity = JobActivity::Waiting;
        waiting.job.waiting_reason = Some("may I push?".to_owned());
        let mut failed = job(0x63e4_0f7a, "tests", JobStatus::Failed);
        failed.job.exit_code = Some(1);
        let by_status = [("fresh".to_owned(), 1), ("failed".to_owned(), 1)].into();
        let sums = JobTotals { total: 2, open: 1, waiting: 1, by_status };
        let screen = list(&[waiting, failed], &sums, at("2026-01-21T14:32:00Z"), false);
        assert_eq!(
            plain(&screen),
            "\
JOB        NAME    ENGINE        STATUS       ACTIVITY               AGE      HEARTBEAT   EXIT
376c1a4f   fix     claude-code   fresh        waiting: may I push?   2m       30s ago     -
63e40f7a   tests   claude-code   failed       -                      2m       -           1

Total: 2 jobs | Open: 1 | Failed: 1 | Waiting for a person: 1
"
        );
        assert_ne!(plain(&screen), screen, "in colour");
    }

    #[test]
    fn each_receipt_of_a_cancel_is_shown() {
        let mut view = job(0x376c_1a4f, "fix", JobStatus::Fresh);
        view.receipts = Some(CancelReceipts {
            desired_at: Some(at("2026-01-21T14:31:00Z")),
            desired_by: Some("ann".to_owned()),
            reason: Some(TerminationReason::Manual),
            grace_seconds: Some(10),
            stop_seen_at: Some(at("2026-01-21T14:31:01Z")),
            stopping_at: None,
            stop_confirmed_at: None,
            stop_error: None,
        });
        let screen = plain(&show(&view, at("2026-01-21T14:32:00Z")));
        for part in [
            "Requested:  2026-01-21 14:31:00 UTC by ann (manual)",
            "Grace:      10s",
            "Seen:       2026-01-21 14:31:01 UTC",
            "Sent:       not yet",
            "Gone:       not yet",
            "Session:      s-1",
            "Heartbeat:  2026-01-21 14:31:30 UTC (30s ago)",
        ] {
            assert!(screen.contains(part), "{part}\n{screen}");
        }
    }
}
