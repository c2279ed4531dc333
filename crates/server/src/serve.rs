//! Starting and stopping a server: home → lock → sockets → store → lead → loops → doors, and back again. Stopping
//! leaves every sandbox running.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parhelia_core::api::ServerInfo;
use parhelia_core::config::{Config, DockerSupervisor, Switch};
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::job::{StartStep, Startup, StepReport};
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
use tokio::sync::{Notify, broadcast, watch};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::entropy::{Entropy, SystemEntropy};
use crate::home::{Home, HomeError, ServerLock};
use crate::http::{self, App, Gate, Limits, Listener};
use crate::loops::driver::{self, Company, Ended, SharedQueue};
use crate::loops::election::{Election, Lead};
use crate::loops::health::{HealthLoop, Observer};
use crate::loops::jobs::{JobNews, JobsLoop};
use crate::loops::reconciler::Reconciler;
use crate::loops::sessions::SessionsLoop;
use crate::loops::{Context, guests, lease, retention, stopped, vitals};
use crate::relay::alerts::{self, Posts};
use crate::relay::clickhouse::{self, ClickHouse};
use crate::relay::{Hub, MonitorLog};
use crate::service::{ProviderHandle, Service};
use crate::startup::{self, Said, StartLog};
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
    let begun = if options.config.server.database_url.is_some() {
        let doorway = Doorway { socket: &socket, tcp: tcp.as_ref() };
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
    let (hub, tail) = Hub::new(&store, streams, context.metrics.history.clone()).await?;
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

/// Our own socket file; the lock is still ours when it goes.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// What a server has once its database has answered.
struct Begun {
    store: Store,
    led: Led,
    /// The last event of those who were here before us.
    before: i64,
    docker_recorded: bool,
    /// The steps of this start until here.
    steps: Vec<StepReport>,
}

/// May be tried again from the beginning if the database goes away in the middle.
async fn begin(
    options: &ServeOptions,
    home: &Home,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
) -> Result<Begun, StoreError> {
    let began = clock.monotonic();
    let store = match &options.config.server.database_url {
        Some(url) => Store::open_postgres(&url.0).await?,
        None => Store::open_sqlite(&home.database())?,
    };
    let before = store.last_event_id().await?;
    let (led, steps) = lead(&store, home, clock, entropy, began).await?;
    let docker_recorded = !store.tracked("docker").await?.is_empty();
    Ok(Begun { store, led, before, docker_recorded, steps })
}

async fn end(
    store: &Store,
    fence: &Fence,
    trouble: Option<ServeError>,
    clock: &dyn Clock,
) -> Result<(), ServeError> {
    if let Some(trouble) = trouble {
        return Err(trouble);
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
    let server = &options.config.server;
    let trusted = address.ip().is_loopback() || server.tls_cert.is_some() || server.insecure_listen;
    if trusted { Ok(Some(address)) } else { Err(ServeError::NotLoopback { address }) }
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

struct Led {
    fence: Fence,
    instance_id: String,
    started_at: parhelia_core::Timestamp,
}

/// Becomes an owner. On SQLite it takes the lead with it, under a new epoch: whatever an earlier server still had in flight is refused from here on.
async fn lead(
    store: &Store,
    home: &Home,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
    began: Duration,
) -> Result<(Led, Vec<StepReport>), StoreError> {
    let now = clock.now();
    let instance_id = store.this_instance(&entropy.uuid(), now).await?;
    let owner_id = entropy.uuid();
    let lease_until = plus_seconds(now, lease::LEASE_SECONDS);
    let host = host();
    store
        .register_owner(&Owner {
            id: owner_id.clone(),
            home_id: home.id.clone(),
            host: host.clone(),
            boot_id: boot_id(),
            epoch: 0,
            started_at: now,
            lease_until,
            ended_at: None,
            version: parhelia_core::VERSION.to_owned(),
        })
        .await?;
    store.note_home(&owner_id, &home.path.display().to_string()).await?;
    let startup = Startup {
        owner_id: owner_id.clone(),
        host,
        version: parhelia_core::VERSION.to_owned(),
        started_at: now,
        finished_at: None,
        steps: Vec::new(),
    };
    let cut_off = startup::begin(store, &home.id, &startup).await?;
    let opened = Said::ok(match cut_off {
        Some(what) => format!("opened; {what}: everything is looked at again"),
        None => "opened".to_owned(),
    });
    let opened_at = clock.monotonic();
    let mut steps =
        vec![startup::report(StartStep::Store, opened, clock.now(), opened_at.saturating_sub(began))];
    store.note_startup(&owner_id, &steps, None).await?;
    // We have the lock of the home: whatever an earlier server of it still has under way is refused from here on.
    store.supersede_owners(&home.id, &owner_id, now).await?;
    let shared = store.seat().is_some();
    let fence = if shared {
        Fence::of_owner(owner_id)
    } else {
        // Forced: the lock on the home proves that the former holder is gone.
        let epoch = store.take_leadership(&owner_id, lease_until, now, true).await?;
        Fence { owner_id, epoch }
    };
    let message =
        if shared { "Server started".to_owned() } else { format!("Server started (epoch {})", fence.epoch) };
    let event = NewEvent::new(EventType::ServerStarted, Source::System, message).details(json!({
        "owner_id": fence.owner_id,
        "epoch": if shared { None } else { Some(fence.epoch) },
        "version": parhelia_core::VERSION,
        "home_id": home.id,
    }));
    store.announce(&fence, vec![event], now).await?;
    let led = if shared {
        "an owner; the lead is up to the election".to_owned()
    } else {
        format!("leads in epoch {}", fence.epoch)
    };
    let took = clock.monotonic().saturating_sub(opened_at);
    steps.push(startup::report(StartStep::Leadership, Said::ok(led), clock.now(), took));
    store.note_startup(&fence.owner_id, &steps, None).await?;
    Ok((Led { fence, instance_id, started_at: now }, steps))
}

/// This machine, and this run of it.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The docker provider, unless it is off or (`auto`) nothing speaks for an engine here: no address was given,
/// the usual socket is not there, and no container of one is recorded.
fn docker(
    options: &ServeOptions,
    home: &Home,
    context: &Context,
    recorded: bool,
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
        if !named && !there && !recorded {
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

#[allow(clippy::too_many_arguments, reason = "called once, at the start of a server")]
fn start_loops(
    options: &ServeOptions,
    home: &Home,
    context: &Context,
    stopping: &watch::Receiver<bool>,
    docker: Option<DockerProvider>,
    posts: Posts,
    shown: Option<(Arc<ClickHouse>, String)>,
    company: Company,
    loops: &mut JoinSet<Ended>,
) -> Result<(BTreeMap<String, ProviderHandle>, Lead), ServeError> {
    let seat = context.store.seat();
    let process = ProcessProvider::new(ProcessConfig {
        home: home.path.clone(),
        home_id: home.id.clone(),
        supervisor: options.supervisor.clone(),
        heartbeat_interval_seconds: options.config.health.heartbeat_interval_seconds,
        output_rotate_bytes: options.config.process.output_rotate_bytes,
        keep_ended_seconds: options.config.jobs.keep_days * 86_400,
        clock: context.clock.clone(),
    })
    .map_err(|e| ServeError::Process { home: home.path.clone(), reason: e.to_string() })?;
    // Only this server can see the processes of its home, so it reconciles them whoever leads; where several
    // homes share a store, each has rows of its own.
    let process = match &seat {
        Some(_) => process.named(format!("process:{}", home.id.get(..8).unwrap_or(&home.id))),
        None => process,
    };
    let mut providers: Vec<(Arc<dyn Provider>, bool)> = vec![(Arc::new(process), false)];
    providers.extend(docker.map(|docker| (Arc::new(docker) as Arc<dyn Provider>, true)));
    if let Some(world) = &options.config.fake_world {
        warn!(%world, "the fake provider is on: it runs nothing, it is for tests");
        providers.push((Arc::new(FakeProvider::in_file(PathBuf::from(world), context.clock.clone())), true));
    }
    let (mut handles, mut queues) = (BTreeMap::new(), Vec::new());
    for (provider, shared) in providers {
        let (requests, queue) = driver::requests();
        handles.insert(
            provider.name().to_owned(),
            ProviderHandle { provider: provider.clone(), requests, shared },
        );
        if shared {
            queues.push((provider, queue));
        } else {
            let watch =
                JobsLoop::new(context.clone(), provider.clone(), company.jobs.clone(), company.start.clone());
            loops.spawn(watch.run(stopping.clone()));
            let reconciler = Reconciler::new(context.clone(), provider).with_jobs(company.jobs.clone());
            let company = Company { first: true, ..company.clone() };
            loops.spawn(driver::reconcile(context.clone(), reconciler, queue, company, stopping.clone()));
        }
    }
    loops.spawn(lease::run(context.clone(), seat.is_none(), stopping.clone()));
    let (lead, held) = watch::channel(seat.is_none().then(|| context.fence.clone()));
    let (tell, fenced) = watch::channel(0);
    let leading = Leading { context: context.clone(), queues, posts, shown, company, fenced: tell };
    match seat {
        Some(seat) => {
            let election =
                Election { context: context.clone(), seat, home_id: home.id.clone(), lead, fenced };
            loops.spawn(election.run(stopping.clone()));
            loops.spawn(leading.while_led(held.clone(), stopping.clone()));
        }
        None => leading.start(&context.fence, stopping, loops),
    }
    Ok((handles, held))
}

/// The loops that there is one of, run by the leader.
struct Leading {
    context: Context,
    queues: Vec<(Arc<dyn Provider>, SharedQueue)>,
    /// The epoch of a lead in which a loop has ended.
    fenced: watch::Sender<i64>,
    posts: Posts,
    /// Where sessions are shown, and the store's instance.
    shown: Option<(Arc<ClickHouse>, String)>,
    company: Company,
}

impl Leading {
    fn start(&self, fence: &Fence, stopping: &watch::Receiver<bool>, loops: &mut JoinSet<Ended>) {
        let context = Context { fence: fence.clone(), ..self.context.clone() };
        for (provider, queue) in &self.queues {
            let Company { start, jobs, .. } = self.company.clone();
            loops.spawn(JobsLoop::new(context.clone(), provider.clone(), jobs, start).run(stopping.clone()));
            let reconciler = Reconciler::new(context.clone(), provider.clone());
            let company = self.company.clone();
            loops.spawn(driver::reconcile(
                context.clone(),
                reconciler,
                queue.clone(),
                company,
                stopping.clone(),
            ));
        }
        loops.spawn(HealthLoop::new(context.clone()).run(stopping.clone()));
        loops.spawn(alerts::run(context.clone(), self.posts.clone(), stopping.clone()));
        if let Some((clickhouse, instance)) = self.shown.clone() {
            loops.spawn(clickhouse::run(context.clone(), clickhouse, instance, stopping.clone()));
        }
        loops.spawn(retention::run(context, stopping.clone()));
    }

    /// Starts them when the lead is won and stops them at once, wherever they are, when it is lost.
    async fn while_led(self, mut lead: Lead, mut stopping: watch::Receiver<bool>) -> Ended {
        loop {
            let mut loops = JoinSet::new();
            let fence = lead.borrow_and_update().clone();
            if let Some(fence) = &fence {
                // While another led, nobody watched here, and that must age nobody (contract 11).
                self.context.observer.was_away();
                self.start(fence, &stopping, &mut loops);
            }
            tokio::select! {
                () = stopped(&mut stopping) => {
                    while loops.join_next().await.is_some() {}
                    return Ended::Shutdown;
                }
                changed = lead.changed() => {
                    if changed.is_err() {
                        return Ended::Shutdown;
                    }
                }
                Some(ended) = loops.join_next() => {
                    warn!(?ended, "a loop of the leader has ended");
                    self.fenced.send_replace(fence.map_or(0, |fence| fence.epoch));
                    // The election answers by giving the lead up.
                    let _ = lead.changed().await;
                }
            }
            loops.shutdown().await;
        }
    }
}

/// What other servers ask to look at.
async fn hear_wakes(
    service: Arc<Service>,
    mut wakes: broadcast::Receiver<String>,
    mut stopping: watch::Receiver<bool>,
) -> Ended {
    loop {
        tokio::select! {
            () = stopped(&mut stopping) => return Ended::Shutdown,
            heard = wakes.recv() => match heard {
                Ok(name) => service.woken(&name),
                Err(broadcast::error::RecvError::Lagged(_)) => service.poke_all(),
                Err(broadcast::error::RecvError::Closed) => {
                    stopped(&mut stopping).await;
                    return Ended::Shutdown;
                }
            },
        }
    }
}

/// Whether a database address can be understood; the error never repeats it.
pub fn check_database_url(url: &str) -> Result<(), StoreError> {
    parhelia_store::postgres::check_url(url)
}

/// One router behind every door: a door only says who comes in.
fn open_doors(
    app: App,
    listeners: Vec<Listener>,
    token: &str,
    config: &Config,
    stopping: &watch::Receiver<bool>,
) -> JoinSet<()> {
    let server = &config.server;
    let limits = Limits {
        connections: server.max_connections as usize,
        patience: Duration::from_secs(server.client_patience_seconds),
    };
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

/// Ctrl-C or SIGTERM, from here on: heard once, whoever asks.
fn asked_to_stop() -> watch::Receiver<bool> {
    let (tell, heard) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate()).ok();
    tokio::spawn(async move {
        let terminated = async {
            match &mut terminate {
                Some(signal) => drop(signal.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            () = terminated => {}
        }
        tell.send_replace(true);
    });
    heard
}

/// Gives the reason when it is not an ordinary end.
async fn wait_for_end(
    options: &ServeOptions,
    service: &Service,
    ring: &Notify,
    asked: &mut watch::Receiver<bool>,
    loops: &mut JoinSet<Ended>,
) -> Option<ServeError> {
    tokio::select! {
        () = stopped(asked) => None,
        () = ring.notified() => None,
        () = idle(options, service) => None,
        ended = loops.join_next() => {
            // No loop ends by itself: either the lead is lost, or it panicked. Both mean: stop, and let the
            // next server start afresh from the store.
            error!(?ended, "a control loop has ended");
            match ended {
                Some(Ok(Ended::Fenced)) => Some(ServeError::Fenced),
                other => Some(ServeError::LoopFailed(format!("{other:?}"))),
            }
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
