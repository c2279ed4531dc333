//! Who leads, where several servers share a database. The seat (an advisory lock) shows a death at once, the
//! lease a frozen leader; the epoch of the `leadership` row is what fences. While it does not lead, a server
//! serves the API and reconciles its own home, and nothing else.

use std::time::Duration;

use parhelia_core::Timestamp;
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::time::plus_seconds;
use parhelia_store::postgres::{Seat, Seated};
use parhelia_store::{Fence, StoreError};
use serde_json::json;
use tokio::sync::watch;
use tracing::{info, warn};

use super::driver::Ended;
use super::{Context, stopped};

/// After the database could not be asked.
const PAUSE: Duration = Duration::from_secs(1);

/// The lead of this server, while it has it.
pub type Lead = watch::Receiver<Option<Fence>>;

#[derive(Debug)]
pub struct Election {
    pub context: Context,
    pub seat: Seat,
    pub home_id: String,
    pub lead: watch::Sender<Option<Fence>>,
    /// The last epoch in which a loop was fenced. Of an epoch, and not a bell: what is told late about a former
    /// lead must not cost the next one.
    pub fenced: watch::Receiver<i64>,
}

impl Election {
    /// Shorter than an owner's: everybody waits for it when a leader freezes.
    fn lease(&self) -> Duration {
        Duration::from_secs(self.context.config.server.leader_lease_seconds)
    }

    fn renew_every(&self) -> Duration {
        self.lease() * 3 / 10
    }

    fn lease_until(&self, now: Timestamp) -> Timestamp {
        plus_seconds(now, i64::try_from(self.lease().as_secs()).unwrap_or(i64::MAX))
    }

    pub async fn run(self, mut shutdown: watch::Receiver<bool>) -> Ended {
        loop {
            tokio::select! {
                () = stopped(&mut shutdown) => {
                    self.lead.send_replace(None);
                    return Ended::Shutdown;
                }
                () = self.stand() => {}
            }
        }
    }

    /// One candidature: waits for the seat, leads, and loses the lead again.
    async fn stand(&self) {
        let mut seated = match self.seat.take(self.lease()).await {
            Ok(seated) => seated,
            Err(error) => {
                warn!(%error, "cannot stand for election; trying again");
                return tokio::time::sleep(PAUSE).await;
            }
        };
        match self.take().await {
            Ok(fence) => {
                info!(epoch = fence.epoch, "this server leads");
                self.lead.send_replace(Some(fence.clone()));
                let why = self.hold(&fence, &mut seated).await;
                self.lead.send_replace(None);
                warn!(epoch = fence.epoch, "this server no longer leads: {why}");
            }
            Err(error) => {
                warn!(%error, "the seat was free and the lead could not be taken; trying again");
                drop(seated);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// By force: the seat proves that the former leader is dead, or was unseated because it had not renewed.
    async fn take(&self) -> Result<Fence, StoreError> {
        let Context { store, clock, fence, .. } = &self.context;
        let now = clock.now();
        let until = self.lease_until(now);
        let epoch = store.take_leadership(&fence.owner_id, until, now, true).await?;
        let led = Fence { owner_id: fence.owner_id.clone(), epoch };
        let event = NewEvent::new(
            EventType::LeaderElected,
            Source::System,
            format!("Leader elected (epoch {epoch})"),
        )
        .details(json!({ "owner_id": led.owner_id, "epoch": epoch, "home_id": self.home_id }));
        store.announce(&led, vec![event], now).await?;
        Ok(led)
    }

    /// Renews until it must not lead any more; gives why.
    async fn hold(&self, fence: &Fence, seated: &mut Seated) -> &'static str {
        let Context { store, clock, .. } = &self.context;
        let meter = self.context.metrics.loops.meter("election", "");
        let mut renewed = clock.monotonic();
        let mut fenced = self.fenced.clone();
        loop {
            tokio::select! {
                () = seated.lost() => return "its connection to the database is gone",
                Ok(_) = fenced.wait_for(|epoch| *epoch == fence.epoch) => return "a write of it was refused",
                () = tokio::time::sleep(self.renew_every()) => {}
            }
            let until = self.lease_until(clock.now());
            let asked = clock.monotonic();
            let renewal = tokio::time::timeout(self.renew_every(), store.renew_leadership(fence, until));
            let pass = meter.begin(clock.as_ref());
            let renewal = renewal.await;
            pass.end(matches!(renewal, Ok(Ok(()))));
            match renewal {
                Ok(Ok(())) => renewed = asked,
                Ok(Err(StoreError::Fenced { .. } | StoreError::Conflict { .. })) => {
                    return "another has taken over";
                }
                Ok(Err(error)) => warn!(%error, "the lead could not be renewed; trying again"),
                Err(_) => warn!("the lead could not be renewed in time; trying again"),
            }
            if clock.monotonic().saturating_sub(renewed) >= self.lease() {
                return "its lease has run out";
            }
        }
    }
}
