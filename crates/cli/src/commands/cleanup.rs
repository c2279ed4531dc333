//! `parhelia cleanup`: show what qualifies, ask, end exactly that, and wait until each is confirmed gone.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parhelia_core::api::{CleanupKind, CleanupReport, CleanupRequest, CleanupVerdict, ContainerView};
use parhelia_core::ids::ContainerId;
use parhelia_core::state::ContainerState;
use parhelia_core::time::{Clock, human_age};
use serde::Serialize;

use super::containers::id_of;
use super::wait::{self, Waited};
use crate::args::CleanupArgs;
use crate::client::Client;
use crate::context::Context;
use crate::error::{CliError, Result};
use crate::output::table::{Table, cell};
use crate::output::text::{counted, money, or_dash};
use crate::output::{confirm, text};

/// What became of one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Outcome {
    id: String,
    /// `terminated`, `already_gone`, `skipped`, `unverified` or `failed`.
    outcome: &'static str,
    message: String,
}

impl Outcome {
    fn is_failure(&self) -> bool {
        matches!(self.outcome, "unverified" | "failed")
    }
}

/// Ids in one request.
const PORTION: usize = 16;

pub(super) async fn run(ctx: &Context, args: CleanupArgs) -> Result<()> {
    let kind = if args.orphans { CleanupKind::Orphans } else { CleanupKind::Dead };
    let noun = if args.orphans { "orphan" } else { "dead container" };
    let older_than_seconds = args.older_than.map(|age| i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
    let client = ctx.client()?;
    let look = CleanupRequest { kind, older_than_seconds, ids: None };
    let found: CleanupReport = client.post_again("/cleanup", &look).await?;
    let candidates = found.candidates;
    if candidates.is_empty() {
        ctx.out.hint(&format!("No {noun}s: nothing to clean up."));
        return ctx.out.list(&candidates, id_of, String::new);
    }
    if args.dry_run {
        ctx.out.list(&candidates, id_of, || screen(&candidates, noun))?;
        ctx.out.hint("Dry run: nothing was ended.");
        return Ok(());
    }
    if ctx.out.is_human() {
        ctx.out.text(&screen(&candidates, noun))?;
    }
    if !args.yes {
        let command = format!("parhelia cleanup --{kind}");
        let question = format!("Terminate {}?", these(candidates.len(), noun));
        if !confirm(&question, &command).await? {
            ctx.out.note("Nothing was terminated.");
            return Ok(());
        }
    }
    let ids: Vec<ContainerId> = candidates.iter().map(|view| view.record.id.clone()).collect();
    ctx.if_interrupted("no longer waiting; the server goes on with what was requested");
    // In portions that the server asks its providers about at once, so that no answer takes for ever.
    let mut report = CleanupReport { candidates: Vec::new(), outcomes: Vec::new() };
    for portion in ids.chunks(PORTION) {
        let act = CleanupRequest { kind, older_than_seconds, ids: Some(portion.to_vec()) };
        let part: CleanupReport = client.post_again("/cleanup", &act).await?;
        report.outcomes.extend(part.outcomes);
    }
    let outcomes = settle(ctx, &client, report, args.timeout).await?;
    tell(ctx, &outcomes)
}

fn these(count: usize, noun: &str) -> String {
    if count == 1 { format!("this {noun}") } else { format!("these {count} {noun}s") }
}

fn screen(candidates: &[ContainerView], noun: &str) -> String {
    let mut table = Table::new(&[
        ("ID", 12),
        ("SANDBOX", 13),
        ("STATE", 11),
        ("HEALTH", 11),
        ("AGE", 9),
        ("COST", 9),
        ("TASK", 0),
    ]);
    for view in candidates {
        table.row(vec![
            cell(view.record.id.as_str()),
            cell(or_dash(view.sandbox.as_deref())),
            cell(view.record.state.as_str()),
            cell(view.health.as_str()),
            cell(human_age(view.age as f64)),
            cell(money(view.cost)),
            cell(or_dash(view.task.as_deref())),
        ]);
    }
    let cost: f64 = candidates.iter().map(|view| view.cost).sum();
    let rate: f64 = candidates.iter().filter_map(|view| view.record.cost_rate_per_hour).sum();
    let count = counted(candidates.len() as i64, noun);
    format!("{}\n{count} | Cost: {} accrued, {}\n", table.render(), money(cost), text::rate(rate))
}

/// Waits for each that is to be ended; a request is not an end.
async fn settle(
    ctx: &Context,
    client: &Client,
    report: CleanupReport,
    patience: Duration,
) -> Result<Vec<Outcome>> {
    let bar = progress(ctx, report.outcomes.len() as u64);
    let deadline = ctx.clock.monotonic() + patience;
    let mut outcomes = Vec::new();
    for one in report.outcomes {
        let (outcome, message) = match one.verdict {
            CleanupVerdict::AlreadyGone => ("already_gone", one.message),
            CleanupVerdict::Skipped => ("skipped", one.message),
            CleanupVerdict::Unverified => ("unverified", one.message),
            CleanupVerdict::Requested => await_end(ctx, client, &one.id, deadline).await,
        };
        outcomes.push(Outcome { id: one.id.to_string(), outcome, message });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(outcomes)
}

/// A failure to look at one must not hide what became of the others.
async fn await_end(
    ctx: &Context,
    client: &Client,
    id: &ContainerId,
    deadline: Duration,
) -> (&'static str, String) {
    let gone = |view: &ContainerView| view.record.state == ContainerState::Terminated;
    match wait::until(ctx, client, id, Some(deadline), gone).await {
        Ok(Waited::Done(_)) => ("terminated", "confirmed gone".to_owned()),
        Ok(Waited::TimedOut(view)) => {
            let why =
                view.record.stop_error.clone().unwrap_or_else(|| format!("still {}", view.record.state));
            ("failed", format!("{why}; the server goes on trying"))
        }
        Err(error) => ("failed", error.message),
    }
}

fn progress(ctx: &Context, length: u64) -> ProgressBar {
    // Standard error; indicatif draws nothing where that is not a terminal.
    let target = if ctx.out.is_human() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(length), target);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} confirmed gone ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn tell(ctx: &Context, outcomes: &[Outcome]) -> Result<()> {
    let human = || {
        let gone = outcomes.iter().filter(|o| matches!(o.outcome, "terminated" | "already_gone")).count();
        let mut out = format!("{} terminated.\n", counted(gone as i64, "container"));
        for one in outcomes.iter().filter(|o| o.outcome == "skipped") {
            out.push_str(&format!("{} was left alone: {}\n", one.id, text::clean(&one.message)));
        }
        out
    };
    ctx.out.list(outcomes, |one| one.id.clone(), human)?;
    let failed: Vec<&Outcome> = outcomes.iter().filter(|o| o.is_failure()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let rows: Vec<String> =
        failed.iter().map(|one| format!("  {}: {}", one.id, text::clean(&one.message))).collect();
    let count = counted(failed.len() as i64, "container");
    Err(CliError::failure("not_all_ended", format!("{count} could not be ended:\n{}", rows.join("\n")))
        .fix("see 'parhelia reconciler status'; run the same command again later"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures::{plain, seed_row};
    use parhelia_core::state::Health;

    #[test]
    fn what_qualifies_is_shown_with_its_cost() {
        let view = seed_row(
            ("c-ghi789", "sb-rst456"),
            (ContainerState::Orphaned, Health::Unknown),
            None,
            (12_000, 2.10),
        );
        assert_eq!(
            plain(&screen(&[view], "orphan")),
            "\
ID          SANDBOX      STATE      HEALTH     AGE      COST     TASK
c-ghi789    sb-rst456    orphaned   unknown    3h 20m   $2.10    -

1 orphan | Cost: $2.10 accrued, $0.54/hr
"
        );
        assert_eq!(these(1, "orphan"), "this orphan");
        assert_eq!(these(3, "dead container"), "these 3 dead containers");
    }
}
