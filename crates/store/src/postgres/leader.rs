//! Who leads, where several servers share a database. The seat is a session's advisory lock on a connection of
//! its own, never pooled: the database lets go of it the moment that the holder dies. A holder that is frozen
//! keeps its connection, so whoever waits also watches the lease in the `leadership` row: if it has not changed
//! for as long as it lasts, by the watcher's own clock, the holder's backend is ended.
//!
//! The seat alone proves nothing to the rows: whoever has it takes the lead in a new epoch
//! (`take_leadership`), and that is what fences.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_postgres::Client;
use tracing::{debug, warn};

use super::address::Address;
use super::in_time;
use super::open::LOCK_LEADER;
use super::run::{meaning, unreachable};
use crate::error::Result;
use crate::sql;

/// How often a waiting server looks at the seat and at the lease.
const LOOK: Duration = Duration::from_millis(200);

/// The chair of the leader.
#[derive(Debug, Clone)]
pub struct Seat {
    address: Arc<Address>,
}

/// Sitting on it. Dropping it leaves it.
#[derive(Debug)]
pub struct Seated {
    _client: Client,
    gone: watch::Receiver<bool>,
}

impl Seated {
    /// Returns when the connection that holds the lock is gone, and with it the seat.
    pub async fn lost(&mut self) {
        let _ = self.gone.wait_for(|gone| *gone).await;
    }
}

impl Seat {
    pub(super) fn new(address: Arc<Address>) -> Self {
        Self { address }
    }

    async fn connect(&self) -> Result<(Client, watch::Receiver<bool>)> {
        in_time(self.connecting()).await
    }

    async fn connecting(&self) -> Result<(Client, watch::Receiver<bool>)> {
        let (client, messages) = self.address.connect().await.map_err(|e| unreachable(&e, &self.address))?;
        let (tell, gone) = watch::channel(false);
        tokio::spawn(async move {
            super::drive(messages).await;
            tell.send_replace(true);
        });
        // Found out quickly by the server too when this machine vanishes without a word.
        let settings = "SET statement_timeout = 0; SET tcp_keepalives_idle = 5;
             SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3";
        client.batch_execute(settings).await.map_err(|e| meaning(e, "seat", "settings"))?;
        Ok((client, gone))
    }

    /// The seat if it is free now.
    pub async fn try_take(&self) -> Result<Option<Seated>> {
        let (client, gone) = self.connect().await?;
        let taken =
            in_time(async { try_lock(&client).await.map_err(|e| meaning(e, "seat", "try_take")) }).await?;
        Ok(taken.then_some(Seated { _client: client, gone }))
    }

    /// Waits for the seat. It is had within a look when its holder dies, and `lease` after a holder froze. An error
    /// is the database's: ask again. (Nobody waits inside the database: a statement that waits there for days would
    /// keep every dead row since from being cleaned away.)
    pub async fn take(&self, lease: Duration) -> Result<Seated> {
        let (client, gone) = self.connect().await?;
        let told = |e| meaning(e, "seat", "take");
        let (mut last, mut unchanged) = (None, Duration::ZERO);
        loop {
            let looking = async {
                let taken = try_lock(&client).await.map_err(told)?;
                let row = client.query_opt(sql::LEADERSHIP.postgres(), &[]).await.map_err(told)?;
                Ok((taken, row.map(|row| (row.get::<_, i64>(1), row.get::<_, String>(2)))))
            };
            let (taken, now) = in_time(looking).await?;
            if taken {
                return Ok(Seated { _client: client, gone });
            }
            // Counted in looks that found no change: a look that took long only makes us more patient.
            unchanged = if now == last { unchanged + LOOK } else { Duration::ZERO };
            last = now;
            if unchanged >= lease {
                unchanged = Duration::ZERO;
                warn!("the leader has not renewed its lease: its place is taken");
                in_time(async { end_holder(&client).await.map_err(told) }).await?;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

async fn try_lock(client: &Client) -> Result<bool, tokio_postgres::Error> {
    let ask = format!("SELECT pg_try_advisory_lock({LOCK_LEADER}, hashtext(current_schema()))");
    Ok(client.query_one(&ask, &[]).await?.get(0))
}

async fn end_holder(client: &Client) -> Result<(), tokio_postgres::Error> {
    let ended = client
        .query(
            "SELECT pg_terminate_backend(pid)
             FROM pg_locks
             WHERE locktype = 'advisory' AND granted AND objsubid = 2
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
               AND classid = $1::BIGINT::OID AND objid = hashtext(current_schema())::BIGINT::BIT(32)::BIGINT::OID",
            &[&i64::from(LOCK_LEADER)],
        )
        .await?;
    debug!(backends = ended.len(), "ended the holder's connection");
    Ok(())
}
