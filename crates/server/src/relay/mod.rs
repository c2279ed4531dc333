//! The readers of the tail: whatever carries events out of the store to somebody. A reader is a [`Tail`] with a
//! cursor of its own. It decides nothing and writes nothing but that cursor; none can slow a writer or another
//! reader.
//!
//! Live streams share one reader, the [`Hub`]; a reader that must not lose its place across restarts has a `Tail`
//! to itself.

pub mod alerts;
pub mod clickhouse;
mod hub;
mod monitor_log;
mod sse;
mod stream;
mod tail;

pub use hub::{Hub, Place};
pub use monitor_log::MonitorLog;
pub use stream::{Follow, Watcher};
pub use tail::{Batch, Lost, Tail};
