//! A seeded world that tries to break the reconciler: the real planner, the real loop and the real store,
//! a fake provider, and virtual time. One thread, so a seed replays exactly.
//!
//! Every call to the store or the provider is a point at which the server may die; a dead one is replaced,
//! and now and then an old one wakes up and goes on with its stale fence.

mod edge;
mod interrupt;
mod invariants;
mod memory;
mod world;

pub use world::{Outcome, Settings, run};
