//! What the tests share: stores of each kind, and a small world to put in them.

#![allow(dead_code, unreachable_pub)] // each test binary uses a part

pub mod postgres;

use jiff::Timestamp;
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::ids::ContainerId;
use parhelia_core::reconcile::{Observed, Tracked};
use parhelia_core::sandbox::{Phase, Resources, Sandbox, SandboxSpec, Tags};
use parhelia_core::state::ContainerState;
use parhelia_core::time::plus_seconds;
use parhelia_store::{EventFilter, Fence, NewContainer, Owner, Store};
use tempfile::TempDir;

/// A store with what keeps it alive, and the lead taken.
pub struct World {
    pub store: Store,
    pub fence: Fence,
    dir: TempDir,
}

impl World {
    /// Every kind of database that the conformance suite runs over.
    pub async fn each() -> Vec<World> {
        let mut worlds = Vec::new();
        for inline in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("parhelia.db");
            let store = if inline { Store::open_sqlite_inline(&path) } else { Store::open_sqlite(&path) };
            worlds.push(Self::of(store.unwrap(), dir).await);
        }
        worlds.push(Self::postgres().await);
        worlds
    }

    pub async fn postgres() -> World {
        let store = Store::open(&postgres::Server::shared().database()).await.unwrap();
        Self::of(store, tempfile::tempdir().unwrap()).await
    }

    pub async fn sqlite() -> World {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_sqlite(&dir.path().join("parhelia.db")).unwrap();
        Self::of(store, dir).await
    }

    async fn of(store: Store, dir: TempDir) -> World {
        store.register_owner(&owner("o-1")).await.unwrap();
        let epoch = store.take_leadership("o-1", at(10), at(0), false).await.unwrap();
        World { store, fence: Fence { owner_id: "o-1".into(), epoch }, dir }
    }

    /// Whether callers really meet in it; the inline one runs each in its own task, to the end.
    pub fn is_concurrent(&self) -> bool {
        !format!("{:?}", self.store).contains("Inline")
    }

    pub fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("parhelia.db")
    }

    /// The types of all events, oldest first.
    pub async fn told(&self) -> Vec<EventType> {
        let filter = EventFilter { limit: Some(10_000), ..Default::default() };
        self.store.events(&filter).await.unwrap().into_iter().map(|event| event.event_type).collect()
    }

    /// Waits until the tail ends at `id`: on PostgreSQL a transaction of anybody in the cluster may delay it.
    pub async fn settled(&self, id: i64) {
        for _ in 0..500 {
            if self.store.last_event_id().await.unwrap() == id {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("the tail ends at {} and not at {id}", self.store.last_event_id().await.unwrap());
    }

    pub async fn row(&self, id: &ContainerId) -> parhelia_core::container::Container {
        self.store.container(id).await.unwrap().unwrap()
    }

    pub async fn state(&self, id: &ContainerId) -> ContainerState {
        self.row(id).await.state
    }

    pub async fn tracked(&self, id: &ContainerId) -> Tracked {
        let provider = self.row(id).await.provider;
        let mut rows = self.store.tracked_by_ids(&provider, std::slice::from_ref(id), &[]).await.unwrap();
        rows.pop().unwrap()
    }

    /// A container that runs as sandbox `sb-N`.
    pub async fn running(&self, n: u64) -> ContainerId {
        let new = intent(n);
        let id = new.id.clone();
        self.store.register(new, vec![], at(0)).await.unwrap();
        let mut observed = Observed::of(&self.tracked(&id).await);
        observed.state = ContainerState::Running;
        observed.started_at = Some(at(1));
        observed.sandbox_id = Some(format!("sb-{n}"));
        observed.provider_identity = Some("engine-1".into());
        self.store
            .observe(&self.fence, &id, ContainerState::Created, &observed, vec![], at(1))
            .await
            .unwrap();
        id
    }

    pub async fn terminate(&self, id: &ContainerId) {
        let row = self.tracked(id).await;
        let mut observed = Observed::of(&row);
        observed.state = ContainerState::Terminated;
        observed.terminated_at = Some(at(50));
        observed.exit_code = Some(3);
        self.store.observe(&self.fence, id, row.state, &observed, vec![], at(51)).await.unwrap();
    }
}

/// Seconds after the beginning of the tests' time.
pub fn at(seconds: i64) -> Timestamp {
    plus_seconds("2026-01-21T14:00:00Z".parse().unwrap(), seconds)
}

pub fn cid(n: u64) -> ContainerId {
    ContainerId::mint(1_768_000_000_000 + n, n)
}

pub fn owner(id: &str) -> Owner {
    Owner {
        id: id.into(),
        home_id: format!("home-{id}"),
        host: "host".into(),
        boot_id: "boot".into(),
        epoch: 0,
        started_at: at(0),
        lease_until: at(60),
        ended_at: None,
        version: "0.1.0".into(),
    }
}

pub fn spec(n: u64) -> SandboxSpec {
    SandboxSpec {
        container_id: cid(n),
        instance_id: "inst-1".into(),
        task_id: Some(format!("A-L1-{n:03}")),
        session_id: Some("sess-1".into()),
        name: Some(format!("fix-auth-{n}")),
        image: Some("debian".into()),
        command: vec!["sh".into(), "-c".into(), "echo 'hi $1' -- ?".into()],
        env: [("A".to_owned(), "B".to_owned())].into(),
        workdir: None,
        labels: [("team".to_owned(), "core".to_owned())].into(),
        resources: Resources { cpu_cores: Some(2.0), memory_mb: Some(4096), gpu_type: Some("A10G".into()) },
        idle_timeout_seconds: None,
        tmux_session: None,
        job: None,
        surroundings: Default::default(),
    }
}

pub fn intent(n: u64) -> NewContainer {
    NewContainer::intent("docker", spec(n), at(n as i64))
}

pub fn sandbox(n: u64, instance: &str) -> Sandbox {
    Sandbox {
        sandbox_id: format!("sb-{n}"),
        tags: Tags { instance: instance.into(), container: cid(n), task: Some("their-task".into()) },
        phase: Phase::Running,
        created_at: Some(at(0)),
        started_at: None,
        name: Some("theirs".into()),
        image: None,
        command: vec!["sleep".into()],
        labels: Default::default(),
        region: Some("eu".into()),
        resources: Resources::default(),
        reported_cost_usd: None,
    }
}

pub fn event(event_type: EventType) -> NewEvent {
    NewEvent::new(event_type, Source::System, "told")
}

pub fn about(event_type: EventType, id: &ContainerId) -> NewEvent {
    event(event_type).container(id)
}

pub async fn until<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..1500 {
        if let Some(value) = condition().await {
            return value;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("waited in vain: {what}");
}
