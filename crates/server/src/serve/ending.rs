//! How a server comes to its end, and what it still does then.

use std::time::Duration;

use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::time::Clock;
use parhelia_store::{Fence, Store};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use super::{STOP_PATIENCE, ServeError, ServeOptions};
use crate::loops::driver::Ended;
use crate::loops::stopped;
use crate::service::Service;

/// Ctrl-C or SIGTERM, from here on: heard once, whoever asks.
pub(super) fn asked_to_stop() -> watch::Receiver<bool> {
    let (tell, heard) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate()).ok();
    tokio::spawn(async move {
        let terminated = async {
            match &mut terminate {
                Some(signal) => drop(signal.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            () = terminated => {}
        }
        tell.send_replace(true);
    });
    heard
}

/// Gives the reason when it is not an ordinary end.
pub(super) async fn wait_for_end(
    options: &ServeOptions,
    service: &Service,
    ring: &Notify,
    asked: &mut watch::Receiver<bool>,
    loops: &mut JoinSet<Ended>,
) -> Option<ServeError> {
    tokio::select! {
        () = stopped(asked) => None,
        () = ring.notified() => None,
        () = idle(options, service) => None,
        ended = loops.join_next() => {
            // No loop ends by itself: either the lead is lost, or it panicked. Both mean: stop, and let the
            // next server start afresh from the store.
            error!(?ended, "a control loop has ended");
            match ended {
                Some(Ok(Ended::Fenced)) => Some(ServeError::Fenced),
                other => Some(ServeError::LoopFailed(format!("{other:?}"))),
            }
        }
    }
}

/// Ends when a server that was started on demand is no longer needed.
async fn idle(options: &ServeOptions, service: &Service) {
    if !options.on_demand {
        return std::future::pending().await;
    }
    let limit = options.config.server.idle_exit_seconds as f64;
    loop {
        let left = limit - service.seconds_since_asked();
        if left > 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(left.clamp(0.05, 60.0))).await;
            continue;
        }
        match service.has_work().await {
            Ok(false) => {
                info!("nothing is running and nobody has asked for {limit}s: leaving");
                return;
            }
            _ => tokio::time::sleep(Duration::from_secs_f64(limit.clamp(0.05, 60.0))).await,
        }
    }
}

pub(super) async fn finish(mut doors: JoinSet<()>, mut loops: JoinSet<Ended>) {
    let all = async {
        while doors.join_next().await.is_some() {}
        while loops.join_next().await.is_some() {}
    };
    if tokio::time::timeout(STOP_PATIENCE, all).await.is_err() {
        warn!("some work did not finish in time; the next start completes it");
    }
}

pub(super) async fn end(
    store: &Store,
    fence: &Fence,
    trouble: Option<ServeError>,
    clock: &dyn Clock,
) -> Result<(), ServeError> {
    if let Some(trouble) = trouble {
        return Err(trouble);
    }
    let event =
        NewEvent::new(EventType::ServerStopped, Source::System, "Server stopped; the sandboxes go on")
            .details(json!({ "owner_id": fence.owner_id, "epoch": fence.epoch }));
    store.end_owner(&fence.owner_id, clock.now(), event).await?;
    store.close().await?;
    info!("stopped; the sandboxes go on");
    Ok(())
}
