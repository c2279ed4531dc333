//! Alerts on their way: the place of each in the history, and what became of every delivery. A place moves in the
//! transaction that records what was found on the way.

use jiff::Timestamp;
use parhelia_core::alert::{AlertCounts, Delivery, DeliveryState};
use parhelia_core::event::NewEvent;
use parhelia_core::ids::DeliveryId;

use super::text_of;
use crate::error::Result;
use crate::script::{Script, params};
use crate::types::{Attempted, Fence, NewDelivery, ReaderMove};
use crate::{Store, row, sql};

impl Store {
    /// Where every reader of the history is that keeps its place here.
    pub async fn readers(&self) -> Result<Vec<(String, i64)>> {
        self.query(&sql::READERS, vec![], |c| Ok((c.text()?, c.int()?))).await
    }

    /// Whoever begins to lead takes the deliveries over: new alerts (their reader's name) begin at `from`, those
    /// that are `gone` (reader and alert) are forgotten, and what was under way is due again.
    pub async fn resume_deliveries(
        &self,
        fence: &Fence,
        readers: &[String],
        from: i64,
        gone: &[(String, String)],
        now: Timestamp,
    ) -> Result<()> {
        let now = text_of(now);
        let mut script = Script::fenced("resume_deliveries", fence);
        for name in readers {
            script.step(&sql::READER_BEGIN, params![name, from]);
        }
        for (reader, alert) in gone {
            script.step(&sql::READER_FORGET, params![reader]);
            script.step(
                &sql::DELIVERIES_DROP,
                params![alert, "the alert was taken out of the configuration", &now],
            );
        }
        script.step(&sql::DELIVERIES_RESUME, params![&now]);
        self.write(script).await.map(drop)
    }

    /// Readers move on, and what they found is to be delivered: all of it, or nothing. `Conflict`: one of them is
    /// not where it was believed to be.
    pub async fn plan_deliveries(
        &self,
        fence: &Fence,
        moves: &[ReaderMove],
        found: &[NewDelivery],
        now: Timestamp,
    ) -> Result<()> {
        let now = text_of(now);
        let mut script = Script::fenced("plan_deliveries", fence);
        for ReaderMove { reader, from, to } in moves {
            script.one(&sql::READER_ADVANCE, params![reader, *from, *to]);
        }
        for NewDelivery { id, alert, event_id } in found {
            script.step(&sql::DELIVERY_INSERT, params![id.as_str(), alert, *event_id, &now]);
        }
        self.write(script).await.map(drop)
    }

    pub async fn pending_deliveries(&self, alert: &str, limit: i64) -> Result<Vec<Delivery>> {
        self.query(&sql::DELIVERIES_PENDING, params![alert, limit], row::delivery).await
    }

    /// Deliveries that are not over, of all alerts.
    pub async fn open_deliveries(&self) -> Result<i64> {
        Ok(self.query_one(&sql::DELIVERIES_OPEN, vec![], |c| c.int()).await?.unwrap_or(0))
    }

    /// The next attempt is the caller's to make. `Conflict`: it is somebody else's, or over.
    pub async fn claim_delivery(&self, fence: &Fence, delivery: &Delivery, now: Timestamp) -> Result<()> {
        let mut script = Script::fenced("claim_delivery", fence);
        script.one(&sql::DELIVERY_CLAIM, params![delivery.id.as_str(), delivery.attempts, now]);
        self.write(script).await.map(drop)
    }

    /// For a claim of which nobody knows whether it was made: nobody is sending, so it is due again.
    pub async fn release_delivery(
        &self,
        fence: &Fence,
        id: &DeliveryId,
        attempt: i64,
        now: Timestamp,
    ) -> Result<()> {
        let mut script = Script::fenced("release_delivery", fence);
        script.step(&sql::DELIVERY_RELEASE, params![id.as_str(), attempt, now]);
        self.write(script).await.map(drop)
    }

    /// What became of an attempt, with the event that tells of it. `Conflict`: it is recorded already.
    pub async fn record_attempt(
        &self,
        fence: &Fence,
        id: &DeliveryId,
        attempt: i64,
        outcome: &Attempted,
        event: Option<NewEvent>,
        now: Timestamp,
    ) -> Result<()> {
        let now = text_of(now);
        let over = matches!(outcome.state, DeliveryState::Delivered | DeliveryState::Failed);
        let mut script = Script::fenced("record_attempt", fence);
        script.one(
            &sql::DELIVERY_RECORD,
            params![
                id.as_str(),
                attempt,
                outcome.state,
                outcome.status,
                outcome.error.as_ref(),
                outcome.next_attempt_at,
                over.then_some(&now),
            ],
        );
        script.events(event.into_iter().collect(), &now);
        self.write(script).await.map(drop)
    }

    pub async fn alert_counts(&self, alert: &str) -> Result<AlertCounts> {
        let counts = self.query_one(&sql::ALERT_COUNTS, params![alert], row::alert_counts).await?;
        let trouble = self
            .query_one(&sql::ALERT_TROUBLE, params![alert], |c| Ok((c.text_opt()?, c.time_opt()?)))
            .await?;
        let (last_error, last_error_at) = trouble.unwrap_or_default();
        Ok(AlertCounts { last_error, last_error_at, ..counts.unwrap_or_default() })
    }
}
