//! The docker provider beside a real engine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "tests")]

mod engine;
mod ground;
mod life;
mod outage;
mod output;
mod remote;
