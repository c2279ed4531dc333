//! A server that is stopped for a while between the claim of a create and the call to the provider.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parhelia_core::Timestamp;
use parhelia_core::config::Config;
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::ids::ContainerId;
use parhelia_core::sandbox::SandboxSpec;
use parhelia_core::state::ContainerState;
use parhelia_core::time::Clock;
use parhelia_providers::fake::{FakeProvider, World};
use parhelia_server::entropy::SystemEntropy;
use parhelia_server::loops::Context;
use parhelia_server::loops::health::Observer;
use parhelia_server::loops::reconciler::Reconciler;
use parhelia_store::{Fence, NewContainer, Owner, Store};

const INSTANCE: &str = "11111111-1111-4111-8111-111111111111";

/// So many seconds pass between any two looks at it.
#[derive(Debug, Default)]
struct Halting {
    step: u64,
    seconds: AtomicU64,
}

impl Clock for Halting {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.seconds.fetch_add(self.step, Ordering::Relaxed))
    }
}

/// How often the provider was asked to start it, and how often that was claimed.
async fn starts_and_claims(step: u64) -> (usize, i64) {
    let clock: Arc<dyn Clock> = Arc::new(Halting { step, ..Halting::default() });
    let store = Store::open_sqlite_inline(Path::new(":memory:")).unwrap();
    let now = clock.now();
    store.this_instance(INSTANCE, now).await.unwrap();
    let owner = Owner {
        id: "owner".into(),
        home_id: "home".into(),
        host: "host".into(),
        boot_id: "boot".into(),
        epoch: 0,
        started_at: now,
        lease_until: now,
        ended_at: None,
        version: "test".into(),
    };
    store.register_owner(&owner).await.unwrap();
    let epoch = store.take_leadership("owner", now, now, true).await.unwrap();
    let id = ContainerId::mint(1, 1);
    let spec: SandboxSpec = serde_json::from_value(serde_json::json!({
        "container_id": id, "instance_id": INSTANCE, "command": ["work"],
    }))
    .unwrap();
    let created = NewEvent::new(EventType::ContainerCreated, Source::User, "wanted")
        .container(&id)
        .change("none", ContainerState::Created);
    store.register(NewContainer::intent("fake", spec, now), vec![created], now).await.unwrap();
    let provider = FakeProvider::in_memory("fake", World::new("engine"), clock.clone());
    let context = Context {
        store: store.clone(),
        fence: Fence { owner_id: "owner".into(), epoch },
        config: Arc::new(Config::default()),
        observer: Arc::new(Observer::new(clock.clone())),
        clock,
        entropy: Arc::new(SystemEntropy::default()),
    };
    Reconciler::new(context, Arc::new(provider.clone())).pass("test").await.unwrap();
    let claims = store.tracked("fake").await.unwrap()[0].create_attempts;
    (provider.world().starts.len(), claims)
}

/// The next leader has waited that long and made it anew: a create that is sent after all would be a second start.
#[tokio::test]
async fn a_create_is_not_sent_once_its_time_to_arrive_is_over() {
    assert_eq!(starts_and_claims(0).await, (1, 1));
    assert_eq!(starts_and_claims(31).await, (0, 1));
}
