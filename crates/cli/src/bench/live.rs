//! Real jobs: how soon a new server finds those that outlived the old one, whether their signs of life could be
//! written, and what it costs to put `parhelia exec` before a command.

use std::path::Path;
use std::time::Duration;

use parhelia_core::job::JobStatus;
use parhelia_core::job::api::JobList;
use parhelia_providers::process::jobdir::{JobDir, JobResult, read_json};
use serde_json::json;

use super::server::{Child, command};
use super::{Ground, Row, median, millis, stopwatch};

/// They end by themselves should nobody end them.
const LIFE_SECONDS: &str = "300";

pub(super) async fn measure(ground: &Ground, quick: bool) -> Result<Vec<Row>, String> {
    let count: usize = if quick { 10 } else { 100 };
    let home = ground.dir.join("live");
    std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
    // Beats once a second, so that there is something to count.
    std::fs::write(home.join("parhelia.toml"), "[health]\nheartbeat_interval_seconds = 1\n")
        .map_err(|e| e.to_string())?;
    let server = Child::start(&home, &[]).await?;
    for _ in 0..count {
        let body = json!({ "command": ["sleep", LIFE_SECONDS] });
        server.post("/api/v1/jobs", &body).await?;
    }
    until(&server, count, "run", |status| status == JobStatus::Fresh).await?;
    server.kill().await?;
    let began = stopwatch();
    let server = Child::start(&home, &[]).await?;
    let ready = millis(began);
    until(&server, count, "be found again", |status| status == JobStatus::Reattached).await?;
    let found = millis(began);
    let (bare, ours) = exec_true(&home, if quick { 3 } else { 20 }).await?;
    // Long enough for each to beat a few times more.
    tokio::time::sleep(Duration::from_secs(if quick { 1 } else { 5 })).await;
    let jobs = server.get::<JobList>("/api/v1/jobs?status=reattached&limit=1000").await?.jobs;
    for job in &jobs {
        server.post(&format!("/api/v1/jobs/{}/cancel", job.job.id), &json!({ "grace_seconds": 0 })).await?;
    }
    until(&server, count, "end", JobStatus::is_over).await?;
    let (mut written, mut failed) = (0, 0);
    for job in &jobs {
        let result: Option<JobResult> =
            read_json(&JobDir::of(&home, job.job.id).result()).map_err(|e| e.to_string())?;
        let result = result.ok_or_else(|| format!("job {} has no result", job.job.id))?;
        written += result.sentinel_writes;
        failed += result.sentinel_failures;
    }
    let rate = failed as f64 / (written + failed).max(1) as f64 * 100.0;
    Ok(vec![
        Row::below(&format!("{count} jobs found again by a new server"), found, "ms", 2000.0)
            .because(format!("its server was ready after {ready:.0} ms")),
        Row::below(&format!("heartbeat writes that failed, of {}", written + failed), rate, "%", 1.0),
        Row::plain("'exec true' beyond a bare 'true', median", ours - bare, "ms"),
    ])
}

/// Waits until all jobs but those that `exec` made are as wanted.
async fn until(
    server: &Child,
    count: usize,
    what: &str,
    wanted: impl Fn(JobStatus) -> bool,
) -> Result<(), String> {
    for _ in 0..12_000 {
        let list: JobList = server.get("/api/v1/jobs?all=true&limit=1000").await?;
        let ours = list.jobs.iter().filter(|job| job.command.first().is_some_and(|word| word == "sleep"));
        if ours.filter(|job| wanted(job.job.status)).count() == count {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err(format!("not all of {count} jobs came to {what} in a minute"))
}

/// Medians in milliseconds: the command by itself, and the command as a job.
async fn exec_true(home: &Path, rounds: usize) -> Result<(f64, f64), String> {
    let (mut bare, mut ours) = (vec![], vec![]);
    for _ in 0..rounds {
        let began = stopwatch();
        let ended = tokio::process::Command::new("true").status().await.map_err(|e| e.to_string())?;
        bare.push(millis(began));
        let began = stopwatch();
        let executed = command(home, &["exec", "--", "true"])?.status().await.map_err(|e| e.to_string())?;
        ours.push(millis(began));
        if !(ended.success() && executed.success()) {
            return Err("'true' did not succeed".to_owned());
        }
    }
    Ok((median(bare), median(ours)))
}
