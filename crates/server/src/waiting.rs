//! A server whose shared database is away when it starts. It holds the home, answers every question with 503 and
//! why, and goes on by itself when the database answers. It waits only for what may pass: a database that is
//! there and does not let us in, or is not ours, ends the start at once.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use parhelia_store::StoreError;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use crate::http::{self, Fault, Limits, Listener};
use crate::loops::stopped;
use crate::metrics::Metrics;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A first attempt that takes longer than this is answered for too.
const QUIET: Duration = Duration::from_millis(500);
/// What connections of the waiting server get to finish their one short answer.
const HAND_OVER: Duration = Duration::from_secs(1);

/// How waiting ended without the database.
#[derive(Debug)]
pub(crate) enum GaveUp {
    /// It is of no use to wait, or nobody waits any longer.
    Error(StoreError),
    /// Somebody asked the server to stop.
    Stopped,
}

/// The listeners that will be the server's, answered for while it waits.
#[allow(missing_debug_implementations, reason = "TLS has none")]
pub(crate) struct Doorway<'a> {
    pub(crate) socket: &'a UnixListener,
    pub(crate) tcp: Option<&'a TcpListener>,
    pub(crate) tls: Option<&'a TlsAcceptor>,
    pub(crate) limits: Limits,
}

/// Tries until it works, or `asked` to stop. Whoever is started by a waiting command gives up after `patience`.
pub(crate) async fn until_there<T>(
    doorway: Doorway<'_>,
    patience: Option<Duration>,
    asked: &mut watch::Receiver<bool>,
    mut attempt: impl AsyncFnMut() -> Result<T, StoreError>,
) -> Result<T, GaveUp> {
    let (why, stop) = (Why::default(), Arc::new(Notify::new()));
    let mut answering = None;
    let mut pause = FIRST_PAUSE;
    let work = async {
        loop {
            let error = {
                let trying = attempt();
                tokio::pin!(trying);
                let quick = if answering.is_none() {
                    tokio::time::timeout(QUIET, &mut trying).await.ok()
                } else {
                    None
                };
                let result = match quick {
                    Some(result) => result,
                    None => {
                        answering.get_or_insert_with(|| Answering::start(&doorway, &why, &stop));
                        trying.await
                    }
                };
                match result {
                    Ok(there) => return Ok(there),
                    Err(error) if error.is_unavailable() => error,
                    Err(error) => return Err(GaveUp::Error(error)),
                }
            };
            if why.set(error.to_string()) {
                warn!("waiting for the database: {error}");
            }
            answering.get_or_insert_with(|| Answering::start(&doorway, &why, &stop));
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    };
    let enough = async {
        match patience {
            Some(patience) => tokio::time::sleep(patience).await,
            None => std::future::pending().await,
        }
    };
    let result = tokio::select! {
        result = work => result,
        () = stopped(asked) => Err(GaveUp::Stopped),
        () = stop.notified() => Err(GaveUp::Stopped),
        () = enough => Err(GaveUp::Error(why.as_error())),
    };
    if let Some(answering) = answering {
        answering.hand_over().await;
        if result.is_ok() && why.is_known() {
            info!("the database is there");
        }
    }
    result
}

/// What everybody is told.
#[derive(Debug, Clone, Default)]
struct Why(Arc<Mutex<String>>);

impl Why {
    /// `true` when it is news.
    fn set(&self, text: String) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let news = *told != text;
        *told = text;
        news
    }

    fn is_known(&self) -> bool {
        !self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn get(&self) -> String {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_empty() { "it has not answered yet".to_owned() } else { told.clone() }
    }

    fn as_error(&self) -> StoreError {
        StoreError::Unavailable { what: self.get(), fix: "start the database, then try again".into() }
    }
}

struct Answering {
    doors: JoinSet<()>,
    over: watch::Sender<bool>,
}

impl Answering {
    fn start(doorway: &Doorway<'_>, why: &Why, stop: &Arc<Notify>) -> Self {
        let (over, _) = watch::channel(false);
        let mut doors = JoinSet::new();
        // The same sockets, not new ones: what connects while the doors change waits and is served.
        let ours = doorway.socket.as_fd().try_clone_to_owned().map(std::os::unix::net::UnixListener::from);
        match ours.and_then(UnixListener::from_std) {
            Ok(socket) => {
                let ring = stop.clone();
                let stopping = post(move || async move {
                    ring.notify_one();
                    StatusCode::ACCEPTED
                });
                let routes = routes().route("/api/v1/server/shutdown", stopping).with_state(why.clone());
                serve(Listener::Socket(socket), routes, doorway, &over, &mut doors);
            }
            Err(error) => warn!(%error, "nobody can be answered while we wait"),
        }
        if let Some(tcp) = doorway.tcp {
            let ours = tcp.as_fd().try_clone_to_owned().map(std::net::TcpListener::from);
            match ours.and_then(TcpListener::from_std) {
                Ok(tcp) => {
                    let routes = routes().with_state(why.clone());
                    serve(Listener::Tcp(tcp, doorway.tls.cloned()), routes, doorway, &over, &mut doors);
                }
                Err(error) => warn!(%error, "nobody can be answered while we wait"),
            }
        }
        Self { doors, over }
    }

    async fn hand_over(mut self) {
        self.over.send_replace(true);
        let finish = async { while self.doors.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(HAND_OVER, finish).await;
    }
}

/// As the server will: with its limits, and with TLS where it has that.
fn serve(
    listener: Listener,
    routes: Router,
    doorway: &Doorway<'_>,
    over: &watch::Sender<bool>,
    doors: &mut JoinSet<()>,
) {
    let meter = Metrics::default().doors.door(listener.door());
    doors.spawn(http::serve(listener, routes, meter, doorway.limits.clone(), over.subscribe()));
}

fn routes() -> Router<Why> {
    Router::new().route("/livez", get(|| async { "ok\n" })).fallback(not_yet)
}

async fn not_yet(State(why): State<Why>) -> Response {
    let detail = format!("this server waits for its database: {}", why.get());
    Fault::unavailable(detail, "start the database, or check its address; this server goes on by itself")
        .into_response()
}
