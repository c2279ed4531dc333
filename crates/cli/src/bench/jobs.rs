//! The files of jobs: sentinels written, read and judged; locks asked.

use std::path::PathBuf;
use std::sync::Arc;

use parhelia_core::Timestamp;
use parhelia_core::job::classify::{JobFacts, LockSeen, SentinelSeen};
use parhelia_core::liveness::Ladder;
use parhelia_core::time::seconds_between;
use parhelia_providers::process::host::{Host, local_filesystem};
use parhelia_providers::process::jobdir::{Durability, JobDir, Sentinel, job_id, read_json, write_json};
use parhelia_providers::process::lock::{self, LockState};
use parhelia_providers::process::{ProcessConfig, ProcessProvider};
use parhelia_providers::{Provider, SystemClock};

use super::store::{id, moment};
use super::{Ground, Row, median, millis, percentile, stopwatch};

/// Of which the median counts.
const LOOKS: usize = 5;

pub(super) async fn measure(ground: &Ground, quick: bool) -> Result<Vec<Row>, String> {
    let count: u64 = if quick { 500 } else { 10_000 };
    let host = Host::this().map_err(|e| e.to_string())?;
    let home = ground.dir.join("jobs-bench");
    let mut writes = Vec::with_capacity(count as usize);
    let mut dirs = Vec::with_capacity(count as usize);
    let mut held = Vec::with_capacity(count as usize);
    open_files(count + 1000)?;
    for n in 0..count {
        let job = job_id(&id(n));
        let dir = JobDir::of(&home, job);
        std::fs::create_dir_all(dir.path()).map_err(|e| e.to_string())?;
        // As while its supervisor lives.
        held.push(lock::hold(&dir, &host).map_err(|e| e.to_string())?);
        let sentinel = Sentinel {
            job_id: job,
            status: "running".into(),
            last_heartbeat: moment(),
            workspace_path: dir.path().display().to_string(),
            session_id: None,
            agent_engine: "bench".into(),
            started_at: moment(),
            progress_percent: None,
            last_progress: None,
            waiting_reason: None,
        };
        let began = stopwatch();
        write_json(&dir.sentinel(), &sentinel, Durability::Atomic).map_err(|e| e.to_string())?;
        writes.push(millis(began));
        dirs.push(dir);
    }
    let ladder = Ladder::default();
    let now: Timestamp = moment();
    let ids: Vec<_> = (0..count).map(|n| job_id(&id(n))).collect();
    let config = ProcessConfig {
        home: home.clone(),
        home_id: "bench".to_owned(),
        supervisor: PathBuf::new(),
        heartbeat_interval_seconds: 30,
        output_rotate_bytes: 1 << 20,
        keep_ended_seconds: 86_400,
        clock: Arc::new(SystemClock::new()),
    };
    let provider = ProcessProvider::new(config).map_err(|e| e.to_string())?;
    let files = provider.job_files().ok_or("the process provider has no files")?;
    let (mut bare, mut sentinels, mut locks, mut both) = (vec![], vec![], vec![], vec![]);
    for _ in 0..LOOKS {
        let began = stopwatch();
        for dir in &dirs {
            std::hint::black_box(std::fs::read(dir.sentinel()).map_err(|e| e.to_string())?);
        }
        bare.push(millis(began));
        let began = stopwatch();
        for dir in &dirs {
            let sentinel: Option<Sentinel> = read_json(&dir.sentinel()).map_err(|e| e.to_string())?;
            let age = sentinel.map_or(f64::MAX, |s| seconds_between(s.last_heartbeat, now));
            std::hint::black_box(ladder.assess(age));
        }
        sentinels.push(millis(began));
        let began = stopwatch();
        let local = local_filesystem(&home).map_err(|e| e.to_string())?;
        for dir in &dirs {
            match lock::query(dir, &host, &local).map_err(|e| e.to_string())? {
                LockState::Held => {}
                other => return Err(format!("a lock that is held is {other:?}")),
            }
        }
        locks.push(millis(began));
        let began = stopwatch();
        let found = files.facts(ids.clone()).await.map_err(|e| e.to_string())?;
        let lives = |facts: &JobFacts| {
            facts.lock == LockSeen::Held && matches!(facts.sentinel, SentinelSeen::Read(_))
        };
        if !found.iter().all(lives) {
            return Err("a job that beats under its lock is not seen so".to_owned());
        }
        both.push(millis(began));
    }
    let [bare, sentinels, locks, both] = [bare, sentinels, locks, both].map(median);
    let beside = |name: &str, figure: f64| {
        Row::below(&format!("{count} {name}"), figure, "ms", 100.0).limited(bare, "their files only read")
    };
    Ok(vec![
        beside("live jobs checked: sentinel and lock", both).because(format!(
            "one after the other the sentinels take {sentinels:.0} ms, the locks {locks:.0}"
        )),
        beside("sentinels checked (warm cache)", sentinels),
        Row::plain(&format!("{count} locks queried"), locks, "ms"),
        Row::below("sentinel write, p99", percentile(&mut writes, 0.99), "ms", 5.0),
    ])
}

/// One descriptor for each lock that is held here.
fn open_files(most: u64) -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|current| current >= most) {
        return Ok(());
    }
    let wanted = Rlimit { current: Some(most), maximum: now.maximum };
    setrlimit(Resource::Nofile, wanted)
        .map_err(|e| format!("{most} files could not be opened at once ({e}); raise the limit (ulimit -Hn)"))
}
