//! The first steps of a start: the home is locked, the store opened, and an owner recorded in it.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::job::{StartStep, Startup, StepReport};
use parhelia_core::time::{Clock, plus_seconds};
use parhelia_store::{Fence, Owner, Store, StoreError};
use serde_json::json;

use super::{STOP_PATIENCE, ServeError, ServeOptions};
use crate::entropy::Entropy;
use crate::home::{Home, HomeError, ServerLock};
use crate::loops::lease;
use crate::startup::{self, Said};

/// A server that is just leaving no longer answers but still has the lock: it is waited for. One that
/// answers stays.
pub(super) async fn lock(home: &Home, clock: &Arc<dyn Clock>) -> Result<ServerLock, ServeError> {
    let deadline = clock.monotonic() + STOP_PATIENCE + Duration::from_secs(2);
    loop {
        match home.lock() {
            Err(HomeError::Taken { path }) => {
                let answers = tokio::net::UnixStream::connect(home.socket()).await.is_ok();
                if answers || clock.monotonic() > deadline {
                    return Err(ServeError::AlreadyServed { home: path });
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            other => return Ok(other?),
        }
    }
}

/// What a server has once its database has answered.
pub(super) struct Begun {
    pub(super) store: Store,
    pub(super) led: Led,
    /// The last event of those who were here before us.
    pub(super) before: i64,
    pub(super) docker_recorded: bool,
    /// The steps of this start until here.
    pub(super) steps: Vec<StepReport>,
}

/// May be tried again from the beginning if the database goes away in the middle.
pub(super) async fn begin(
    options: &ServeOptions,
    home: &Home,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
) -> Result<Begun, StoreError> {
    let began = clock.monotonic();
    let store = match &options.config.server.database_url {
        Some(url) => Store::open_postgres(&url.0).await?,
        None => Store::open_sqlite(&home.database())?,
    };
    let before = store.last_event_id().await?;
    let (led, steps) = lead(&store, home, clock, entropy, began).await?;
    let docker_recorded = !store.tracked("docker").await?.is_empty();
    Ok(Begun { store, led, before, docker_recorded, steps })
}

pub(super) struct Led {
    pub(super) fence: Fence,
    pub(super) instance_id: String,
    pub(super) started_at: parhelia_core::Timestamp,
}

/// Becomes an owner. On SQLite it takes the lead with it, under a new epoch: whatever an earlier server still had in flight is refused from here on.
async fn lead(
    store: &Store,
    home: &Home,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
    began: Duration,
) -> Result<(Led, Vec<StepReport>), StoreError> {
    let now = clock.now();
    let instance_id = store.this_instance(&entropy.uuid(), now).await?;
    let owner_id = entropy.uuid();
    let lease_until = plus_seconds(now, lease::LEASE_SECONDS);
    let host = host();
    store
        .register_owner(&Owner {
            id: owner_id.clone(),
            home_id: home.id.clone(),
            host: host.clone(),
            boot_id: boot_id(),
            epoch: 0,
            started_at: now,
            lease_until,
            ended_at: None,
            version: parhelia_core::VERSION.to_owned(),
        })
        .await?;
    store.note_home(&owner_id, &home.path.display().to_string()).await?;
    let startup = Startup {
        owner_id: owner_id.clone(),
        host,
        version: parhelia_core::VERSION.to_owned(),
        started_at: now,
        finished_at: None,
        steps: Vec::new(),
    };
    let cut_off = startup::begin(store, &home.id, &startup).await?;
    let opened = Said::ok(match cut_off {
        Some(what) => format!("opened; {what}: everything is looked at again"),
        None => "opened".to_owned(),
    });
    let opened_at = clock.monotonic();
    let mut steps =
        vec![startup::report(StartStep::Store, opened, clock.now(), opened_at.saturating_sub(began))];
    store.note_startup(&owner_id, &steps, None).await?;
    // We have the lock of the home: whatever an earlier server of it still has under way is refused from here on.
    store.supersede_owners(&home.id, &owner_id, now).await?;
    let shared = store.seat().is_some();
    let fence = if shared {
        Fence::of_owner(owner_id)
    } else {
        // Forced: the lock on the home proves that the former holder is gone.
        let epoch = store.take_leadership(&owner_id, lease_until, now, true).await?;
        Fence { owner_id, epoch }
    };
    let message =
        if shared { "Server started".to_owned() } else { format!("Server started (epoch {})", fence.epoch) };
    let event = NewEvent::new(EventType::ServerStarted, Source::System, message).details(json!({
        "owner_id": fence.owner_id,
        "epoch": if shared { None } else { Some(fence.epoch) },
        "version": parhelia_core::VERSION,
        "home_id": home.id,
    }));
    store.announce(&fence, vec![event], now).await?;
    let led = if shared {
        "an owner; the lead is up to the election".to_owned()
    } else {
        format!("leads in epoch {}", fence.epoch)
    };
    let took = clock.monotonic().saturating_sub(opened_at);
    steps.push(startup::report(StartStep::Leadership, Said::ok(led), clock.now(), took));
    store.note_startup(&fence.owner_id, &steps, None).await?;
    Ok((Led { fence, instance_id, started_at: now }, steps))
}

/// This machine, and this run of it.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
