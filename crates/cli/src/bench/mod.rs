//! `parhelia bench`: what it costs, each figure beside the limit measured on the same machine in the same
//! run. It works in a temporary directory and touches no home.

mod http;
mod jobs;
mod live;
mod postgres;
mod reconcile;
mod server;
mod session_limits;
mod session_waits;
mod sessions;
mod store;
mod stream;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::context::Context;
use crate::error::{CliError, Result};
use crate::output::table::{Table, cell};

/// One figure, beside what it is measured against.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) measured: f64,
    pub(crate) unit: &'static str,
    /// What the machine can do at best, measured in this run; or the figure that it must keep to.
    pub(crate) limit: Option<f64>,
    pub(crate) limit_is: &'static str,
    pub(crate) target: String,
    /// `None` where there is no target.
    pub(crate) met: Option<bool>,
    /// What else decides about it, measured in this run.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
}

impl Row {
    /// At least `share` of a limit that was measured beside it.
    pub(crate) fn share(
        name: &str,
        measured: f64,
        unit: &'static str,
        limit: f64,
        limit_is: &'static str,
        share: f64,
    ) -> Self {
        let target = format!(">= {:.0} %", share * 100.0);
        let met = Some(measured >= limit * share);
        let limit = Some(limit);
        Self { limit, limit_is, target, met, ..Self::plain(name, measured, unit) }
    }

    /// At least a fixed figure, beside a limit that was measured with it.
    pub(crate) fn at_least(least: f64, row: Self) -> Self {
        let target = format!(">= {least} {}", row.unit);
        Self { target, met: Some(row.measured >= least), ..row }
    }

    /// Beside a limit that was measured with it, without a target.
    pub(crate) fn beside(
        name: &str,
        measured: f64,
        unit: &'static str,
        limit: f64,
        limit_is: &'static str,
    ) -> Self {
        Self { limit: Some(limit), limit_is, ..Self::plain(name, measured, unit) }
    }

    /// Less than a fixed figure.
    pub(crate) fn below(name: &str, measured: f64, unit: &'static str, most: f64) -> Self {
        let target = format!("< {most} {unit}");
        Self { target, met: Some(measured < most), ..Self::plain(name, measured, unit) }
    }

    /// A figure to know, without a target.
    pub(crate) fn plain(name: &str, measured: f64, unit: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            measured,
            unit,
            limit: None,
            limit_is: "",
            target: String::new(),
            met: None,
            reason: String::new(),
        }
    }

    /// With the least that it could be, measured beside it.
    pub(crate) fn limited(self, limit: f64, limit_is: &'static str) -> Self {
        Self { limit: Some(limit), limit_is, ..self }
    }

    pub(crate) fn because(self, reason: String) -> Self {
        Self { reason, ..self }
    }

    fn lacks_reason(&self) -> bool {
        self.met == Some(false) && self.reason.is_empty()
    }
}

/// Whatever misses its target has a word beside it: where nothing better is known, what the machine itself did.
fn explain(rows: &mut [Row], ground: &Ground) -> Result<()> {
    if !rows.iter().any(Row::lacks_reason) {
        return Ok(());
    }
    let machine = machine(&ground.dir)
        .map_err(|e| CliError::io(format!("cannot write to {}", ground.dir.display()), &e))?;
    for row in rows.iter_mut().filter(|row| row.lacks_reason()) {
        row.reason.clone_from(&machine);
    }
    Ok(())
}

/// How long the disk takes for a small durable write, and how many wanted the processors.
fn machine(dir: &Path) -> std::io::Result<String> {
    let mut file = std::fs::File::create(dir.join("small-writes"))?;
    let mut took = Vec::new();
    for _ in 0..100 {
        let began = stopwatch();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        took.push(millis(began));
    }
    let (half, most) = (percentile(&mut took, 0.5), percentile(&mut took, 0.99));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("?");
    let processors = std::thread::available_parallelism()?;
    Ok(format!(
        "no cause was measured; at the end of this run 4 KiB were durable on this disk after {half:.2} ms (p99 {most:.2} ms), \
         and in the last minute {load} wanted the {processors} processors"
    ))
}

/// The edge where a measurement reads the clock.
#[allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]
pub(crate) fn stopwatch() -> Instant {
    Instant::now()
}

pub(crate) fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// The value below which `share` of them lie.
pub(crate) fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = ((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1));
    values.get(at).copied().unwrap_or(0.0)
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    percentile(&mut values, 0.5)
}

pub(crate) fn failed(what: &str) -> impl FnOnce(String) -> CliError {
    let what = what.to_owned();
    move |why| CliError::failure("bench_failed", format!("{what}: {why}"))
}

/// What can be measured by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    Store,
    Postgres,
    Http,
    Stream,
    Reconciler,
    Jobs,
    Server,
    Sessions,
}

/// How long each part may measure, and where.
#[derive(Debug, Clone)]
pub(crate) struct Ground {
    pub(crate) dir: PathBuf,
    pub(crate) span: Duration,
    pub(crate) rounds: usize,
}

/// A directory of its own, gone afterwards.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) async fn parse_only() -> Result<()> {
    http::parse_only().await.map_err(failed("the handler that only parses"))
}

pub(crate) async fn run(
    ctx: &Context,
    dir: Option<&Path>,
    postgres: Option<&str>,
    quick: bool,
    only: &[Part],
) -> Result<()> {
    let parent = dir.map_or_else(std::env::temp_dir, Path::to_owned);
    let scratch = Scratch(parent.join(format!("parhelia-bench-{}", ctx.now().as_millisecond())));
    std::fs::create_dir_all(&scratch.0)
        .map_err(|e| CliError::io(format!("cannot make {}", scratch.0.display()), &e))?;
    let ground = Ground {
        dir: scratch.0.clone(),
        span: Duration::from_millis(if quick { 200 } else { 1000 }),
        rounds: if quick { 1 } else { 5 },
    };
    let mut rows = Vec::new();
    let wanted = |part: Part, what: &str| {
        let wanted = only.is_empty() || only.contains(&part);
        if wanted {
            ctx.out.note(&format!("measuring {what} …"));
        }
        wanted
    };
    if wanted(Part::Store, "the store") {
        rows.extend(store::measure(&ground).await.map_err(failed("the store"))?);
    }
    if wanted(Part::Postgres, "the store on PostgreSQL") {
        rows.extend(postgres::measure(&ground, postgres).await.map_err(failed("the store on PostgreSQL"))?);
    }
    if wanted(Part::Http, "HTTP") {
        rows.extend(http::measure(&ground).await.map_err(failed("HTTP"))?);
    }
    if wanted(Part::Stream, "live events") {
        rows.extend(stream::measure(&ground, quick).await.map_err(failed("live events"))?);
    }
    if wanted(Part::Reconciler, "the reconciler") {
        rows.extend(reconcile::measure(&ground, quick).await.map_err(failed("the reconciler"))?);
    }
    if wanted(Part::Jobs, "job files") {
        rows.extend(jobs::measure(&ground, quick).await.map_err(failed("job files"))?);
        rows.extend(live::measure(&ground, quick).await.map_err(failed("live jobs"))?);
    }
    if wanted(Part::Server, "a server") {
        rows.extend(server::measure(&ground, quick).await.map_err(failed("a server"))?);
    }
    if wanted(Part::Sessions, "sessions") {
        rows.extend(sessions::measure(&ground, postgres, quick).await.map_err(failed("sessions"))?);
    }
    explain(&mut rows, &ground)?;
    ctx.out.list(&rows, |row| row.name.clone(), || screen(&rows))
}

fn screen(rows: &[Row]) -> String {
    let columns = [
        ("FIGURE", 46),
        ("MEASURED", 18),
        ("LIMIT IN THIS RUN", 40),
        ("SHARE", 8),
        ("TARGET", 12),
        ("MET", 4),
    ];
    let mut table = Table::new(&columns);
    for row in rows {
        let limit =
            row.limit.map_or_else(String::new, |l| format!("{} {} ({})", number(l), row.unit, row.limit_is));
        let share = row.limit.map_or_else(String::new, |l| format!("{:.1} %", row.measured / l * 100.0));
        let met = match row.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        let measured = format!("{} {}", number(row.measured), row.unit);
        table.row(vec![
            cell(&row.name),
            cell(measured),
            cell(limit),
            cell(share),
            cell(&row.target),
            cell(met),
        ]);
    }
    let mut screen = table.render();
    for row in rows.iter().filter(|row| !row.reason.is_empty()) {
        screen.push_str(&format!("\n{}: {}", row.name, row.reason));
    }
    screen
}

fn number(value: f64) -> String {
    if value >= 1000.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}
