//! News from other servers. One connection of its own listens, tells others what this process has committed,
//! and finds out how far the tail may be read; it is made again by itself when it is lost.
//!
//! NOTIFY is not part of the writing transactions: it would make every commit wait for a lock on the one queue
//! of the whole cluster. What is committed is announced afterwards, at most once at a time, and only as a
//! hint: whoever misses it finds the events at the next look, a second later.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::{broadcast, mpsc, watch};
use tokio_postgres::{AsyncMessage, Client, Error};
use tracing::debug;

use super::address::Messages;
use super::run::meaning;
use super::{Shared, in_time};
use crate::error::Result;
use crate::sql;

/// Looks at the tail without being told anything.
const LOOK: Duration = Duration::from_secs(1);
/// While an event that is known to be committed is still behind a running transaction.
const SETTLE: Duration = Duration::from_millis(10);
const SETTLE_MOST: Duration = Duration::from_millis(100);
/// Wishes to wake somebody that may wait; a wish that finds no place is left to the timers.
const WAKES: usize = 64;

#[derive(Debug)]
pub(super) struct Listener {
    stop: watch::Sender<bool>,
    wake: mpsc::Sender<String>,
    wakes: broadcast::Sender<String>,
}

impl Listener {
    pub(super) fn start(shared: &Arc<Shared>) -> Self {
        let (stop, mut stopped) = watch::channel(false);
        let (wake, mut wishes) = mpsc::channel(WAKES);
        let wakes = broadcast::Sender::new(WAKES);
        let (shared, heard) = (shared.clone(), wakes.clone());
        tokio::spawn(async move {
            let mut pause = super::RECONNECT_FIRST;
            loop {
                let work = listen(&shared, &mut wishes, &heard, &mut pause);
                tokio::select! {
                    _ = stopped.wait_for(|stop| *stop) => return,
                    result = work => debug!(?result, "the listening connection ended"),
                }
                tokio::select! {
                    _ = stopped.wait_for(|stop| *stop) => return,
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(super::RECONNECT_MOST),
                }
            }
        });
        Self { stop, wake, wakes }
    }

    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(super) fn wake(&self, name: &str) {
        let _ = self.wake.try_send(name.to_owned());
    }

    pub(super) fn wakes(&self) -> broadcast::Receiver<String> {
        self.wakes.subscribe()
    }
}

/// What came over the connection.
enum News {
    Nothing,
    Event(i64),
    Wake(String),
}

fn news(message: AsyncMessage) -> News {
    let AsyncMessage::Notification(told) = message else { return News::Nothing };
    match told.payload().split_once(' ') {
        Some(("event", id)) => id.parse().map_or(News::Nothing, News::Event),
        Some(("wake", name)) => News::Wake(name.to_owned()),
        _ => News::Nothing,
    }
}

/// Ends with the connection.
async fn listen(
    shared: &Arc<Shared>,
    wishes: &mut mpsc::Receiver<String>,
    heard: &broadcast::Sender<String>,
    pause: &mut Duration,
) -> Result<()> {
    let (client, mut messages) = asked(shared.address.connect()).await?;
    let (from, mut incoming) = mpsc::channel(1024);
    // The connection must be driven while we wait for answers on it.
    let driver = tokio::spawn(async move { forward(&mut messages, &from).await });
    let result = attend(shared, &client, wishes, heard, pause, &mut incoming).await;
    driver.abort();
    result
}

async fn forward(messages: &mut Messages, to: &mpsc::Sender<AsyncMessage>) {
    while let Some(Ok(message)) = messages.next().await {
        // Full: a hint is lost, and the next look finds what it was about.
        let _ = to.try_send(message);
    }
}

async fn attend(
    shared: &Arc<Shared>,
    client: &Client,
    wishes: &mut mpsc::Receiver<String>,
    heard: &broadcast::Sender<String>,
    pause: &mut Duration,
    incoming: &mut mpsc::Receiver<AsyncMessage>,
) -> Result<()> {
    asked(client.batch_execute("SET statement_timeout = '10s'")).await?;
    let schema: String = asked(client.query_one("SELECT current_schema()::TEXT", &[])).await?.get(0);
    let channel = format!("parhelia.{schema}");
    asked(client.batch_execute(&format!("LISTEN \"{}\"", channel.replace('"', "\"\"")))).await?;
    let announce = asked(client.prepare("SELECT pg_notify($1, $2)")).await?;
    let tail = asked(client.prepare(sql::LAST_EVENT.postgres())).await?;
    *pause = super::RECONNECT_FIRST;
    let mut written = shared.written.subscribe();
    let (mut wanted, mut announced) = (0_i64, *written.borrow());
    let mut settling = SETTLE;
    loop {
        // The others first: they have the longer way.
        let own = *written.borrow_and_update();
        if own > announced {
            announced = own;
            asked(client.execute(&announce, &[&channel, &format!("event {own}")])).await?;
        }
        let settled: i64 = asked(client.query_one(&tail, &[])).await?.get(0);
        let moved = shared.commits.send_if_modified(|seen| {
            let newer = settled > *seen;
            *seen = settled.max(*seen);
            newer
        });
        wanted = wanted.max(own);
        // Whoever holds the tail back may do so for long: then it is looked for less often.
        settling = if moved || settled >= wanted { SETTLE } else { (settling * 2).min(SETTLE_MOST) };
        let look = if settled < wanted { settling } else { LOOK };
        tokio::select! {
            _ = written.changed() => {}
            () = tokio::time::sleep(look) => {}
            Some(name) = wishes.recv() => {
                asked(client.execute(&announce, &[&channel, &format!("wake {name}")])).await?;
            }
            message = incoming.recv() => match message.map(news) {
                None => return Ok(()),
                Some(News::Nothing) => {}
                Some(News::Event(id)) => wanted = wanted.max(id),
                Some(News::Wake(name)) => drop(heard.send(name)),
            },
        }
    }
}

async fn asked<T>(question: impl Future<Output = Result<T, Error>>) -> Result<T> {
    in_time(async { question.await.map_err(|e| meaning(e, "listen", "news")) }).await
}
