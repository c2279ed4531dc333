//! One reader of the tail for all live streams of this server: an event is read and rendered once, however many
//! listen. What it reads goes into a bounded ring; a stream that falls behind it is told to resume, and nobody
//! waits for anybody.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use parhelia_core::event::Event;
use parhelia_store::{Result, Store};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tracing::warn;

use super::sse;
use super::tail::{Batch, Lost, Tail};
use crate::loops::driver::Ended;
use crate::loops::stopped;
use crate::metrics::History;

/// Events that a stream may be behind.
const RING: usize = 4096;
/// Pages that streams which catch up may read at once: the hub's own reads find a free connection.
const CATCHING_UP: usize = 2;

/// What goes round.
#[derive(Debug)]
pub(super) enum News {
    /// An event, and its text for every client.
    Event(Box<Event>, Bytes),
    /// The hub itself was away from the store for longer than that keeps events.
    Lost(Lost),
}

/// The right to one stream.
#[derive(Debug)]
pub struct Place(#[allow(dead_code, reason = "held, and given back when dropped")] OwnedSemaphorePermit);

#[derive(Debug)]
pub struct Hub {
    pub(super) store: Store,
    ring: broadcast::Sender<Arc<News>>,
    /// Everything up to here has gone into the ring, or is about to.
    sent: AtomicI64,
    places: Arc<Semaphore>,
    streams: usize,
    pub(super) history: History,
    pub(super) catching_up: Semaphore,
}

impl Hub {
    /// Begins after that event. The tail is for [`Hub::run`].
    pub fn new(store: &Store, after: i64, streams: usize, history: History) -> (Arc<Self>, Tail) {
        let tail = Tail::from(store, after);
        let hub = Self {
            store: store.clone(),
            ring: broadcast::Sender::new(RING),
            sent: AtomicI64::new(after),
            places: Arc::new(Semaphore::new(streams)),
            streams,
            history,
            catching_up: Semaphore::new(CATCHING_UP),
        };
        (Arc::new(hub), tail)
    }

    /// Follows the tail until the server stops.
    pub async fn run(self: Arc<Self>, mut tail: Tail, mut stopping: watch::Receiver<bool>) -> Ended {
        loop {
            let batch = tokio::select! {
                () = stopped(&mut stopping) => return Ended::Shutdown,
                batch = tail.next() => batch,
            };
            self.pass_on(batch);
        }
    }

    fn pass_on(&self, Batch { events, lost }: Batch) {
        if let Some(lost) = lost {
            warn!(after = lost.after, oldest = lost.oldest, "events were deleted before they could be told");
            let _ = self.ring.send(Arc::new(News::Lost(lost)));
        }
        for event in events {
            self.history.event(event.event_type);
            // Before it is sent: whoever subscribes afterwards reads that far from the store.
            self.sent.store(event.id, Ordering::SeqCst);
            if self.ring.receiver_count() > 0 {
                let text = sse::event(&event);
                let _ = self.ring.send(Arc::new(News::Event(Box::new(event), text)));
            }
        }
    }

    /// Everything from now on, and up to where one must have read to miss nothing.
    pub(super) fn join(&self) -> (broadcast::Receiver<Arc<News>>, i64) {
        let ring = self.ring.subscribe();
        (ring, self.sent.load(Ordering::SeqCst))
    }

    /// The newest event that a client can have heard of.
    pub(super) async fn newest(&self) -> Result<i64> {
        // The store alone would say 0 when everything is old enough to have been deleted.
        Ok(self.store.last_event_id().await?.max(self.sent.load(Ordering::SeqCst)))
    }

    /// How many streams are open.
    pub(crate) fn streams(&self) -> usize {
        self.streams.saturating_sub(self.places.available_permits())
    }

    /// A place for one more stream, if there is one.
    pub fn place(&self) -> Option<Place> {
        self.places.clone().try_acquire_owned().ok().map(Place)
    }
}
