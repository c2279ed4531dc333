//! Starting and stopping a server: home → lock → sockets → store → lead → loops → doors, and back again. Stopping
//! leaves every sandbox running.

mod begin;
mod doors;
mod ending;
mod leading;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parhelia_core::api::ServerInfo;
use parhelia_core::config::{Config, DockerSupervisor};
use parhelia_core::time::Clock;
use parhelia_providers::SystemClock;
use parhelia_store::StoreError;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::info;

use self::begin::{Begun, begin, lock};
pub(crate) use self::begin::{boot_id, host};
use self::doors::{
    SocketFile, container_listener, limits, listen_error, open_doors, tcp_address, unix_listener,
};
use self::ending::{asked_to_stop, end, finish, wait_for_end};
use self::leading::{docker, hear_wakes, start_loops};
use crate::entropy::{Entropy, SystemEntropy};
use crate::home::{Home, HomeError};
use crate::http::{self, App, Listener};
use crate::loops::driver::Company;
use crate::loops::health::Observer;
use crate::loops::jobs::JobNews;
use crate::loops::sessions::SessionsLoop;
use crate::loops::{Context, guests, vitals};
use crate::relay::clickhouse::ClickHouse;
use crate::relay::{Hub, MonitorLog, alerts};
use crate::service::Service;
use crate::startup::StartLog;
use crate::tls;
use crate::waiting::{self, Doorway, GaveUp};

/// What open connections and loops get to finish when the server stops.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// A server that a command started waits for its database no longer than that command would.
const ON_DEMAND_PATIENCE: Duration = Duration::from_secs(10);

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
        "{address} is reachable from other machines: give --tls-cert and --tls-key, listen on a loopback address such as 127.0.0.1:7717, or say --insecure-listen if the network itself is trusted"
    )]
    NotLoopback { address: SocketAddr },
    #[error(
        "TLS needs both a certificate and a key: give --tls-cert and --tls-key (server.tls_cert, server.tls_key)"
    )]
    HalfTls,
    #[error("cannot use {path} for TLS: {reason}")]
    Tls { path: String, reason: String },
    #[error("'{text}' is not an address: write it as 127.0.0.1:7717")]
    BadAddress { text: String },
    #[error("cannot prepare the process provider in {home}: {reason}")]
    Process { home: PathBuf, reason: String },
    #[error(
        "a control loop failed ({0}), and without it nothing is watched: this server has stopped; start it again"
    )]
    LoopFailed(String),
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
    let began = clock.monotonic();
    let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy::default());
    let address = tcp_address(&options)?;
    let tls = tls::acceptor(&options.config.server)?;
    let home = Home::open(&options.home, entropy.as_ref())?;
    let _lock = lock(&home, &clock).await?;
    let shared = options.config.server.database_url.is_some();
    if !shared {
        Home::check_unshared(&home.path)?;
    }
    let tcp = match address {
        Some(address) => Some(TcpListener::bind(address).await.map_err(|e| listen_error(address, &e))?),
        None => None,
    };
    let bound = match &tcp {
        Some(listener) => Some(listener.local_addr().map_err(|e| listen_error("the TCP address", &e))?),
        None => None,
    };
    // Gone with us, and before the lock: without it the server has ended.
    let _file = SocketFile(home.socket());
    let socket = unix_listener(&home)?;
    let token = home.admin_token(entropy.as_ref())?;
    let mut asked = asked_to_stop();
    let begin = async || begin(&options, &home, &clock, &entropy).await;
    let begun = if shared {
        let limits = limits(&options.config);
        let doorway = Doorway { socket: &socket, tcp: tcp.as_ref(), tls: tls.as_ref(), limits };
        let patience = options.on_demand.then_some(ON_DEMAND_PATIENCE);
        match waiting::until_there(doorway, patience, &mut asked, begin).await {
            Ok(begun) => begun,
            Err(GaveUp::Stopped) => return Ok(()),
            Err(GaveUp::Error(error)) => return Err(error.into()),
        }
    } else {
        begin().await?
    };
    let Begun { store, led, before, docker_recorded, steps } = begun;
    if shared {
        home.mark_shared(&led.instance_id)?;
    }
    let start = Arc::new(StartLog::new(
        store.clone(),
        led.fence.clone(),
        led.started_at,
        began,
        steps,
        clock.as_ref(),
    ));
    let jobs: Arc<JobNews> = Arc::default();

    let context = Context {
        store: store.clone(),
        fence: led.fence.clone(),
        config: Arc::new(options.config.clone()),
        clock: clock.clone(),
        entropy: entropy.clone(),
        observer: Arc::new(Observer::new(clock.clone())),
        metrics: Arc::default(),
    };
    let (stop, stopping) = watch::channel(false);
    let mut loops = JoinSet::new();
    let docker = docker(&options, &home, &context, docker_recorded)?;
    let mounted = options.config.docker.supervisor != DockerSupervisor::Off && docker.is_some();
    let for_containers = if mounted { Some(container_listener(&home)?) } else { None };
    let posts = alerts::posts(&options.config, &home.secrets());
    let clickhouse = ClickHouse::new(&options.config.clickhouse, &home.secrets()).map(Arc::new);
    let shown = clickhouse.clone().map(|clickhouse| (clickhouse, led.instance_id.clone()));
    let company = Company { start: start.clone(), jobs: jobs.clone(), first: false };
    let (handles, lead) =
        start_loops(&options, &home, &context, &stopping, docker, posts.clone(), shown, company, &mut loops)?;
    let info = ServerInfo {
        version: parhelia_core::VERSION.to_owned(),
        instance_id: led.instance_id.clone(),
        home: home.path.display().to_string(),
        home_id: home.id.clone(),
        owner_id: led.fence.owner_id.clone(),
        epoch: led.fence.epoch,
        leads: lead.borrow().is_some(),
        started_at: led.started_at,
        listen: bound.map(|a| a.to_string()),
        on_demand: options.on_demand,
        providers: handles.keys().cloned().collect(),
    };
    let service = Service::new(
        store.clone(),
        handles,
        context.config.clone(),
        clock.clone(),
        entropy,
        led.instance_id.clone(),
        context.observer.clone(),
        lead,
        context.metrics.clone(),
        stopping.clone(),
    );
    let owner_id = context.fence.owner_id.clone();
    let service = Arc::new(
        service
            .with_posts(posts)
            .with_jobs(jobs)
            .with_clickhouse(clickhouse)
            .owned_by(owner_id)
            .as_program(options.supervisor.display().to_string()),
    );
    if let Some(wakes) = store.wakes() {
        loops.spawn(hear_wakes(service.clone(), wakes, stopping.clone()));
    }
    loops.spawn(SessionsLoop::new(service.clone()).run(start.clone(), stopping.clone()));
    loops.spawn(vitals::run(service.clone(), stopping.clone()));
    loops.spawn(guests::run(service.clone(), stopping.clone()));
    let streams = options.config.server.max_streams as usize;
    let (hub, tail) = Hub::new(&store, before, streams, context.metrics.history.clone());
    loops.spawn(hub.clone().run(tail, stopping.clone()));
    if options.config.monitor_log.enabled {
        let log = MonitorLog::new(&home.path, &options.config.monitor_log);
        loops.spawn(log.run(store.clone(), before, stopping.clone()));
    }
    let app = App::from(http::Shared {
        service: service.clone(),
        hub,
        metrics: context.metrics.clone(),
        info,
        stop: Arc::new(Notify::new()),
        document: OnceLock::new(),
    });
    let ring = app.stop.clone();
    let mut listeners = vec![Listener::Socket(socket)];
    listeners.extend(tcp.map(|tcp| Listener::Tcp(tcp, tls)));
    listeners.extend(for_containers.map(Listener::Containers));
    let doors = open_doors(app, listeners, &token, &context.config, &stopping);
    info!(home = %home.path.display(), instance = %led.instance_id, epoch = led.fence.epoch, "serving");
    on_ready(&Ready {
        socket: home.socket(),
        tcp: bound,
        token_file: home.token_file(),
        instance_id: led.instance_id,
    });

    let trouble = wait_for_end(&options, &service, &ring, &mut asked, &mut loops).await;
    let _ = stop.send(true);
    finish(doors, loops).await;
    end(&store, &led.fence, trouble, clock.as_ref()).await
}

/// Whether a database address can be understood; the error never repeats it.
pub fn check_database_url(url: &str) -> Result<(), StoreError> {
    parhelia_store::postgres::check_url(url)
}
