//! The planner against small worlds: one snapshot per rule, and properties over generated worlds.

mod model;
mod properties;
mod removal;
mod snapshots;
mod world;
