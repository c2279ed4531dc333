//! The control plane: use cases (`service`), control loops (`loops`), the doors to them (`http`, and `mcp` within it), and the readers of
//! the history (`relay`).
//!
//! Every use case exists once, in `service`; a door parses, calls it and renders. Loops observe, let `core`
//! decide, and act; they never serve anybody directly.

pub mod doctor;
pub mod entropy;
pub mod home;
pub mod http;
pub mod loops;
mod mcp;
pub mod metrics;
pub mod relay;
pub mod serve;
pub mod service;
pub mod startup;
mod tls;
mod waiting;
