//! What is kept for how long. Each verb does a bounded piece, so that the writer is never held for long, and is
//! fenced like every write of the leader: a former one must not fold what its successor folds.

use jiff::Timestamp;

use crate::error::Result;
use crate::script::{Script, params};
use crate::sql::Sql;
use crate::types::{Fence, RetentionReport};
use crate::{Store, sql};

impl Store {
    /// Folds raw heartbeats from before `before` into hours and deletes them, at most `max_rows`, oldest
    /// first. An hour may be folded in several pieces; the result is the same.
    pub async fn aggregate_heartbeats(
        &self,
        fence: &Fence,
        before: Timestamp,
        max_rows: i64,
    ) -> Result<RetentionReport> {
        let mut script = Script::fenced("aggregate_heartbeats", fence);
        let fold = script.step(&sql::HEARTBEATS_FOLD, params![before, max_rows]);
        let delete = script.step(&sql::HEARTBEATS_DELETE, params![before, max_rows]);
        let done = self.write(script).await?;
        let touched = |step: usize| done.get(step).map_or(0, |outcome| outcome.touched as i64);
        let folded = touched(delete);
        Ok(RetentionReport { folded, hours: touched(fold), more: folded >= max_rows })
    }

    /// Deletes events from before `before`, at most `max_rows`, oldest first; gives how many.
    pub async fn delete_old_events(&self, fence: &Fence, before: Timestamp, max_rows: i64) -> Result<i64> {
        self.delete(fence, "delete_old_events", &sql::EVENTS_DELETE, params![before, max_rows]).await
    }

    pub async fn delete_old_cycles(&self, fence: &Fence, before: Timestamp) -> Result<i64> {
        self.delete(fence, "delete_old_cycles", &sql::CYCLES_DELETE, params![before]).await
    }

    pub async fn delete_old_heartbeat_hours(&self, fence: &Fence, before: Timestamp) -> Result<i64> {
        self.delete(fence, "delete_old_heartbeat_hours", &sql::HEARTBEAT_HOURS_DELETE, params![before]).await
    }

    /// Deletes deliveries that were over before `before`, at most `max_rows`; gives how many.
    pub async fn delete_old_deliveries(
        &self,
        fence: &Fence,
        before: Timestamp,
        max_rows: i64,
    ) -> Result<i64> {
        self.delete(fence, "delete_old_deliveries", &sql::DELIVERIES_DELETE, params![before, max_rows]).await
    }

    async fn delete(
        &self,
        fence: &Fence,
        name: &'static str,
        sql: &'static Sql,
        params: Vec<crate::script::Value>,
    ) -> Result<i64> {
        let mut script = Script::fenced(name, fence);
        let delete = script.step(sql, params);
        Ok(self.write(script).await?.get(delete).map_or(0, |outcome| outcome.touched as i64))
    }
}
