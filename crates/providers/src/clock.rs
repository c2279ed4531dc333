//! The real clock: the one place of the program that reads the machine's time.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use parhelia_core::time::{Clock, to_millis};

#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the edge where the clock is read")]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the edge where the clock is read")]
    fn now(&self) -> Timestamp {
        to_millis(Timestamp::now())
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}
