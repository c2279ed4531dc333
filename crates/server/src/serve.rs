//! Starting and stopping a server: home → lock → store → lead → loops → doors, and back again. Stopping
//! leaves every sandbox running.

use std::collections::BTreeMap;
use std::fs;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parhelia_core::api::ServerInfo;
use parhelia_core::config::{Config, DockerSupervisor, Switch};
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::time::{Clock, plus_seconds};
use parhelia_providers::docker::engine::Address;
use parhelia_providers::docker::{DockerConfig, DockerProvider, Supervisor};
use parhelia_providers::fake::FakeProvider;
use parhelia_providers::process::{ProcessConfig, ProcessProvider};
use parhelia_providers::{Provider, SystemClock};
use parhelia_store::{Fence, Owner, Store, StoreError};
use serde_json::json;
use thiserror::Error;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::entropy::{Entropy, SystemEntropy};
use crate::home::{Home, HomeError, ServerLock};
use crate::http::{self, App, Door, TokenHash};
use crate::loops::driver::{self, Ended};
use crate::loops::health::{HealthLoop, Observer};
use crate::loops::reconciler::Reconciler;
use crate::loops::{Context, lease, retention, stopped, vitals};
use crate::service::{ProviderHandle, Service};

/// What open connections and loops get to finish when the server stops.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// How `parhelia up` (or a client that found no server) asks for a server.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    pub home: PathBuf,
    /// A TCP address besides the unix socket; overrides the configuration.
    pub listen: Option<SocketAddr>,
    /// Started by a client that found none: leaves when idle, and yields to `up`.
    pub on_demand: bool,
    pub config: Config,
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
    #[error(transparent)]
    Home(HomeError),
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("cannot listen on {address}: {reason}")]
    Listen { address: String, reason: String },
    #[error(
        "{address} is reachable from other machines, and this server has no TLS: listen on a loopback address such as 127.0.0.1:7717"
    )]
    NotLoopback { address: SocketAddr },
    #[error("'{text}' is not an address: write it as 127.0.0.1:7717")]
    BadAddress { text: String },
    #[error("cannot prepare the process provider in {home}: {reason}")]
    Process { home: PathBuf, reason: String },
    #[error("cannot use Docker: {reason}; or set docker.enabled = false")]
    Docker { reason: String },
    #[error("another server has taken over; this one has stopped and written nothing more")]
    Fenced,
}

impl From<HomeError> for ServeError {
    fn from(error: HomeError) -> Self {
        match error {
            HomeError::Taken { path } => Self::AlreadyServed { home: path },
            other => Self::Home(other),
        }
    }
}

/// Serves until Ctrl-C, SIGTERM, a shutdown request or (on demand) idleness. `on_ready` is called once,
/// when it answers.
pub async fn serve(options: ServeOptions, on_ready: impl FnOnce(&Ready) + Send) -> Result<(), ServeError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy::default());
    let address = tcp_address(&options)?;
    let home = Home::open(&options.home, entropy.as_ref())?;
    let _lock = lock(&home, &clock).await?;
    let store = Store::open_sqlite(&home.database())?;
    let led = lead(&store, &home, &clock, &entropy).await?;
    let tcp = match address {
        Some(address) => Some(TcpListener::bind(address).await.map_err(|e| listen_error(address, &e))?),
        None => None,
    };
    let bound = match &tcp {
        Some(listener) => Some(listener.local_addr().map_err(|e| listen_error("the TCP address", &e))?),
        None => None,
    };
    let socket = unix_listener(&home)?;
    let token = home.admin_token(entropy.as_ref())?;

    let context = Context {
        store: store.clone(),
        fence: led.fence.clone(),
        config: Arc::new(options.config.clone()),
        clock: clock.clone(),
        entropy: entropy.clone(),
    };
    let (stop, stopping) = watch::channel(false);
    let observer = Arc::new(Observer::new(clock.clone()));
    let mut loops = JoinSet::new();
    let docker = docker(&options, &home, &context).await?;
    let mounted = options.config.docker.supervisor != DockerSupervisor::Off && docker.is_some();
    let for_containers = if mounted { Some(container_listener(&home)?) } else { None };
    let handles = start_loops(&options, &home, &context, &observer, &stopping, docker, &mut loops)?;
    let info = ServerInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instance_id: led.instance_id.clone(),
        home: home.path.display().to_string(),
        home_id: home.id.clone(),
        owner_id: led.fence.owner_id.clone(),
        epoch: led.fence.epoch,
        started_at: led.started_at,
        listen: bound.map(|a| a.to_string()),
        on_demand: options.on_demand,
        providers: handles.keys().cloned().collect(),
    };
    let service = Arc::new(Service::new(
        store.clone(),
        handles,
        context.config.clone(),
        clock.clone(),
        entropy,
        led.instance_id.clone(),
        observer,
        stopping.clone(),
    ));
    loops.spawn(vitals::run(service.clone(), stopping.clone()));
    let app = App { service: service.clone(), info: Arc::new(info), stop: Arc::new(Notify::new()) };
    let ring = app.stop.clone();
    let mut doors = open_doors(app.clone(), socket, tcp, &token, &context.config, &stopping);
    if let Some(listener) = for_containers {
        open_to_containers(app, listener, &context.config, &stopping, &mut doors);
    }
    info!(home = %home.path.display(), instance = %led.instance_id, epoch = led.fence.epoch, "serving");
    on_ready(&Ready {
        socket: home.socket(),
        tcp: bound,
        token_file: home.token_file(),
        instance_id: led.instance_id,
    });

    let fenced = wait_for_end(&options, &service, &ring, &mut loops).await;
    let _ = stop.send(true);
    finish(doors, loops).await;
    let ended = end(&store, &led.fence, fenced, clock.as_ref()).await;
    // Our own socket file, and the last thing to go: without it the server has ended. The lock is still ours.
    let _ = fs::remove_file(home.socket());
    ended
}

async fn end(store: &Store, fence: &Fence, fenced: bool, clock: &dyn Clock) -> Result<(), ServeError> {
    if fenced {
        return Err(ServeError::Fenced);
    }
    let event =
        NewEvent::new(EventType::ServerStopped, Source::System, "Server stopped; the sandboxes go on")
            .details(json!({ "owner_id": fence.owner_id, "epoch": fence.epoch }));
    store.end_owner(&fence.owner_id, clock.now(), event).await?;
    store.close().await?;
    info!("stopped; the sandboxes go on");
    Ok(())
}

/// A server that is just leaving no longer answers but still has the lock: it is waited for. One that
/// answers stays.
async fn lock(home: &Home, clock: &Arc<dyn Clock>) -> Result<ServerLock, ServeError> {
    let deadline = clock.monotonic() + STOP_PATIENCE + Duration::from_secs(2);
    loop {
        match home.lock() {
            Err(HomeError::Taken { path }) => {
                let answers = tokio::net::UnixStream::connect(home.socket()).await.is_ok();
                if answers || clock.monotonic() > deadline {
                    return Err(ServeError::AlreadyServed { home: path });
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            other => return Ok(other?),
        }
    }
}

fn tcp_address(options: &ServeOptions) -> Result<Option<SocketAddr>, ServeError> {
    let address = match (options.listen, &options.config.server.listen) {
        (Some(address), _) => address,
        (None, Some(text)) => text.parse().map_err(|_| ServeError::BadAddress { text: text.clone() })?,
        (None, None) => return Ok(None),
    };
    if address.ip().is_loopback() { Ok(Some(address)) } else { Err(ServeError::NotLoopback { address }) }
}

fn listen_error(address: impl ToString, e: &std::io::Error) -> ServeError {
    let reason = match e.kind() {
        std::io::ErrorKind::AddrInUse => format!("{e}; another program has it: choose another port"),
        _ => e.to_string(),
    };
    ServeError::Listen { address: address.to_string(), reason }
}

/// A socket file left by a dead server is replaced: the lock proves that nobody listens on it.
fn unix_listener(home: &Home) -> Result<UnixListener, ServeError> {
    let path = home.socket();
    let shown = path.display().to_string();
    match fs::remove_file(&path) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(listen_error(shown, &e)),
    }
    // The home is 0700, so nobody else can reach the socket before its own mode is set.
    let listener = UnixListener::bind(&path).map_err(|e| listen_error(&shown, &e))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(|e| listen_error(&shown, &e))?;
    Ok(listener)
}

/// Every user of a container must be able to reach it there; here the home's own mode keeps everybody out.
fn container_listener(home: &Home) -> Result<UnixListener, ServeError> {
    let dir = home.door();
    let path = dir.join("parhelia.sock");
    let shown = path.display().to_string();
    let failed = |e: std::io::Error| listen_error(&shown, &e);
    fs::create_dir_all(&dir).map_err(failed)?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    match fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(failed)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).map_err(failed)?;
    Ok(listener)
}

fn open_to_containers(
    app: App,
    listener: UnixListener,
    config: &Config,
    stopping: &watch::Receiver<bool>,
    doors: &mut JoinSet<()>,
) {
    let routes = http::heartbeat_router(app, config.server.max_body_bytes as usize);
    let mut stopping = stopping.clone();
    let over = async move { stopped(&mut stopping).await };
    let serving = axum::serve(listener, routes).with_graceful_shutdown(over);
    doors.spawn(async move {
        if let Err(e) = serving.into_future().await {
            error!(error = %e, "the containers' socket failed");
        }
    });
}

struct Led {
    fence: Fence,
    instance_id: String,
    started_at: parhelia_core::Timestamp,
}

/// Takes the lead under a new epoch: whatever an earlier server still had in flight is refused from here on.
async fn lead(
    store: &Store,
    home: &Home,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
) -> Result<Led, ServeError> {
    let now = clock.now();
    let instance_id = store.this_instance(&entropy.uuid(), now).await?;
    let owner_id = entropy.uuid();
    let lease_until = plus_seconds(now, lease::LEASE_SECONDS);
    store
        .register_owner(&Owner {
            id: owner_id.clone(),
            home_id: home.id.clone(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot_id: fs::read_to_string("/proc/sys/kernel/random/boot_id")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            epoch: 0,
            started_at: now,
            lease_until,
            ended_at: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })
        .await?;
    // Forced: on SQLite the lock on the home, which we hold, proves that the former holder is gone.
    let epoch = store.take_leadership(&owner_id, lease_until, now, true).await?;
    let event = NewEvent::new(EventType::ServerStarted, Source::System, format!("Server started (epoch {epoch})"))
        .details(json!({ "owner_id": owner_id, "epoch": epoch, "version": env!("CARGO_PKG_VERSION"), "home_id": home.id }));
    store.append_events(vec![event], now).await?;
    Ok(Led { fence: Fence { owner_id, epoch }, instance_id, started_at: now })
}

/// The docker provider, unless it is off or (`auto`) nothing speaks for an engine here: no address was given,
/// the usual socket is not there, and no container of one is recorded.
async fn docker(
    options: &ServeOptions,
    home: &Home,
    context: &Context,
) -> Result<Option<DockerProvider>, ServeError> {
    let config = &options.config.docker;
    let env = |name: &str| std::env::var(name).ok();
    if config.enabled == Switch::Off {
        return Ok(None);
    }
    let address = Address::find(config.host.as_deref(), config.cert_path.as_deref(), env)
        .map_err(|reason| ServeError::Docker { reason })?;
    if config.enabled == Switch::Auto {
        let named = config.host.is_some() || env("DOCKER_HOST").is_some_and(|host| !host.is_empty());
        let there = matches!(&address, Address::Unix(path) if path.exists());
        if !named && !there && context.store.tracked("docker").await?.is_empty() {
            return Ok(None);
        }
    }
    info!(%address, "the docker provider is on");
    Ok(Some(DockerProvider::new(DockerConfig {
        address,
        timeout: Duration::from_secs(options.config.reconciler.provider_timeout_seconds),
        pull: config.pull,
        remove_after_seconds: config.remove_after_seconds,
        secrets: home.secrets(),
        supervisor: Supervisor {
            mode: config.supervisor,
            binary: options.supervisor.clone(),
            door: home.door(),
            heartbeat_interval_seconds: options.config.health.heartbeat_interval_seconds,
        },
        clock: context.clock.clone(),
    })))
}

fn start_loops(
    options: &ServeOptions,
    home: &Home,
    context: &Context,
    observer: &Arc<Observer>,
    stopping: &watch::Receiver<bool>,
    docker: Option<DockerProvider>,
    loops: &mut JoinSet<Ended>,
) -> Result<BTreeMap<String, ProviderHandle>, ServeError> {
    let process = ProcessProvider::new(ProcessConfig {
        home: home.path.clone(),
        home_id: home.id.clone(),
        supervisor: options.supervisor.clone(),
        heartbeat_interval_seconds: options.config.health.heartbeat_interval_seconds,
        output_rotate_bytes: options.config.process.output_rotate_bytes,
        clock: context.clock.clone(),
    })
    .map_err(|e| ServeError::Process { home: home.path.clone(), reason: e.to_string() })?;
    let mut providers: Vec<Arc<dyn Provider>> = vec![Arc::new(process)];
    providers.extend(docker.map(|docker| Arc::new(docker) as Arc<dyn Provider>));
    if let Some(world) = &options.config.fake_world {
        warn!(%world, "the fake provider is on: it runs nothing, it is for tests");
        providers.push(Arc::new(FakeProvider::in_file(PathBuf::from(world), context.clock.clone())));
    }
    let mut handles = BTreeMap::new();
    for provider in providers {
        let (requests, queue) = driver::requests();
        let reconciler = Reconciler::new(context.clone(), provider.clone());
        loops.spawn(driver::reconcile(context.clone(), reconciler, queue, stopping.clone()));
        handles.insert(provider.name().to_owned(), ProviderHandle { provider, requests });
    }
    loops.spawn(HealthLoop::new(context.clone(), observer.clone()).run(stopping.clone()));
    loops.spawn(retention::run(context.clone(), stopping.clone()));
    loops.spawn(lease::run(context.clone(), stopping.clone()));
    Ok(handles)
}

fn open_doors(
    app: App,
    socket: UnixListener,
    tcp: Option<TcpListener>,
    token: &str,
    config: &Config,
    stopping: &watch::Receiver<bool>,
) -> JoinSet<()> {
    let limit = config.server.max_body_bytes as usize;
    let mut doors = JoinSet::new();
    let stopped = |mut stopping: watch::Receiver<bool>| async move { stopped(&mut stopping).await };
    let local = http::router(app.clone(), Door::Socket, limit);
    let serving = axum::serve(socket, local).with_graceful_shutdown(stopped(stopping.clone()));
    doors.spawn(async move {
        if let Err(e) = serving.into_future().await {
            error!(error = %e, "the unix socket failed");
        }
    });
    if let Some(listener) = tcp {
        let remote = http::router(app, Door::Tcp(TokenHash::of(token)), limit);
        let serving = axum::serve(listener, remote).with_graceful_shutdown(stopped(stopping.clone()));
        doors.spawn(async move {
            if let Err(e) = serving.into_future().await {
                error!(error = %e, "the TCP address failed");
            }
        });
    }
    doors
}

/// True when the lead was lost.
async fn wait_for_end(
    options: &ServeOptions,
    service: &Service,
    ring: &Notify,
    loops: &mut JoinSet<Ended>,
) -> bool {
    let mut terminate = signal(SignalKind::terminate()).ok();
    let terminated = async {
        match &mut terminate {
            Some(signal) => drop(signal.recv().await),
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => false,
        () = terminated => false,
        () = ring.notified() => false,
        () = idle(options, service) => false,
        ended = loops.join_next() => {
            // No loop ends by itself: either the lead is lost, or it panicked. Both mean: stop, and let the
            // next server start afresh from the store.
            error!(?ended, "a control loop has ended");
            matches!(ended, Some(Ok(Ended::Fenced)))
        }
    }
}

/// Ends when a server that was started on demand is no longer needed.
async fn idle(options: &ServeOptions, service: &Service) {
    if !options.on_demand {
        return std::future::pending().await;
    }
    let limit = options.config.server.idle_exit_seconds as f64;
    loop {
        let left = limit - service.seconds_since_asked();
        if left > 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(left.clamp(0.05, 60.0))).await;
            continue;
        }
        match service.has_work().await {
            Ok(false) => {
                info!("nothing is running and nobody has asked for {limit}s: leaving");
                return;
            }
            _ => tokio::time::sleep(Duration::from_secs_f64(limit.clamp(0.05, 60.0))).await,
        }
    }
}

async fn finish(mut doors: JoinSet<()>, mut loops: JoinSet<Ended>) {
    let all = async {
        while doors.join_next().await.is_some() {}
        while loops.join_next().await.is_some() {}
    };
    if tokio::time::timeout(STOP_PATIENCE, all).await.is_err() {
        warn!("some work did not finish in time; the next start completes it");
    }
}
