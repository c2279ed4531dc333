//! How far ClickHouse is behind, what it was sent, and what it did not take.

use std::sync::atomic::{AtomicI64, Ordering};

use parhelia_core::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{Names, Real};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Table {
    table: &'static str,
}

/// The projection of sessions. All 0 where there is none, and on servers that do not lead.
#[derive(Debug)]
pub struct Projected {
    lag: Real,
    rows: Family<Table, Counter>,
    failures: Counter,
    /// The oldest change that was not sent, in milliseconds; 0 when there is none.
    behind_since: AtomicI64,
}

impl Projected {
    pub(super) fn new(names: &mut Names) -> Self {
        let rows = Family::<Table, Counter>::default();
        ["session_state", "session_history"]
            .iter()
            .for_each(|table| drop(rows.get_or_create(&Table { table })));
        Self {
            lag: names.add(
                "clickhouse_lag_seconds",
                "How long the oldest change of a session has waited for ClickHouse; 0 when none does",
                Real::default(),
            ),
            rows: names.add("clickhouse_rows", "Rows that ClickHouse has taken, by table", rows),
            failures: names.add(
                "clickhouse_failures",
                "Requests to ClickHouse that failed",
                Counter::default(),
            ),
            behind_since: AtomicI64::new(0),
        }
    }

    pub(crate) fn sent(&self, table: &'static str, rows: usize) {
        self.rows.get_or_create(&Table { table }).inc_by(rows as u64);
    }

    pub(crate) fn failed(&self, since: Timestamp) {
        self.failures.inc();
        let since = since.as_millisecond();
        // An older change that waits is not forgotten.
        let _ = self.behind_since.compare_exchange(0, since, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn is_behind(&self, since: Timestamp) {
        self.behind_since.store(since.as_millisecond(), Ordering::Relaxed);
    }

    pub(crate) fn is_current(&self) {
        self.behind_since.store(0, Ordering::Relaxed);
    }

    pub(crate) fn lag_seconds(&self, now: Timestamp) -> f64 {
        match self.behind_since.load(Ordering::Relaxed) {
            0 => 0.0,
            since => ((now.as_millisecond() - since) as f64 / 1000.0).max(0.0),
        }
    }

    pub(super) fn look(&self, now: Timestamp) {
        self.lag.set(self.lag_seconds(now));
    }
}
