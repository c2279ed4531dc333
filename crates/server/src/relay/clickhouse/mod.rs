//! Sessions in ClickHouse: a durable reader of the tail that keeps the seed's `session_state`, and `session_history`
//! beside it, current over there. Run by the leader; what a row says is decided in `core::session::projection`.
//!
//! Our store is the truth, and nothing here is in its way: a ClickHouse that is slow or away makes this reader wait, with
//! one batch in memory and its place in the store, and everybody else goes on.

mod client;
mod places;
mod sending;

use std::sync::Arc;
use std::time::Duration;

use parhelia_core::Timestamp;
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::time::seconds_between;
use parhelia_store::StoreError;
use serde_json::json;
use tokio::sync::watch;
use tracing::{info, warn};

pub use self::client::{ClickHouse, Trouble};
use self::sending::Sender;
use crate::loops::driver::Ended;
use crate::loops::{Context, stopped};

/// Between attempts while ClickHouse is away.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// So many failures in a row are told, once.
const TOLD_AT: u32 = 2;
/// The tables, as they are made when they are missing.
const TABLES: [&str; 2] = [include_str!("session_state.sql"), include_str!("session_history.sql")];

/// Why nothing more could be sent.
#[derive(Debug)]
enum Stopped {
    Store(StoreError),
    ClickHouse(Trouble),
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Trouble> for Stopped {
    fn from(trouble: Trouble) -> Self {
        Self::ClickHouse(trouble)
    }
}

/// A ClickHouse that does not take what it is sent.
#[derive(Debug, Default)]
struct Away {
    failures: u32,
    since: Option<Timestamp>,
    told: bool,
}

/// Runs while this server leads. `instance_id` is the store's: several may show their sessions in one database.
pub async fn run(
    context: Context,
    clickhouse: Arc<ClickHouse>,
    instance_id: String,
    mut stopping: watch::Receiver<bool>,
) -> Ended {
    let mut away = Away::default();
    // Looked at in full when a lead begins, and when a table was gone.
    let mut doubted = true;
    loop {
        let mut sender = Sender::new(&context, &clickhouse, &instance_id, &mut away);
        let ended = tokio::select! {
            () = stopped(&mut stopping) => return Ended::Shutdown,
            ended = sender.follow(&mut doubted) => ended,
        };
        let Err(why) = ended;
        let pause = match why {
            Stopped::Store(StoreError::Fenced { .. }) => return Ended::Fenced,
            Stopped::Store(error) => {
                warn!(%error, "the projection waits for the store");
                FIRST_PAUSE * 5
            }
            Stopped::ClickHouse(trouble) => {
                doubted |= trouble.code == Some(client::UNKNOWN_TABLE);
                match away.again(&context, clickhouse.url(), &trouble).await {
                    Err(StoreError::Fenced { .. }) => return Ended::Fenced,
                    Err(error) => warn!(%error, "that ClickHouse is away cannot be told"),
                    Ok(()) => {}
                }
                away.pause()
            }
        };
        tokio::select! {
            () = stopped(&mut stopping) => return Ended::Shutdown,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

impl Away {
    fn pause(&self) -> Duration {
        (FIRST_PAUSE * 2u32.saturating_pow(self.failures.saturating_sub(1).min(16))).min(LONGEST_PAUSE)
    }

    /// One more failure.
    async fn again(&mut self, context: &Context, url: &str, trouble: &Trouble) -> Result<(), StoreError> {
        let now = context.clock.now();
        let since = *self.since.get_or_insert(now);
        self.failures = self.failures.saturating_add(1);
        context.metrics.clickhouse.failed(since);
        if self.failures < TOLD_AT || self.told {
            return Ok(());
        }
        warn!(url, failures = self.failures, "sessions are not shown in ClickHouse: {trouble}");
        let message = format!("ClickHouse is behind: {trouble}");
        let event = NewEvent::new(EventType::ProjectionDelayed, Source::System, message).details(json!({
            "projection": "clickhouse", "url": url, "code": trouble.code, "since": since,
        }));
        context.store.announce(&context.fence, vec![event], now).await?;
        self.told = true;
        Ok(())
    }

    /// Everything that was due has arrived.
    async fn over(&mut self, context: &Context) -> Result<(), StoreError> {
        let now = context.clock.now();
        if let (true, Some(since)) = (self.told, self.since) {
            let seconds = seconds_between(since, now);
            info!(seconds, "ClickHouse takes rows again");
            let message = format!("ClickHouse takes rows again after {seconds:.0}s; what it missed is sent");
            let event = NewEvent::new(EventType::ProjectionRecovered, Source::System, message)
                .details(json!({ "projection": "clickhouse", "seconds": seconds }));
            context.store.announce(&context.fence, vec![event], now).await?;
        }
        *self = Self::default();
        Ok(())
    }
}
