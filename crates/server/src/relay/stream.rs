//! One live stream: an opening, a snapshot if it is wanted, what was missed from the store in pages, then the
//! hub's ring. A task of its own writes into a small bounded buffer; a client that takes nothing holds up that
//! task and nobody else.
//!
//! Without a gap or a repeat: the cursor moves only when what it covers is in the client's buffer, and everything
//! at or before the cursor is left out.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use parhelia_core::event::Event;
use parhelia_core::interest::Interest;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};
use tracing::debug;

use super::hub::{Hub, News, Place};
use super::sse;
use super::tail::{Lost, PAGE, Tail};
use crate::loops::stopped;
use crate::service::{ListQuery, Service, ServiceError};

/// Pieces that wait for a client to take them.
const BUFFER: usize = 4;
/// How large a piece may grow by gathering events.
const PIECE_BYTES: usize = 16 << 10;
/// How often it is asked whether the token still holds.
const RECHECK: Duration = Duration::from_secs(2);
/// While the store cannot be read.
const PAUSE: Duration = Duration::from_millis(500);
/// For a client to take the last words when the server stops.
const FAREWELL: Duration = Duration::from_millis(500);

/// What a client asks for.
#[derive(Debug, Clone, Default)]
pub struct Follow {
    pub interest: Interest,
    /// The last event that it has.
    pub after: Option<i64>,
    pub snapshot: bool,
}

/// Who listens.
#[derive(Debug)]
pub struct Watcher {
    pub place: Place,
    /// The hash of the token that was presented; none where nothing can be revoked.
    pub token: Option<[u8; 32]>,
    pub heartbeat: Duration,
    /// How long a client may take for the last words to it.
    pub patience: Duration,
}

/// Why a stream is over.
#[derive(Debug)]
enum End {
    Gone,
    Stopping,
    Refused,
    Behind,
}

struct Stream {
    hub: Arc<Hub>,
    service: Arc<Service>,
    follow: Follow,
    to: mpsc::Sender<Bytes>,
    /// Everything that this client wanted, up to here, is in its buffer.
    cursor: i64,
    heartbeat: Interval,
}

impl Hub {
    /// Opens a stream. What it says comes through the receiver; dropping that ends it. `hang_up` is called when it is
    /// over and the client has had its time to take the last words.
    pub async fn follow(
        self: &Arc<Self>,
        service: &Arc<Service>,
        follow: Follow,
        watcher: Watcher,
        hang_up: impl FnOnce() + Send + 'static,
    ) -> Result<mpsc::Receiver<Bytes>, ServiceError> {
        let newest = self.newest().await?;
        if let Some(after) = follow.after.filter(|after| !(0..=newest).contains(after)) {
            return Err(ServiceError::invalid(
                format!("there is no event {after} to go on after: the newest is {newest}"),
                "send the id of an event of this server, or none to begin now",
            ));
        }
        let (to, from) = mpsc::channel(BUFFER);
        let mut heartbeat = interval(watcher.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick comes at once, and the opening is enough of a sign.
        heartbeat.tick().await;
        let cursor = follow.after.unwrap_or(newest);
        let stream = Stream { hub: self.clone(), service: service.clone(), follow, to, cursor, heartbeat };
        let mut first = BytesMut::from(&*sse::opening(cursor));
        // One who resumes has what a snapshot would show.
        if stream.follow.snapshot && stream.follow.after.is_none() {
            first.extend_from_slice(&stream.snapshot(cursor).await?);
        }
        // The buffer is empty: there is room.
        let _ = stream.to.try_send(first.freeze());
        tokio::spawn(stream.run(watcher, hang_up));
        Ok(from)
    }
}

impl Stream {
    async fn run(mut self, watcher: Watcher, hang_up: impl FnOnce()) {
        let Watcher { place, token, patience, .. } = watcher;
        let (to, service) = (self.to.clone(), self.service.clone());
        let end = tokio::select! {
            end = reason_to_end(&to, &service, token) => end,
            Err(end) = self.tell() => end,
        };
        debug!(?end, cursor = self.cursor, "a stream has ended");
        let words = match end {
            End::Gone => return,
            End::Stopping => {
                self.hub.history.told_to_resume("stopping");
                sse::resume(self.cursor, "the server stops: come again and go on from here")
            }
            End::Refused => sse::refused(),
            End::Behind => {
                self.hub.history.told_to_resume("behind");
                sse::resume(self.cursor, "too slow for what happens: come again and go on from here")
            }
        };
        let mut stopping = service.shutdown.clone();
        drop(self);
        let farewell = async move {
            let _ = to.send(words).await;
            drop((to, place));
            sleep(patience).await;
        };
        let stop = async {
            stopped(&mut stopping).await;
            sleep(FAREWELL).await;
        };
        tokio::select! {
            () = farewell => {}
            () = stop => {}
        }
        hang_up();
    }

    /// Only ends with a reason to end.
    async fn tell(&mut self) -> Result<std::convert::Infallible, End> {
        let mut ring = self.catch_up().await?;
        loop {
            tokio::select! {
                heard = ring.recv() => match heard {
                    Ok(news) => self.pass_on(news, &mut ring).await?,
                    Err(RecvError::Lagged(_)) => return Err(End::Behind),
                    Err(RecvError::Closed) => return Err(End::Stopping),
                },
                _ = self.heartbeat.tick() => self.beat().await?,
            }
        }
    }

    /// From the store, in pages, until the ring has all the rest.
    async fn catch_up(&mut self) -> Result<broadcast::Receiver<Arc<News>>, End> {
        let mut tail = Tail::from(&self.hub.store, self.cursor);
        // While it is far behind there is no use in the ring: that would overflow meanwhile.
        while self.page(&mut tail).await? >= PAGE {}
        let (ring, goal) = self.hub.join();
        while tail.position() < goal && self.page(&mut tail).await? > 0 {}
        Ok(ring)
    }

    /// The next page of what was missed; how many events there were.
    async fn page(&mut self, tail: &mut Tail) -> Result<usize, End> {
        let batch = loop {
            let page = match self.hub.catching_up.acquire().await {
                Ok(_turn) => tail.page().await,
                Err(_) => return Err(End::Stopping),
            };
            match page {
                Ok(batch) => break batch,
                Err(e) => self.wait_for_the_store(&e.into()).await?,
            }
        };
        if let Some(lost) = batch.lost {
            self.reset(lost).await?;
            *tail = Tail::from(&self.hub.store, self.cursor);
            return Ok(PAGE);
        }
        let mut piece = Piece::after(self.cursor);
        for event in &batch.events {
            if piece.take(event, &self.follow.interest) {
                piece.text.extend_from_slice(&sse::event(event));
            }
            if piece.text.len() >= PIECE_BYTES {
                self.put(&mut piece).await?;
            }
        }
        self.put(&mut piece).await?;
        if self.heartbeat.tick().now_or_never().is_some() {
            self.beat().await?;
        }
        Ok(batch.events.len())
    }

    /// One piece of news, and what else waits in the ring.
    async fn pass_on(
        &mut self,
        first: Arc<News>,
        ring: &mut broadcast::Receiver<Arc<News>>,
    ) -> Result<(), End> {
        let mut piece = Piece::after(self.cursor);
        let mut next = Ok(first);
        loop {
            match &next {
                Ok(news) => match &**news {
                    News::Event(event, text) => {
                        if piece.take(event, &self.follow.interest) {
                            piece.text.extend_from_slice(text);
                        }
                    }
                    News::Lost(lost) => {
                        self.put(&mut piece).await?;
                        self.reset(*lost).await?;
                        piece = Piece::after(self.cursor);
                    }
                },
                Err(_) => {
                    self.put(&mut piece).await?;
                    return match next {
                        Err(TryRecvError::Lagged(_)) => Err(End::Behind),
                        _ => Ok(()),
                    };
                }
            }
            if piece.text.len() >= PIECE_BYTES {
                self.put(&mut piece).await?;
            }
            next = ring.try_recv();
        }
    }

    /// What this client lacks cannot be had any more: it is told, and gets a new beginning if it wants one.
    async fn reset(&mut self, lost: Lost) -> Result<(), End> {
        self.say(sse::reset(lost), self.cursor.max(lost.oldest - 1)).await?;
        if !self.follow.snapshot {
            return Ok(());
        }
        loop {
            let taken = match self.hub.newest().await {
                Ok(newest) => self.snapshot(newest).await.map(|text| (text, newest)),
                Err(e) => Err(e.into()),
            };
            match taken {
                Ok((text, newest)) => return self.say(text, newest).await,
                Err(e) => self.wait_for_the_store(&e).await?,
            }
        }
    }

    /// The containers of interest. The place in the history was read before the list: what follows from it may
    /// repeat what the list shows, and cannot miss anything.
    async fn snapshot(&self, at: i64) -> Result<Bytes, ServiceError> {
        let Interest { container_id, task_id, session_id, .. } = &self.follow.interest;
        let query = ListQuery { task: task_id.clone(), ..ListQuery::default() };
        let mut containers = self.service.containers(query).await?.containers;
        containers.retain(|c| {
            container_id.as_ref().is_none_or(|id| c.record.id.as_str() == id)
                && session_id.as_ref().is_none_or(|id| c.record.session_id.as_ref() == Some(id))
        });
        Ok(sse::snapshot(at, &containers))
    }

    async fn wait_for_the_store(&mut self, why: &ServiceError) -> Result<(), End> {
        debug!(error = %why, "a stream waits for the store");
        tokio::select! {
            () = sleep(PAUSE) => Ok(()),
            _ = self.heartbeat.tick() => self.beat().await,
        }
    }

    async fn beat(&mut self) -> Result<(), End> {
        self.say(sse::heartbeat(self.cursor), self.cursor).await
    }

    async fn put(&mut self, piece: &mut Piece) -> Result<(), End> {
        if piece.text.is_empty() {
            self.cursor = piece.upto;
            return Ok(());
        }
        self.say(piece.text.split().freeze(), piece.upto).await
    }

    /// The cursor moves when the words are in the buffer: whoever stops us in between says the right place.
    async fn say(&mut self, words: Bytes, upto: i64) -> Result<(), End> {
        self.to.send(words).await.map_err(|_| End::Gone)?;
        self.cursor = upto;
        Ok(())
    }
}

/// Events on their way into the buffer.
struct Piece {
    text: BytesMut,
    upto: i64,
}

impl Piece {
    fn after(cursor: i64) -> Self {
        Self { text: BytesMut::new(), upto: cursor }
    }

    /// Whether it is to be told. Each is asked about once.
    fn take(&mut self, event: &Event, interest: &Interest) -> bool {
        if event.id <= self.upto {
            return false;
        }
        self.upto = event.id;
        interest.covers(event)
    }
}

/// The client is gone, the server stops, or the token holds no longer.
async fn reason_to_end(to: &mpsc::Sender<Bytes>, service: &Service, token: Option<[u8; 32]>) -> End {
    let mut stopping = service.shutdown.clone();
    let mut recheck = interval(RECHECK);
    loop {
        tokio::select! {
            () = to.closed() => return End::Gone,
            () = stopped(&mut stopping) => return End::Stopping,
            _ = recheck.tick() => {
                // Somebody listens: that keeps a server that was started on demand.
                service.asked();
                // A store that cannot be asked has nothing to tell either.
                if let Some(hash) = token
                    && let Ok(false) = service.holds(&hash).await
                {
                    return End::Refused;
                }
            }
        }
    }
}
