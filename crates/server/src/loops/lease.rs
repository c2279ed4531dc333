//! Keeps this server's one lease. On SQLite it keeps the lead with it: there the lock on the home is the proof,
//! and the lease is for readers. On a shared database the lead is kept by `election`.

use std::time::Duration;

use parhelia_core::time::plus_seconds;
use parhelia_store::StoreError;
use tokio::sync::watch;
use tracing::error;

use super::driver::Ended;
use super::{Context, stopped};

pub use parhelia_core::session::LEASE_SECONDS;

const RENEW: Duration = Duration::from_secs(20);
/// After a failure: others watch the lease, and may be able to look before we can write.
const RETRY: Duration = Duration::from_secs(1);

pub async fn run(context: Context, leads: bool, mut shutdown: watch::Receiver<bool>) -> Ended {
    let meter = context.metrics.loops.meter("lease", "");
    let mut pause = RENEW;
    loop {
        tokio::select! {
            () = stopped(&mut shutdown) => return Ended::Shutdown,
            () = tokio::time::sleep(pause) => {}
        }
        let until = plus_seconds(context.clock.now(), LEASE_SECONDS);
        let renewed = async {
            if leads {
                context.store.renew_leadership(&context.fence, until).await?;
            }
            context.store.renew_owner(&context.fence.owner_id, until).await
        };
        let pass = meter.begin(context.clock.as_ref());
        let renewed = renewed.await;
        pass.end(renewed.is_ok());
        match renewed {
            Ok(()) => pause = RENEW,
            Err(StoreError::Fenced { .. } | StoreError::Conflict { .. }) => return Ended::Fenced,
            Err(e) => {
                error!(error = %e, "the lease could not be renewed; trying again");
                pause = RETRY;
            }
        }
    }
}
