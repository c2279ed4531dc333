//! Following the history: every event once, in order, without a gap, from any place in it.
//!
//! A reader that must not lose its place across restarts keeps [`Tail::position`] durably once it has dealt with a
//! batch, and begins there with [`Tail::from`]: then it sees every event at least once.

use std::time::Duration;

use parhelia_core::event::Event;
use parhelia_store::{EventFilter, Result, Store};
use tokio::sync::watch;
use tracing::warn;

/// At most this many events in a batch.
pub(super) const PAGE: usize = 500;
/// Looks without having been told; the store tells of every commit, so this is only a net.
const LOOK: Duration = Duration::from_secs(30);
/// While the store cannot be read.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The next events of the history, in order.
#[derive(Debug, Default)]
pub struct Batch {
    pub events: Vec<Event>,
    /// Retention was faster than this reader: what came between is no longer kept.
    pub lost: Option<Lost>,
}

/// Events that nobody can read any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// The reader had everything up to here.
    pub after: i64,
    /// The first event that is still kept. Ids are not always used without holes, so it may be that nothing came
    /// between the two; it cannot be known.
    pub oldest: i64,
}

/// A place in the history, and the way onwards.
#[derive(Debug)]
pub struct Tail {
    store: Store,
    after: i64,
    commits: watch::Receiver<i64>,
}

impl Tail {
    /// Goes on after the event with this id; 0 is the beginning, wherever that is by now.
    pub fn from(store: &Store, after: i64) -> Self {
        Self { store: store.clone(), after, commits: store.subscribe_commits() }
    }

    /// What happens from now on.
    pub async fn from_now(store: &Store) -> Result<Self> {
        Ok(Self::from(store, store.last_event_id().await?))
    }

    /// Everything up to here has been given out.
    pub fn position(&self) -> i64 {
        self.after
    }

    /// Waits for the next events. A store that cannot be read is asked again, with growing pauses, and nothing is
    /// passed over. May be dropped while it waits.
    pub async fn next(&mut self) -> Batch {
        let mut pause = FIRST_PAUSE;
        loop {
            // Marked before reading: what commits after the read wakes us.
            self.commits.borrow_and_update();
            match self.page().await {
                Ok(batch) if batch.events.is_empty() && batch.lost.is_none() => {
                    pause = FIRST_PAUSE;
                    tokio::select! {
                        told = self.commits.changed() => if told.is_err() {
                            // The store is closed. Whoever holds us is about to be told so.
                            tokio::time::sleep(LONGEST_PAUSE).await;
                        },
                        () = tokio::time::sleep(LOOK) => {}
                    }
                }
                Ok(batch) => return batch,
                Err(e) => {
                    warn!(error = %e, after = self.after, "the history cannot be read; it is tried again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// What is there now, at most a page of it; empty at the end of the history. The position moves only with
    /// what is given.
    pub async fn page(&mut self) -> Result<Batch> {
        let filter =
            EventFilter { after_id: Some(self.after), limit: Some(PAGE as i64), ..EventFilter::default() };
        let events = self.store.events(&filter).await?;
        let lost = match events.first() {
            Some(first) if self.after > 0 && first.id > self.after + 1 => self.lost(first.id).await?,
            _ => None,
        };
        if let Some(last) = events.last() {
            self.after = last.id;
        }
        Ok(Batch { events, lost })
    }

    /// Retention deletes the oldest first: while anything at or before our place is kept, nothing after it is gone.
    async fn lost(&self, next: i64) -> Result<Option<Lost>> {
        let oldest = self.store.first_event_id().await?;
        let whole = oldest != 0 && oldest <= self.after;
        Ok((!whole).then_some(Lost { after: self.after, oldest: next }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test the panic is the message")]
mod tests {
    use parhelia_core::Timestamp;
    use parhelia_core::event::{EventType, NewEvent, Source};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn events(n: usize) -> Vec<NewEvent> {
        (0..n).map(|i| NewEvent::new(EventType::ServerStarted, Source::System, format!("{i}"))).collect()
    }

    async fn store() -> (Store, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        (Store::open_sqlite(&dir.path().join("db")).unwrap(), dir)
    }

    #[tokio::test]
    async fn every_event_comes_once_and_in_order_however_many_writers_there_are() {
        let (store, _dir) = store().await;
        let mut tail = Tail::from_now(&store).await.unwrap();
        let writers: Vec<_> = (0..8)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move {
                    for _ in 0..100 {
                        store.append_events(events(3), at(0)).await.unwrap();
                    }
                })
            })
            .collect();
        let mut seen = Vec::new();
        while seen.len() < 2400 {
            let batch = tail.next().await;
            assert_eq!(batch.lost, None);
            assert!(batch.events.len() <= PAGE);
            seen.extend(batch.events.iter().map(|e| e.id));
        }
        for writer in writers {
            writer.await.unwrap();
        }
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!((seen.len(), tail.position()), (2400, store.last_event_id().await.unwrap()));
        assert!(tail.page().await.unwrap().events.is_empty());
    }

    #[tokio::test]
    async fn what_retention_has_taken_is_told_and_an_empty_beginning_is_not() {
        let (store, _dir) = store().await;
        store.append_events(events(10), at(0)).await.unwrap();
        store.append_events(events(10), at(100)).await.unwrap();
        assert_eq!(Tail::from(&store, 0).page().await.unwrap().lost, None);
        store.delete_old_events(at(50), 100).await.unwrap();
        let mut late = Tail::from(&store, 4);
        let batch = late.page().await.unwrap();
        assert_eq!(batch.lost, Some(Lost { after: 4, oldest: 11 }));
        assert_eq!((batch.events.len(), late.position()), (10, 20));
        // One who had everything up to the hole has lost nothing, nor has one who asks for what there is.
        assert_eq!(Tail::from(&store, 0).page().await.unwrap().lost, None);
        assert_eq!(Tail::from(&store, 10).page().await.unwrap().lost, None);
        assert_eq!(Tail::from(&store, 12).page().await.unwrap().lost, None);
    }
}
