//! The world's clock and its dice: both advance only when the simulation says so.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parhelia_core::time::Clock;
use parhelia_server::entropy::Entropy;

/// 2026-01-01T00:00:00Z: a beginning like any other, and the same for every seed.
const BEGINNING_MILLIS: i64 = 1_767_225_600_000;

#[derive(Debug)]
pub(crate) struct SimClock {
    wall_millis: AtomicI64,
    monotonic_millis: AtomicI64,
}

impl SimClock {
    pub(crate) fn new() -> Self {
        Self { wall_millis: AtomicI64::new(BEGINNING_MILLIS), monotonic_millis: AtomicI64::new(0) }
    }

    pub(crate) fn advance(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.wall_millis.fetch_add(millis, Ordering::Relaxed);
        self.monotonic_millis.fetch_add(millis, Ordering::Relaxed);
    }

    /// Somebody sets the wall clock; no time passes.
    pub(crate) fn jump_wall(&self, millis: i64) {
        self.wall_millis.fetch_add(millis, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let since = SignedDuration::from_millis(self.wall_millis.load(Ordering::Relaxed));
        Timestamp::UNIX_EPOCH.saturating_add(since).unwrap_or(Timestamp::MAX)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.monotonic_millis.load(Ordering::Relaxed).unsigned_abs())
    }
}

/// SplitMix64: tiny, seeded, good enough to choose faults with.
#[derive(Debug)]
pub(crate) struct Dice(AtomicU64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// From 0 up to and without `below`.
    pub(crate) fn roll(&self, below: u64) -> u64 {
        self.bits() % below.max(1)
    }

    pub(crate) fn chance(&self, percent: u64) -> bool {
        self.roll(100) < percent
    }

    pub(crate) fn pick<'a, T>(&self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.roll(from.len() as u64) as usize)
    }

    /// From `low` seconds up to and without `high`, in milliseconds: two things rarely fall on one instant.
    pub(crate) fn seconds(&self, low: u64, high: u64) -> Duration {
        Duration::from_millis(low * 1000 + self.roll((high - low) * 1000))
    }
}

impl Entropy for Dice {
    fn bits(&self) -> u64 {
        let mut z =
            self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
