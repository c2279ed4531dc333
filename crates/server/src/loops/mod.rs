//! The control loops. Each has one `pass` that observes, lets `core` decide, and acts; what drives the
//! passes (timers, hints, requests) is in `driver`, so that the simulation can call them on its own time.

pub mod driver;
pub mod election;
pub mod guests;
pub mod health;
pub mod jobs;
pub mod lease;
pub mod reconciler;
pub mod retention;
pub mod sessions;
pub mod vitals;

use std::sync::Arc;

use parhelia_core::config::Config;
use parhelia_core::time::Clock;
use parhelia_store::{Fence, Store};
use tokio::sync::watch;

use self::health::Observer;
use crate::entropy::Entropy;
use crate::metrics::Metrics;

/// What every loop needs: the store with the right to write to it, the settings, and the edge.
#[derive(Debug, Clone)]
pub struct Context {
    pub store: Store,
    pub fence: Fence,
    pub config: Arc<Config>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    /// Whom this server has heard, and how long it has been listening.
    pub observer: Arc<Observer>,
    pub metrics: Arc<Metrics>,
}

/// Returns when the server is to stop.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is as good as a stop. The guard must not outlive this.
    let _ = stopping.wait_for(|stop| *stop).await;
}
