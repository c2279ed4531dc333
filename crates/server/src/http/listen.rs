//! Taking connections: how many at once, how long each may take to say what it wants, and TLS. A client that is
//! slow, silent or gone costs one of a bounded number of places, for a bounded time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use futures::future::{AbortHandle, Abortable};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;
use tracing::{debug, warn};

use super::Door;
use crate::loops::stopped;
use crate::metrics::DoorMeter;

/// What a client may take of this server.
#[derive(Debug, Clone)]
pub struct Limits {
    pub connections: usize,
    /// For a TLS handshake, for the head of a request, and for the client to take more of an answer.
    pub patience: Duration,
}

/// Ends the connection of a request, whatever its client does: for answers that have no end of their own.
#[derive(Debug, Clone)]
pub(super) struct HangUp(AbortHandle);

impl HangUp {
    pub(super) fn now(&self) {
        self.0.abort();
    }
}

pub enum Listener {
    Socket(UnixListener),
    Containers(UnixListener),
    Tcp(TcpListener, Option<TlsAcceptor>),
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Listener::Socket(_) => "the unix socket",
            Listener::Containers(_) => "the containers' socket",
            Listener::Tcp(_, None) => "the TCP address",
            Listener::Tcp(_, Some(_)) => "the TLS address",
        })
    }
}

/// Serves until the server stops; then what is under way is finished.
pub async fn serve(
    listener: Listener,
    router: Router,
    meter: DoorMeter,
    limits: Limits,
    mut stopping: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    loop {
        let taken = tokio::select! {
            taken = listener.accept() => taken,
            () = stopped(&mut stopping) => break,
        };
        let (stream, door, tls) = match taken {
            Ok(taken) => taken,
            Err(e) => {
                // Out of file descriptors, or a client that left at once: neither is a reason to stop listening.
                debug!(error = %e, listener = ?listener, "a connection could not be taken");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            warn!(listener = ?listener, connections = limits.connections, "too many connections: one was turned away");
            meter.turned_away();
            tokio::spawn(turn_away(stream, tls.is_some(), limits.patience));
            continue;
        };
        let router = router.clone();
        let patience = limits.patience;
        let inside = meter.enter();
        let watcher = graceful.watcher();
        tokio::spawn(async move {
            let _place = (place, inside);
            match tls {
                None => converse(stream, router, door, patience, watcher).await,
                Some(tls) => match tokio::time::timeout(patience, tls.accept(stream)).await {
                    Ok(Ok(stream)) => converse(stream, router, door, patience, watcher).await,
                    Ok(Err(e)) => debug!(%door, error = %e, "no TLS with this client"),
                    Err(_) => debug!(%door, "a client took too long for its TLS handshake"),
                },
            }
        });
    }
    graceful.shutdown().await;
}

/// One connection, for as long as it lasts.
async fn converse<S>(
    stream: S,
    router: Router,
    door: Door,
    patience: Duration,
    watcher: hyper_util::server::graceful::Watcher,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (abort, hung_up) = AbortHandle::new_pair();
    let hang_up = HangUp(abort);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(door.clone());
        request.extensions_mut().insert(hang_up.clone());
        router.clone().oneshot(request)
    });
    let mut stream = TimeoutStream::new(stream);
    // Reading may take as long as it likes between two requests; a client that no longer takes our answer may not.
    stream.set_write_timeout(Some(patience));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience);
    let connection = http.serve_connection(TokioIo::new(Box::pin(stream)), service);
    // Asked at every step of every request, so it must cost next to nothing.
    if let Ok(Err(e)) = Abortable::new(watcher.watch(connection), hung_up).await {
        debug!(error = %e, "a connection ended early");
    }
}

/// Says so, where that can be said in one breath.
async fn turn_away(mut stream: Stream, tls: bool, patience: Duration) {
    if tls {
        return;
    }
    let problem = serde_json::json!({
        "type": "urn:parhelia:problem:busy", "title": "Service Unavailable", "status": 503, "code": "busy",
        "detail": "this server has as many connections as it takes",
        "fix": "try again, or raise server.max_connections",
    })
    .to_string();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
         content-type: application/problem+json\r\ncontent-length: {}\r\n\r\n{problem}",
        problem.len()
    );
    let said = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    };
    let _ = tokio::time::timeout(patience, said).await;
}

type Stream = Box<dyn Wire>;

/// What a connection can do, of whichever kind it is.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

impl Listener {
    /// Its name in the metrics.
    pub(crate) fn door(&self) -> &'static str {
        match self {
            Listener::Socket(_) => "socket",
            Listener::Containers(_) => "containers",
            Listener::Tcp(..) => "tcp",
        }
    }

    async fn accept(&self) -> io::Result<(Stream, Door, Option<TlsAcceptor>)> {
        Ok(match self {
            Listener::Socket(listener) => (Box::new(listener.accept().await?.0), Door::Socket, None),
            Listener::Containers(listener) => (Box::new(listener.accept().await?.0), Door::Containers, None),
            Listener::Tcp(listener, tls) => {
                let (stream, peer): (_, SocketAddr) = listener.accept().await?;
                stream.set_nodelay(true)?;
                (Box::new(stream), Door::Tcp(peer), tls.clone())
            }
        })
    }
}
