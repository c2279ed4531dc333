//! A provider on a private engine, and the means to wait for a condition.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parhelia_core::config::DockerSupervisor;
use parhelia_core::ids::ContainerId;
use parhelia_core::sandbox::{Exit, Inspection, Listing, Phase, Sandbox, SandboxSpec};
use parhelia_providers::docker::engine::Address;
use parhelia_providers::docker::{DockerConfig, DockerProvider, Supervisor};
use parhelia_providers::{Provider, SandboxRef, SystemClock};

use super::engine::{DockerEngine, IMAGE};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// What a server lets any one call take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) provider: DockerProvider,
    pub(crate) secrets: tempfile::TempDir,
    pub(crate) engine: DockerEngine,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let engine = DockerEngine::start();
        let secrets = tempfile::tempdir().unwrap();
        let provider = provider(Address::Unix(engine.socket()), secrets.path().to_owned());
        Self { provider, secrets, engine }
    }

    pub(crate) async fn listing(&self) -> Listing {
        self.provider.list().await.unwrap()
    }

    pub(crate) async fn start(&self, command: &[&str]) -> (SandboxSpec, Sandbox) {
        let spec = spec(command);
        let sandbox = self.provider.create(&spec).await.unwrap();
        (spec, sandbox)
    }

    pub(crate) async fn seen(&self, spec: &SandboxSpec) -> Option<Sandbox> {
        let all = self.listing().await.sandboxes;
        all.into_iter().find(|s| s.tags.container == spec.container_id)
    }

    pub(crate) async fn made(&self, spec: &SandboxSpec) -> Sandbox {
        let began = Instant::now();
        loop {
            if let Some(sandbox) = self.seen(spec).await {
                return sandbox;
            }
            assert!(began.elapsed() < PATIENCE, "it was never made");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn ended(&self, spec: &SandboxSpec) -> Exit {
        let began = Instant::now();
        loop {
            match self.seen(spec).await.map(|s| s.phase) {
                Some(Phase::Exited(exit)) => return exit,
                other => assert!(began.elapsed() < PATIENCE, "it never ended: {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn output(&self, spec: &SandboxSpec) -> String {
        String::from_utf8(self.provider.logs(&named(spec), 0, 1 << 20).await.unwrap().bytes).unwrap()
    }

    pub(crate) async fn is_absent(&self, spec: &SandboxSpec) -> bool {
        self.provider.inspect(&named(spec)).await.unwrap() == Inspection::Absent
    }
}

pub(crate) fn provider(address: Address, secrets: PathBuf) -> DockerProvider {
    DockerProvider::new(DockerConfig {
        address,
        timeout: TIMEOUT,
        pull: false,
        remove_after_seconds: 60,
        secrets,
        supervisor: Supervisor {
            mode: DockerSupervisor::Off,
            binary: PathBuf::from("/nowhere"),
            door: PathBuf::from("/nowhere"),
            heartbeat_interval_seconds: 1,
        },
        clock: Arc::new(SystemClock::new()),
    })
}

pub(crate) fn named(spec: &SandboxSpec) -> SandboxRef {
    SandboxRef { container_id: spec.container_id.clone(), sandbox_id: None }
}

pub(crate) fn spec(command: &[&str]) -> SandboxSpec {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    SandboxSpec {
        container_id: ContainerId::mint(1_767_225_600_000, NEXT.fetch_add(1, Ordering::Relaxed)),
        instance_id: "instance-a".into(),
        task_id: Some("ta-1".into()),
        session_id: None,
        name: None,
        image: Some(IMAGE.into()),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        env: BTreeMap::new(),
        workdir: None,
        labels: BTreeMap::new(),
        resources: Default::default(),
        idle_timeout_seconds: None,
        tmux_session: None,
        job: None,
        surroundings: Default::default(),
    }
}
