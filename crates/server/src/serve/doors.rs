//! Where a server listens, and the one router behind all of it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parhelia_core::config::Config;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{ServeError, ServeOptions};
use crate::home::Home;
use crate::http::{self, App, Gate, Limits, Listener};

pub(super) fn tcp_address(options: &ServeOptions) -> Result<Option<SocketAddr>, ServeError> {
    let address = match (options.listen, &options.config.server.listen) {
        (Some(address), _) => address,
        (None, Some(text)) => text.parse().map_err(|_| ServeError::BadAddress { text: text.clone() })?,
        (None, None) => return Ok(None),
    };
    let server = &options.config.server;
    let trusted = address.ip().is_loopback() || server.tls_cert.is_some() || server.insecure_listen;
    if trusted { Ok(Some(address)) } else { Err(ServeError::NotLoopback { address }) }
}

pub(super) fn listen_error(address: impl ToString, e: &std::io::Error) -> ServeError {
    let reason = match e.kind() {
        std::io::ErrorKind::AddrInUse => format!("{e}; another program has it: choose another port"),
        _ => e.to_string(),
    };
    ServeError::Listen { address: address.to_string(), reason }
}

/// Our own socket file; the lock is still ours when it goes.
pub(super) struct SocketFile(pub(super) PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Our own door. The home is 0700, so nobody else can reach the socket before its own mode is set.
pub(super) fn unix_listener(home: &Home) -> Result<UnixListener, ServeError> {
    listener_at(&home.socket(), 0o600)
}

/// Every user of a container must be able to reach it there; here the home's own mode keeps everybody out.
pub(super) fn container_listener(home: &Home) -> Result<UnixListener, ServeError> {
    let dir = home.door();
    let failed = |e: std::io::Error| listen_error(dir.display(), &e);
    fs::create_dir_all(&dir).map_err(failed)?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    listener_at(&dir.join("parhelia.sock"), 0o666)
}

/// A socket file left by a dead server is replaced: the lock proves that nobody listens on it.
fn listener_at(path: &Path, mode: u32) -> Result<UnixListener, ServeError> {
    let failed = |e: std::io::Error| listen_error(path.display(), &e);
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
    Ok(listener)
}

pub(super) fn limits(config: &Config) -> Limits {
    Limits {
        connections: config.server.max_connections as usize,
        patience: Duration::from_secs(config.server.client_patience_seconds),
    }
}

/// One router behind every door: a door only says who comes in.
pub(super) fn open_doors(
    app: App,
    listeners: Vec<Listener>,
    token: &str,
    config: &Config,
    stopping: &watch::Receiver<bool>,
) -> JoinSet<()> {
    let server = &config.server;
    let limits = limits(config);
    let gate = Gate::new(token, server.max_requests_per_second);
    let metrics = app.metrics.clone();
    let router = http::router(app, gate, server.max_body_bytes as usize);
    let mut doors = JoinSet::new();
    for listener in listeners {
        let meter = metrics.doors.door(listener.door());
        doors.spawn(http::serve(listener, router.clone(), meter, limits.clone(), stopping.clone()));
    }
    doors
}
