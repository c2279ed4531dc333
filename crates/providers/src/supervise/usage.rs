//! What the job uses: CPU, memory and disk, measured over everything that descends from the command.
//!
//! `cpu_percent` is of the cores that were allocated to it, or of all the machine's when none were: 100 is
//! "uses all that it may". `memory_percent` is of the allocated memory, else of the control group's limit
//! (v1 or v2), else of the machine's memory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use parhelia_core::heartbeat::Sample;
use parhelia_core::job::Sign;
use parhelia_core::time::Clock;

use super::{SUPERVISES_VARIABLE, Shared, locked};
use crate::process::procs;

/// More CPU than this, in cores, counts as getting on.
const CPU_GROWTH_CORES: f64 = 0.005;
/// Over less time than this a use of CPU is mostly chance; the sample before counts on.
const CPU_WINDOW: Duration = Duration::from_millis(500);
/// Without output or CPU growth for this long the agent is called unresponsive.
const RESPONSIVE: Duration = Duration::from_secs(120);
const TMUX_WAIT: Duration = Duration::from_secs(2);

/// Remembers the last look, because CPU use is a difference.
#[derive(Debug)]
pub(super) struct Meter {
    cores: f64,
    memory_limit_bytes: Option<f64>,
    last: Option<(Duration, u64)>,
    /// The look that the next sample's CPU use counts from.
    reported: Option<(Duration, u64)>,
    cpu_cores_used: Option<f64>,
    memory_bytes: f64,
}

impl Meter {
    pub(super) fn new(shared: &Shared) -> Self {
        let resources = &shared.spec.sandbox.resources;
        let host_cores = || std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        let allocated = resources.memory_mb.filter(|mb| *mb > 0).map(|mb| mb as f64 * 1024.0 * 1024.0);
        Self {
            cores: resources.cpu_cores.filter(|cores| *cores > 0.0).unwrap_or_else(host_cores),
            memory_limit_bytes: allocated.or_else(group_memory_limit).or_else(host_memory),
            last: None,
            reported: None,
            cpu_cores_used: None,
            memory_bytes: 0.0,
        }
    }

    /// Looks at the tree once, and notes progress when it has used CPU since the last look.
    pub(super) fn look(&mut self, shared: &Shared) {
        let Ok(own) = procs::own() else { return };
        let Ok(tree) = procs::below_quickly(own.proc_no) else { return };
        // What has ended and been reaped by us is in our own account, so the sum does not fall.
        let ticks = own.reaped_cpu_ticks + tree.iter().map(|seen| seen.cpu_ticks).sum::<u64>();
        let pages: u64 = tree.iter().map(|seen| seen.rss_pages).sum();
        self.memory_bytes = pages as f64 * rustix::param::page_size() as f64;
        let now = shared.clock.monotonic();
        let look = (now, ticks);
        if self.last.is_some_and(|last| cores_used(last, look) > CPU_GROWTH_CORES) {
            shared.note_sign(Sign::Cpu);
        }
        self.last = Some(look);
    }

    pub(super) fn sample(&mut self, shared: &Shared) -> Sample {
        if let (Some(from), Some(to)) = (self.reported, self.last)
            && to.0.saturating_sub(from.0) >= CPU_WINDOW
        {
            self.cpu_cores_used = Some(cores_used(from, to));
            self.reported = self.last;
        }
        self.reported = self.reported.or(self.last);
        let idle_seconds = shared.since_progress().as_secs();
        let (activity, waiting_reason) = shared.sentinel.status(shared);
        let (sentinel_writes, sentinel_failures) = shared.sentinel.written();
        let mut metadata = vec![
            ("output_bytes".to_owned(), shared.output.seen_bytes().into()),
            ("lost_bytes".to_owned(), shared.output.written().1.into()),
            ("seconds_since_progress".to_owned(), idle_seconds.into()),
            ("job_status".to_owned(), activity.as_str().into()),
            ("sentinel_writes".to_owned(), sentinel_writes.into()),
            ("sentinel_failures".to_owned(), sentinel_failures.into()),
        ];
        metadata.extend(waiting_reason.map(|reason| ("waiting_reason".to_owned(), reason.into())));
        metadata.extend(shared.activity.session().map(|id| ("agent_session".to_owned(), id.into())));
        Sample {
            cpu_percent: self.cpu_cores_used.map(|used| round(100.0 * used / self.cores)),
            memory_percent: self.memory_limit_bytes.map(|limit| round(100.0 * self.memory_bytes / limit)),
            memory_mb: Some((self.memory_bytes / (1024.0 * 1024.0)).round() as i64),
            disk_percent: disk_percent(&shared.workdir),
            uptime_seconds: Some(shared.clock.monotonic().as_secs() as i64),
            tmux_active: tmux_active(shared),
            claude_responsive: Some(shared.since_progress() <= RESPONSIVE),
            metadata: Some(metadata.into_iter().collect()),
            ..Sample::bare(shared.spec.sandbox.container_id.clone())
        }
    }
}

fn cores_used((at, before): (Duration, u64), (now, ticks): (Duration, u64)) -> f64 {
    let seconds = now.saturating_sub(at).as_secs_f64();
    let used = ticks.saturating_sub(before) as f64 / rustix::param::clock_ticks_per_second() as f64;
    if seconds > 0.0 { used / seconds } else { 0.0 }
}

fn round(percent: f64) -> f64 {
    (percent * 10.0).round() / 10.0
}

/// As `df` counts it: of what an ordinary user could have.
fn disk_percent(path: &Path) -> Option<f64> {
    let space = rustix::fs::statvfs(path).ok()?;
    let used = space.f_blocks.saturating_sub(space.f_bfree) as f64;
    let total = used + space.f_bavail as f64;
    (total > 0.0).then(|| round(100.0 * used / total))
}

fn host_memory() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<f64>().ok()? * 1024.0)
}

/// The directories of our memory control group: as named, and as a container sees its own root.
fn memory_groups() -> Vec<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut found = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let path = path.trim_start_matches('/');
        let roots: &[&str] = match controllers {
            "" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
            names if names.split(',').any(|name| name == "memory") => &["/sys/fs/cgroup/memory"],
            _ => continue,
        };
        for root in roots {
            found.push(Path::new(root).join(path));
            found.push(PathBuf::from(root));
        }
    }
    found
}

fn group_memory_limit() -> Option<f64> {
    let limits = memory_groups().into_iter().flat_map(|group| {
        ["memory.max", "memory.limit_in_bytes"].map(|name| std::fs::read_to_string(group.join(name)).ok())
    });
    // Version 1 says "no limit" with a number near the largest there is.
    let believable = |bytes: &f64| *bytes > 0.0 && *bytes < (1u64 << 60) as f64;
    limits.flatten().filter_map(|text| text.trim().parse().ok()).filter(believable).reduce(f64::min)
}

/// How often the kernel has killed for memory in our control group. Best effort: others may share it.
pub(super) fn oom_kills() -> u64 {
    let read = |path: PathBuf| std::fs::read_to_string(path).ok();
    let texts = memory_groups()
        .into_iter()
        .take(2)
        .flat_map(|group| [read(group.join("memory.events")), read(group.join("memory.oom_control"))]);
    let counts = texts.flatten().filter_map(|text| {
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok())
    });
    counts.max().unwrap_or(0)
}

/// Whether its tmux session is there; `None` when it has none or tmux does not say in time.
fn tmux_active(shared: &Shared) -> Option<bool> {
    let sandbox = &shared.spec.sandbox;
    let variable = sandbox.env.get("TMUX");
    if sandbox.tmux_session.is_none() && variable.is_none() {
        return None;
    }
    let _guard = locked(&shared.helper);
    if shared.ending.load(Ordering::SeqCst) {
        return None;
    }
    let mut command = Command::new("tmux");
    if let Some(socket) = variable.and_then(|value| value.split(',').next()).filter(|path| !path.is_empty()) {
        command.arg("-S").arg(socket);
    }
    command.arg("has-session");
    if let Some(name) = &sandbox.tmux_session {
        // The equals sign asks for exactly this name, not for one that begins with it.
        command.arg("-t").arg(format!("={name}"));
    }
    command.env_remove(SUPERVISES_VARIABLE).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let deadline = shared.clock.monotonic() + TMUX_WAIT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if shared.clock.monotonic() < deadline => std::thread::sleep(Duration::from_millis(10)),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}
