//! What Parhelia decides, without doing any of it.
//!
//! Everything here is pure: identifiers, states and their legal moves, the planners of the control loops,
//! the liveness ladder, prices, and the shapes that cross the API. There is no clock, no randomness and no
//! IO in this crate: `now` is an argument, and so is every random bit.

pub mod access;
pub mod alert;
pub mod api;
pub mod cascade;
pub mod config;
pub mod container;
pub mod cost;
pub mod doctor;
pub mod engine;
pub mod event;
pub mod heartbeat;
pub mod history;
pub mod ids;
pub mod interest;
pub mod job;
pub mod liveness;
pub mod monitor_log;
pub mod notice;
pub mod overview;
pub mod reconcile;
pub mod sandbox;
pub mod session;
pub mod state;
pub mod time;
pub mod why;

/// The target of the spans that go to a collector. They are not for the log, whose filter leaves it out, so where there
/// is no collector they are never made.
pub const TRACES: &str = "traces";

/// What this build calls itself. `next` stands for the one after it: the tests replace a server by it.
pub const VERSION: &str = if cfg!(feature = "next") {
    concat!(env!("CARGO_PKG_VERSION"), "+next")
} else {
    env!("CARGO_PKG_VERSION")
};

pub use jiff::Timestamp;
/// For `word_enum!`, wherever it is used.
#[doc(hidden)]
pub use utoipa;
