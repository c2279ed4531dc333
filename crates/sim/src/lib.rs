//! A seeded world that tries to break the control plane: the real planners, loops, service and store, a fake
//! provider, and virtual time. One thread per world, so a seed replays exactly.
//!
//! Every call to the store or the provider is a point at which the server may die or be left sleeping; a dead
//! one is replaced, and a sleeping one wakes up in the middle of what it did and goes on with a stale fence.

mod breakage;
mod checking;
mod database;
mod edge;
mod happenings;
mod intents;
mod interrupt;
mod invariants;
mod many;
mod memory;
mod provider;
mod server;
mod serving;
mod session_cascades;
mod session_happenings;
mod session_invariants;
mod session_loop;
mod session_world;
mod wishes;
mod world;

pub use breakage::Breakage;
pub use many::{Campaign, Tally};
pub use world::{Outcome, SESSIONS_IN, Settings, run};
