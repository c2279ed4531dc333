//! Starting and stopping a server.

use std::net::SocketAddr;
use std::path::PathBuf;

/// How `parhelia up` (or a client that found no server) asks for a server.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    pub home: PathBuf,
    /// A TCP address besides the unix socket; overrides the configuration.
    pub listen: Option<SocketAddr>,
    /// Started by a client that found none: leaves when idle, and yields to `up`.
    pub on_demand: bool,
    pub config: parhelia_core::config::Config,
    /// The binary to run as supervisor; ourselves.
    pub supervisor: PathBuf,
}

#[derive(Debug)]
pub enum ServeError {}
