//! Carries what waits for one alert to its receiver. Each alert has a courier of its own, so a receiver that is slow
//! or gone holds up nobody else. An attempt is claimed before it is made and recorded after: whatever ends the server
//! in between, the delivery is made again under the same id.

use std::sync::Arc;
use std::time::Duration;

use parhelia_core::alert::{self, Delivery, DeliveryState, Verdict};
use parhelia_core::event::Event;
use parhelia_core::ids::DeliveryId;
use parhelia_core::notice::Notice;
use parhelia_core::time::seconds_between;
use parhelia_store::{Attempted, EventFilter, StoreError};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use super::post::{Post, Reply};
use crate::loops::driver::Ended;
use crate::loops::{Context, stopped};

/// Requests to one receiver at once.
const AT_ONCE: usize = 4;
/// Looks without having been told.
const LOOK: Duration = Duration::from_secs(30);
/// While the store cannot be read or written.
const PAUSE: Duration = Duration::from_secs(1);
/// What requests under way get to finish when the server stops. What does not is made again by the next one.
const LAST_PATIENCE: Duration = Duration::from_secs(3);

pub(super) struct Courier {
    pub(super) context: Context,
    pub(super) post: Arc<Post>,
    /// Rung when something new waits.
    pub(super) bell: Arc<Notify>,
}

/// What the next look waits for.
enum Next {
    At(Duration),
    /// Every place is taken.
    Return,
}

impl Courier {
    pub(super) async fn run(self, mut stopping: watch::Receiver<bool>) -> Ended {
        let courier = Arc::new(self);
        let mut away: JoinSet<Result<(), StoreError>> = JoinSet::new();
        let mut doubtful = Vec::new();
        loop {
            let next = match courier.send_out(&mut away, &mut doubtful).await {
                Ok(next) => next,
                Err(StoreError::Fenced { .. }) => return Ended::Fenced,
                Err(error) => {
                    warn!(alert = courier.post.alert.name, %error, "deliveries wait for the store");
                    Next::At(PAUSE)
                }
            };
            let pause = match next {
                Next::At(pause) => pause,
                Next::Return => LOOK,
            };
            tokio::select! {
                () = stopped(&mut stopping) => {
                    let all = async { while away.join_next().await.is_some() {} };
                    let _ = tokio::time::timeout(LAST_PATIENCE, all).await;
                    return Ended::Shutdown;
                }
                Some(back) = away.join_next() => match back {
                    Ok(Err(StoreError::Fenced { .. })) => return Ended::Fenced,
                    Ok(_) => {}
                    Err(lost) if lost.is_panic() => std::panic::resume_unwind(lost.into_panic()),
                    Err(_) => {}
                },
                () = courier.bell.notified(), if matches!(next, Next::At(_)) => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Claims what is due, as far as there are places, and sends it on its way.
    async fn send_out(
        self: &Arc<Self>,
        away: &mut JoinSet<Result<(), StoreError>>,
        doubtful: &mut Vec<(DeliveryId, i64)>,
    ) -> Result<Next, StoreError> {
        let Context { store, fence, clock, .. } = &self.context;
        while let Some((id, attempt)) = doubtful.last() {
            store.release_delivery(fence, id, *attempt, clock.now()).await?;
            doubtful.pop();
        }
        let free = AT_ONCE.saturating_sub(away.len());
        if free == 0 {
            return Ok(Next::Return);
        }
        let waiting = store.pending_deliveries(&self.post.alert.name, free as i64).await?;
        let now = clock.now();
        let (due, next) = alert::due(waiting, &self.post.alert.retry_seconds, now);
        let more = due.len() == free;
        for delivery in due {
            match store.claim_delivery(fence, &delivery, now).await {
                Ok(()) => drop(away.spawn(self.clone().carry(delivery))),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => {
                    // It may have been claimed all the same.
                    doubtful.push((delivery.id, delivery.attempts + 1));
                    return Err(error);
                }
            }
        }
        Ok(match next {
            _ if away.len() >= AT_ONCE => Next::Return,
            _ if more => Next::At(Duration::from_millis(10)),
            Some(at) => {
                Next::At(Duration::from_secs_f64(seconds_between(now, at).clamp(0.01, LOOK.as_secs_f64())))
            }
            None => Next::At(LOOK),
        })
    }

    /// One attempt, which has been claimed.
    async fn carry(self: Arc<Self>, delivery: Delivery) -> Result<(), StoreError> {
        let attempt = delivery.attempts + 1;
        let event = self.event(delivery.event_id).await;
        let now = self.context.clock.now();
        let (reply, verdict) = match &event {
            Some(event) => {
                let notice = Notice::of(event.clone());
                let reply = self.post.send(&notice, delivery.id.as_str(), attempt, now).await;
                let now = self.context.clock.now();
                let verdict = alert::judge(reply.status, attempt, &self.post.alert.retry_seconds, now);
                (reply, verdict)
            }
            None => (
                Reply { error: Some("the event is no longer kept".to_owned()), ..Reply::default() },
                Verdict::Failed,
            ),
        };
        self.record(&delivery, attempt, event.as_ref(), &reply, verdict).await
    }

    /// `None`: retention has taken it.
    async fn event(&self, id: i64) -> Option<Event> {
        let filter = EventFilter { after_id: Some(id - 1), limit: Some(1), ..EventFilter::default() };
        loop {
            match self.context.store.events(&filter).await {
                Ok(found) => return found.into_iter().find(|event| event.id == id),
                Err(error) => {
                    warn!(%error, id, "an event to be delivered cannot be read; trying again");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Until it is written, or somebody else's to write.
    async fn record(
        &self,
        delivery: &Delivery,
        attempt: i64,
        event: Option<&Event>,
        reply: &Reply,
        verdict: Verdict,
    ) -> Result<(), StoreError> {
        let Context { store, fence, clock, .. } = &self.context;
        let (name, status) = (&delivery.alert, reply.status.map(i64::from));
        let outcome = |state, next_attempt_at, error| Attempted { state, status, error, next_attempt_at };
        let (outcome, told) = match verdict {
            Verdict::Delivered => {
                debug!(alert = name, delivery = %delivery.id, attempt, "delivered");
                (outcome(DeliveryState::Delivered, None, None), None)
            }
            Verdict::Again { at } => {
                let why = reply.trouble();
                info!(alert = name, delivery = %delivery.id, attempt, again_at = %at, "not delivered: {why}");
                (outcome(DeliveryState::Pending, Some(at), Some(why)), None)
            }
            Verdict::Failed => {
                let why = reply.trouble();
                warn!(alert = name, delivery = %delivery.id, attempt, "not delivered, for good: {why}");
                let told = alert::failed(delivery, event, attempt, &why);
                (outcome(DeliveryState::Failed, None, Some(why)), told)
            }
        };
        loop {
            let recorded =
                store.record_attempt(fence, &delivery.id, attempt, &outcome, told.clone(), clock.now()).await;
            match recorded {
                // A conflict: an earlier try went through although its answer was lost.
                Ok(()) | Err(StoreError::Conflict { .. }) => return Ok(()),
                Err(fenced @ StoreError::Fenced { .. }) => return Err(fenced),
                Err(error) => {
                    warn!(%error, delivery = %delivery.id, "the outcome of a delivery cannot be recorded; trying again");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}
