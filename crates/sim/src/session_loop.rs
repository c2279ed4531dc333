//! The sessions loop of one simulated server: the real one, a turn at a time, and its owner's lease.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parhelia_core::time::{Clock, plus_seconds};
use parhelia_server::loops::lease::LEASE_SECONDS;
use parhelia_server::loops::sessions::SessionsLoop;
use parhelia_server::relay::Tail;
use parhelia_server::service::Service;
use parhelia_store::{Store, StoreError};

use crate::interrupt::Work;

/// As the loops have it.
const RENEW: Duration = Duration::from_secs(20);
const LOOK_AT_ALL: Duration = Duration::from_secs(300);
/// After a store that did not answer.
const PAUSE: Duration = Duration::from_secs(1);
const NEVER: Duration = Duration::from_secs(u32::MAX as u64);

/// A turn that is over, and the loop that made it.
pub(crate) struct Turn {
    looper: SessionsLoop,
    tail: Tail,
    pub(crate) went: Result<Option<Timestamp>, StoreError>,
}

#[derive(Debug)]
pub(crate) struct Sessions {
    /// With the turn while one is under way.
    idle: Option<(SessionsLoop, Tail)>,
    /// Left in the middle.
    pub(crate) under_way: Option<Work<Turn>>,
    pub(crate) next_turn: Duration,
    all_at: Duration,
    leased_at: Duration,
}

impl Sessions {
    pub(crate) async fn start(
        store: &Store,
        service: Arc<Service>,
        now: Duration,
    ) -> Result<Self, StoreError> {
        let tail = Tail::from_now(store).await?;
        let idle = Some((SessionsLoop::new(service), tail));
        Ok(Self { idle, under_way: None, next_turn: now, all_at: now, leased_at: now })
    }

    /// The lease is kept while there is something to keep it for.
    fn lease_due(&self, now: Duration) -> bool {
        now >= self.leased_at + RENEW
    }

    /// Goes on with the turn that was left, or begins the next one.
    pub(crate) fn turn(
        &mut self,
        store: &Store,
        owner: &str,
        clock: Arc<dyn Clock>,
        heirs: bool,
    ) -> Option<Work<Turn>> {
        if let Some(left) = self.under_way.take() {
            return Some(left);
        }
        let now = clock.monotonic();
        let (mut looper, mut tail) = self.idle.take()?;
        let (renew, all) = (self.lease_due(now), now >= self.all_at);
        if renew {
            self.leased_at = now;
        }
        if all {
            self.all_at = now + LOOK_AT_ALL;
        }
        let (store, owner) = (store.clone(), owner.to_owned());
        Some(Work::new(async move {
            if renew {
                let until = plus_seconds(clock.now(), LEASE_SECONDS);
                // What cannot be asked is asked again; who has ended must not go on.
                if let Err(StoreError::Conflict { .. }) = store.renew_owner(&owner, until).await {
                    return Turn { looper, tail, went: Err(StoreError::Fenced { script: "renew_owner" }) };
                }
            }
            let went = looper.turn(&mut tail, heirs, all).await;
            Turn { looper, tail, went }
        }))
    }

    /// `busy`: there are sessions that are not over, so that its lease matters.
    pub(crate) fn done(&mut self, turn: Turn, clock: &dyn Clock, busy: bool) {
        let now = clock.monotonic();
        let mut next = if busy { self.leased_at + RENEW } else { NEVER };
        match turn.went {
            Ok(wake) => {
                if let Some(at) = wake {
                    let left = at.duration_since(clock.now()).as_millis().max(0);
                    next = next.min(now + Duration::from_millis(u64::try_from(left).unwrap_or(0) + 1));
                }
                next = if busy { next.min(self.all_at) } else { next };
            }
            Err(_) => {
                self.all_at = now;
                next = now + PAUSE;
            }
        }
        self.idle = Some((turn.looper, turn.tail));
        self.next_turn = next.max(now + Duration::from_millis(1));
    }

    /// Something was said that may matter.
    pub(crate) fn hint(&mut self, at: Duration) {
        self.next_turn = self.next_turn.min(at);
    }

    /// It has kept its lease all the while that nobody asked for it.
    pub(crate) fn leased(&mut self, now: Duration) {
        self.leased_at = now;
    }
}
