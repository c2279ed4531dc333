//! Starting and stopping a server.

use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

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

/// Where a server that is ready can be reached.
#[derive(Debug, Clone)]
pub struct Ready {
    pub socket: PathBuf,
    pub tcp: Option<SocketAddr>,
    /// Holds the admin token for the TCP address (mode 0600).
    pub token_file: PathBuf,
    pub instance_id: String,
}

#[derive(Debug, Error)]
pub enum ServeError {
    #[error("another server already serves {home}: use it, or end it with 'parhelia down'")]
    AlreadyServed { home: PathBuf },
    #[error("{0}")]
    Failed(String),
}

/// Serves until Ctrl-C, SIGTERM, a shutdown request or (on demand) idleness. `on_ready` is called once, when it answers.
pub async fn serve(options: ServeOptions, on_ready: impl FnOnce(&Ready) + Send) -> Result<(), ServeError> {
    let _ = (options, on_ready);
    Err(ServeError::Failed("not wired yet".into()))
}
