//! What the tests stand on: a home, a provider over it, and ways to wait for a condition instead of a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parhelia_core::ids::ContainerId;
use parhelia_core::sandbox::{Exit, Inspection, Phase, Sandbox, SandboxSpec};
use parhelia_core::time::Clock;
use parhelia_providers::process::jobdir::{JobDir, job_id};
use parhelia_providers::process::{ProcessConfig, ProcessProvider};
use parhelia_providers::{Provider, SandboxRef, SystemClock};
use rustix::process::{Pid as Handle, Signal, kill_process};
use uuid::Uuid;

pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Ground {
    _kept: Option<tempfile::TempDir>,
    pub(crate) home: PathBuf,
    pub(crate) provider: ProcessProvider,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let kept = tempfile::tempdir().unwrap();
        let mut ground = Self::at(kept.path());
        ground._kept = Some(kept);
        ground
    }

    pub(crate) fn at(home: &Path) -> Self {
        Self { _kept: None, home: home.to_owned(), provider: provider(home, 64 << 20) }
    }

    pub(crate) fn rotating(rotate_bytes: u64) -> Self {
        let mut ground = Self::new();
        ground.provider = provider(&ground.home, rotate_bytes);
        ground
    }

    pub(crate) fn dir(&self, spec: &SandboxSpec) -> JobDir {
        JobDir::of(&self.home, job_id(&spec.container_id))
    }

    pub(crate) async fn look(&self, spec: &SandboxSpec) -> Sandbox {
        match self.provider.inspect(&reference(spec)).await.unwrap() {
            Inspection::Present(sandbox) => *sandbox,
            Inspection::Absent => panic!("absent"),
        }
    }

    pub(crate) async fn ended(&self, spec: &SandboxSpec) -> Exit {
        let mut last = None;
        for_a_while(async || {
            last = Some(self.look(spec).await.phase);
            matches!(last, Some(Phase::Exited(_)))
        })
        .await;
        match last {
            Some(Phase::Exited(exit)) => exit,
            other => panic!("it did not end: {other:?}\n{}", self.log(spec)),
        }
    }

    pub(crate) async fn output(&self, spec: &SandboxSpec) -> String {
        let mut bytes = Vec::new();
        loop {
            let chunk = self.provider.logs(&reference(spec), bytes.len() as u64, 1 << 20).await.unwrap();
            assert_eq!(chunk.offset, bytes.len() as u64, "nothing was rotated away");
            bytes.extend_from_slice(&chunk.bytes);
            if chunk.bytes.is_empty() {
                return String::from_utf8_lossy(&bytes).into_owned();
            }
        }
    }

    pub(crate) async fn says(&self, spec: &SandboxSpec, text: &str) {
        let said = for_a_while(async || self.output(spec).await.contains(text)).await;
        assert!(said, "'{text}' was not said: {}\n{}", self.output(spec).await, self.log(spec));
    }

    pub(crate) fn log(&self, spec: &SandboxSpec) -> String {
        std::fs::read_to_string(self.dir(spec).supervisor_log()).unwrap_or_default()
    }
}

impl Drop for Ground {
    /// No test leaves a process behind, however it ended.
    fn drop(&mut self) {
        for entry in std::fs::read_dir(self.home.join("jobs")).into_iter().flatten().flatten() {
            if let Some(job) = entry.file_name().to_str().and_then(|name| name.parse::<Uuid>().ok()) {
                let _ = parhelia_providers::process::sweep::kill_supervisor(job);
            }
        }
    }
}

pub(crate) fn provider(home: &Path, rotate_bytes: u64) -> ProcessProvider {
    supervised_by(home, rotate_bytes, supervisor())
}

pub(crate) fn supervised_by(home: &Path, rotate_bytes: u64, supervisor: PathBuf) -> ProcessProvider {
    ProcessProvider::new(ProcessConfig {
        home: home.to_owned(),
        home_id: "home-1".into(),
        supervisor,
        heartbeat_interval_seconds: 1,
        output_rotate_bytes: rotate_bytes,
        keep_ended_seconds: 7 * 86_400,
        clock: Arc::new(SystemClock::new()),
    })
    .unwrap()
}

/// Built with the tests, beside them.
pub(crate) fn supervisor() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples/supervise");
    assert!(
        path.exists(),
        "{} is missing; run: cargo build -p parhelia-providers --examples",
        path.display()
    );
    path
}

pub(crate) fn spec(command: &[&str]) -> SandboxSpec {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let random = NEXT.fetch_add(1, Ordering::Relaxed);
    let now = SystemClock::new().now().as_millisecond() as u64;
    SandboxSpec {
        container_id: ContainerId::mint(now, random),
        instance_id: "instance-1".into(),
        task_id: Some("ta-1".into()),
        session_id: Some("sess-1".into()),
        name: None,
        image: None,
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        env: Default::default(),
        workdir: None,
        labels: Default::default(),
        resources: Default::default(),
        idle_timeout_seconds: None,
        tmux_session: None,
        job: None,
        surroundings: Default::default(),
    }
}

pub(crate) fn shell(script: &str) -> SandboxSpec {
    spec(&["sh", "-c", script])
}

pub(crate) fn reference(spec: &SandboxSpec) -> SandboxRef {
    SandboxRef { container_id: spec.container_id.clone(), sandbox_id: None }
}

/// False when the condition did not come true in time.
pub(crate) async fn for_a_while(mut condition: impl AsyncFnMut() -> bool) -> bool {
    let clock = SystemClock::new();
    while clock.monotonic() < DEADLINE {
        if condition().await {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}

pub(crate) fn job_of(spec: &SandboxSpec) -> String {
    job_id(&spec.container_id).to_string()
}

/// The live processes whose `/proc` file `what` holds `text`.
pub(crate) fn processes(what: &str, text: &str) -> Vec<Handle> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let bytes = std::fs::read(entry.path().join(what)).unwrap_or_default();
        if String::from_utf8_lossy(&bytes).replace('\0', " ").contains(text) {
            found.extend(Handle::from_raw(number));
        }
    }
    found
}

pub(crate) fn signal_supervisor(spec: &SandboxSpec, signal: Signal) {
    let found = processes("environ", &format!("PARHELIA_SUPERVISES={}", job_of(spec)));
    assert_eq!(found.len(), 1, "one supervisor per job");
    kill_process(found[0], signal).unwrap();
}

pub(crate) fn of_job(spec: &SandboxSpec) -> usize {
    processes("environ", &format!("PARHELIA_JOB_ID={}", job_of(spec))).len()
}
