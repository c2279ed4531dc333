//! The process provider and its supervisor, as real processes: no mocks, and nothing waits for a time where
//! it can wait for a condition.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it expects by failing")]

mod asks;
mod attach;
mod doors;
mod evidence;
mod faults;
mod ground;
mod life;
mod output;
mod removal;
