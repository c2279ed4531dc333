//! The screens of `parhelia recovery` and `parhelia startup-log`.

use std::fmt::Write;

use jiff::Timestamp;
use parhelia_core::job::JobStatus;
use parhelia_core::job::admin::{
    FailedJobs, Heartbeats, LockWord, RecoveryMetrics, RecoveryPhase, RecoveryStatus, SentinelState,
    Sentinels, StaleJobs, StartupLog,
};
use parhelia_core::time::{human_age, seconds_between};

use super::table::{Cell, Table, cell, styled};
use super::text::{GREEN, PLAIN, RED, YELLOW, clean, painted, time_utc};

fn status_cell(status: JobStatus) -> Cell {
    let style = match status {
        JobStatus::Fresh | JobStatus::Reattached | JobStatus::Finished => GREEN,
        JobStatus::Stale => YELLOW,
        JobStatus::Dead | JobStatus::Failed => RED,
        JobStatus::Pending => PLAIN,
    };
    styled(status.as_str(), style)
}

fn ago(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(|| "-".to_owned(), |at| format!("{} ago", human_age(seconds_between(at, now))))
}

fn age(seconds: Option<i64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| human_age(seconds as f64))
}

fn or_dash(text: Option<&str>) -> String {
    text.unwrap_or("-").to_owned()
}

pub(crate) fn status(found: &RecoveryStatus, now: Timestamp) -> String {
    let progress = &found.recovery;
    let phase = match progress.phase {
        RecoveryPhase::Finished => painted("finished", GREEN),
        phase => painted(phase.as_str(), YELLOW),
    };
    let mut out = format!("Recovery: {phase}\n");
    let _ = writeln!(out, "  Started:     {}", progress.started_at.map_or("-".to_owned(), time_utc));
    let _ = writeln!(
        out,
        "  Found:       {} jobs: {} reattached, {} ended meanwhile, {} gone, {} watched\n",
        progress.total, progress.reattached, progress.ended, progress.gone, progress.watched
    );
    let mut table = Table::new(&[
        ("JOB", 0),
        ("NAME", 0),
        ("ENGINE", 0),
        ("STATUS", 0),
        ("ACTIVITY", 0),
        ("FOUND", 0),
        ("HEARTBEAT", 0),
        ("WHY", 0),
    ]);
    for job in &found.jobs {
        let why = job.watched_because.as_deref().or(job.waiting_reason.as_deref());
        table.row(vec![
            cell(job.job_id.to_string()),
            cell(or_dash(job.name.as_deref())),
            cell(&job.agent_engine),
            status_cell(job.status),
            cell(job.activity.as_str()),
            cell(job.finding.map_or("-", |finding| finding.as_str())),
            cell(ago(job.last_heartbeat, now)),
            cell(why.or(job.status_reason.as_deref()).unwrap_or_default()),
        ]);
    }
    out + &table.render()
}

pub(crate) fn sentinels(found: &Sentinels) -> String {
    let mut table = Table::new(&[("JOB", 0), ("SENTINEL", 0), ("LOCK", 0), ("AGE", 0), ("PATH", 0)]);
    for one in &found.sentinels {
        let state = match one.state {
            SentinelState::Read => PLAIN,
            _ => YELLOW,
        };
        let lock = if one.lock == LockWord::Held { GREEN } else { YELLOW };
        table.row(vec![
            cell(one.job_id.to_string()),
            styled(one.state.as_str(), state),
            styled(one.lock.as_str(), lock),
            cell(age(one.age_seconds)),
            cell(&one.path),
        ]);
    }
    table.render()
}

pub(crate) fn heartbeats(found: &Heartbeats) -> String {
    let mut table = Table::new(&[("JOB", 0), ("STATUS", 0), ("AGE", 0), ("ENGINE", 0)]);
    for job in &found.jobs {
        table.row(vec![
            cell(job.job_id.to_string()),
            status_cell(job.status),
            cell(age(job.age_seconds)),
            cell(&job.agent_engine),
        ]);
    }
    let sum = &found.summary;
    let (fresh, stale, dead) = (sum.fresh, sum.stale, sum.dead);
    format!("{}\nTotal: {} jobs ({fresh} fresh, {stale} stale, {dead} dead)\n", table.render(), sum.total)
}

pub(crate) fn metrics(found: &RecoveryMetrics) -> String {
    let mut out = String::from("The last start\n");
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "  {name:<20} {value}");
    };
    line("Jobs found", found.total.to_string());
    line("Reattached", found.reattached.to_string());
    line("Ended meanwhile", found.ended.to_string());
    line("Failed", found.failed.to_string());
    line("Watched", found.watched.to_string());
    line("Mean reattach time", found.mean_reattach_ms.map_or("-".to_owned(), |ms| format!("{ms:.0} ms")));
    line("Success rate", found.success_rate.map_or("-".to_owned(), |rate| format!("{:.1}%", rate * 100.0)));
    out.push_str("All jobs\n");
    for (status, count) in &found.jobs_by_status {
        let _ = writeln!(out, "  {status:<20} {count}");
    }
    let _ = writeln!(out, "  {:<20} {}", "need a person", found.waiting);
    out
}

pub(crate) fn failed(found: &FailedJobs, now: Timestamp) -> String {
    let mut table = Table::new(&[
        ("JOB", 0),
        ("NAME", 0),
        ("ENGINE", 0),
        ("STATUS", 0),
        ("EXIT", 0),
        ("ENDED", 0),
        ("SESSION", 0),
        ("REASON", 0),
    ]);
    for job in &found.failed_jobs {
        table.row(vec![
            cell(job.job_id.to_string()),
            cell(or_dash(job.name.as_deref())),
            cell(&job.agent_engine),
            status_cell(job.status),
            cell(job.exit_code.map_or("-".to_owned(), |code| code.to_string())),
            cell(ago(job.failed_at, now)),
            cell(or_dash(job.resume.session_id.as_deref())),
            cell(job.reason.as_deref().unwrap_or_default()),
        ]);
    }
    table.render()
}

pub(crate) fn stale(found: &StaleJobs) -> String {
    let mut table = Table::new(&[("JOB", 0), ("SILENT", 0), ("DO", 0), ("WORKSPACE", 0)]);
    for job in &found.stale_jobs {
        table.row(vec![
            cell(job.job_id.to_string()),
            cell(job.age_minutes.map_or("-".to_owned(), |minutes| human_age(minutes * 60.0))),
            cell(&job.recommended_action),
            cell(or_dash(job.workspace_path.as_deref())),
        ]);
    }
    table.render()
}

pub(crate) fn startups(found: &StartupLog, now: Timestamp) -> String {
    let mut out = String::new();
    for (index, start) in found.startups.iter().enumerate() {
        let end = match start.finished_at {
            Some(at) => {
                painted(&format!("completed in {:.1} s", seconds_between(start.started_at, at)), GREEN)
            }
            // Only the newest can still be under way.
            None if index == 0 => painted("not completed yet", YELLOW),
            None => painted("cut off", RED),
        };
        let since = human_age(seconds_between(start.started_at, now));
        let (host, version) = (clean(&start.host), clean(&start.version));
        let _ = writeln!(out, "{} ({since} ago) on {host}, {version}: {end}", time_utc(start.started_at));
        for step in &start.steps {
            let mark = if step.ok { painted("ok", GREEN) } else { painted("failed", RED) };
            let (name, ms, message) = (step.step.as_str(), step.duration_ms, clean(&step.message));
            let _ = writeln!(out, "  {name:<11} {mark}  {ms:>6} ms  {message}");
        }
    }
    if out.is_empty() {
        out.push_str("No start is on record.\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use parhelia_core::job::{StartStep, Startup, StepReport};

    fn now() -> Timestamp {
        "2026-01-21T14:30:00Z".parse().unwrap()
    }

    #[test]
    fn a_start_that_was_cut_off_is_told_from_one_that_is_under_way() {
        let start = |at: &str, finished: Option<&str>| Startup {
            owner_id: "o".into(),
            host: "h".into(),
            version: "1".into(),
            started_at: at.parse().unwrap(),
            finished_at: finished.map(|at| at.parse().unwrap()),
            steps: vec![StepReport {
                step: StartStep::Store,
                at: at.parse().unwrap(),
                duration_ms: 12,
                ok: true,
                message: "opened".into(),
                details: serde_json::Value::Null,
            }],
        };
        let log = StartupLog {
            startups: vec![
                start("2026-01-21T14:29:58Z", None),
                start("2026-01-21T14:20:00Z", None),
                start("2026-01-21T14:10:00Z", Some("2026-01-21T14:10:01.500Z")),
            ],
        };
        let screen = anstream::adapter::strip_str(&startups(&log, now())).to_string();
        let words: Vec<&str> = screen.lines().filter(|line| !line.starts_with(' ')).collect();
        assert!(words[0].ends_with("not completed yet"), "{screen}");
        assert!(words[1].ends_with("cut off") && words[2].ends_with("completed in 1.5 s"), "{screen}");
        assert!(screen.contains("  store       ok      12 ms  opened"), "{screen}");
    }

    #[test]
    fn heartbeats_end_with_their_sum() {
        let found = Heartbeats { jobs: vec![], summary: Default::default() };
        assert!(heartbeats(&found).ends_with("Total: 0 jobs (0 fresh, 0 stale, 0 dead)\n"));
    }
}
