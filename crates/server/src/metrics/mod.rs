//! What this server measures of itself, for `/metrics`. Counters are counted where things happen, through handles
//! that were made beforehand; what the store and the kernel know is read when somebody scrapes (`scrape`). It
//! decides nothing, except whether a loop is stuck (`loops`), for `/livez`.

mod clickhouse;
mod doors;
mod fleet;
mod loops;
mod scrape;

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use parhelia_core::event::EventType;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

pub use clickhouse::Projected;
pub use doors::{DoorMeter, Doors, RouteMeter};
pub use loops::{LoopMeter, Loops};
pub(crate) use scrape::{CONTENT_TYPE, scrape};

use fleet::Fleet;

/// A gauge of any number.
type Real = Gauge<f64, AtomicU64>;

/// Everything under one prefix. Names are without it, and without the `_total` that the format adds to counters.
struct Names(Registry);

impl Names {
    fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }
}

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    pub(crate) loops: Loops,
    pub(crate) doors: Doors,
    pub(crate) heartbeats: Heartbeats,
    pub history: History,
    pub(crate) clickhouse: Projected,
    fleet: Fleet,
    server: Server,
    /// One reader of the store at a time, and not again at once.
    reading: tokio::sync::Mutex<scrape::Reading>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Coded {
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Typed {
    r#type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reasoned {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Version {
    version: &'static str,
}

/// The intake.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    accepted: Counter,
    rejected: Family<Coded, Counter>,
    unkept: Counter,
}

/// Why a heartbeat may be refused.
const REFUSALS: [&str; 4] = ["not_yours", "heartbeat_from_the_future", "out_of_range", "unknown_container"];

impl Heartbeats {
    fn new(names: &mut Names) -> Self {
        let rejected = Family::<Coded, Counter>::default();
        // There at 0 before the first: an increase needs a beginning.
        REFUSALS.iter().for_each(|code| drop(rejected.get_or_create(&Coded { code })));
        Self {
            accepted: names.add(
                "heartbeats_accepted",
                "Heartbeats that were made durable",
                Counter::default(),
            ),
            rejected: names.add(
                "heartbeats_rejected",
                "Heartbeats that were refused, by the code of the refusal",
                rejected,
            ),
            unkept: names.add(
                "heartbeat_write_failures",
                "Heartbeats that were good and could not be written",
                Counter::default(),
            ),
        }
    }

    pub(crate) fn accepted(&self, count: usize) {
        self.accepted.inc_by(count as u64);
    }

    pub(crate) fn rejected(&self, code: &'static str) {
        self.rejected.get_or_create(&Coded { code }).inc();
    }

    pub(crate) fn unkept(&self, count: usize) {
        self.unkept.inc_by(count as u64);
    }
}

/// The history and those who follow it live.
#[derive(Debug, Clone)]
pub struct History {
    events: Family<Typed, Counter>,
    resumed: Family<Reasoned, Counter>,
}

impl History {
    fn new(names: &mut Names) -> Self {
        let (events, resumed) = (Family::<Typed, Counter>::default(), Family::<Reasoned, Counter>::default());
        for kind in EventType::ALL {
            drop(events.get_or_create(&Typed { r#type: kind.as_str() }));
        }
        ["behind", "stopping"].iter().for_each(|reason| drop(resumed.get_or_create(&Reasoned { reason })));
        Self {
            events: names.add(
                "events",
                "Events that appeared in the history since this server began, by type",
                events,
            ),
            resumed: names.add(
                "streams_told_to_resume",
                "Live streams that were ended with the word to come again, by reason",
                resumed,
            ),
        }
    }

    pub(crate) fn event(&self, kind: EventType) {
        self.events.get_or_create(&Typed { r#type: kind.as_str() }).inc();
    }

    pub(crate) fn told_to_resume(&self, reason: &'static str) {
        self.resumed.get_or_create(&Reasoned { reason }).inc();
    }
}

/// The process itself and its place among others; set when somebody scrapes.
#[derive(Debug)]
struct Server {
    store_up: Gauge,
    store_writes: Counter,
    store_failures: Counter,
    store_queue: Gauge,
    refusal_queue: Gauge,
    streams: Gauge,
    leads: Gauge,
    epoch: Gauge,
    resident: Gauge,
    cpu: Counter<f64, AtomicU64>,
    fds: Gauge,
    started: Real,
}

impl Server {
    fn new(names: &mut Names) -> Self {
        let version = Version { version: parhelia_core::VERSION };
        names.0.register("build", "What was built", Info::new(version));
        Self {
            store_up: names.add(
                "store_up",
                "Whether the store answers and its last commit went well",
                Gauge::default(),
            ),
            store_writes: names.add(
                "store_writes",
                "Transactions of this server that were made durable",
                Counter::default(),
            ),
            store_failures: names.add(
                "store_write_failures",
                "Transactions that the database could not take; refused guards are not among them",
                Counter::default(),
            ),
            store_queue: names.add(
                "store_queue_depth",
                "Transactions that wait for the writer",
                Gauge::default(),
            ),
            refusal_queue: names.add(
                "refusal_queue_depth",
                "Refused requests that wait to be written down",
                Gauge::default(),
            ),
            streams: names.add("streams_open", "Live streams of events that are open", Gauge::default()),
            leads: names.add("leader", "Whether this server leads", Gauge::default()),
            epoch: names.add(
                "leader_epoch",
                "The epoch in which it leads; 0 while it does not",
                Gauge::default(),
            ),
            resident: names.add(
                "process_resident_memory_bytes",
                "Resident memory of the server",
                Gauge::default(),
            ),
            cpu: names.add("process_cpu_seconds", "Processor time of the server", Counter::default()),
            fds: names.add("process_open_fds", "Open file descriptors of the server", Gauge::default()),
            started: names.add(
                "process_start_time_seconds",
                "When it started, in Unix time",
                Real::default(),
            ),
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut names = Names(Registry::with_prefix("parhelia"));
        Self {
            loops: Loops::new(&mut names),
            doors: Doors::new(&mut names),
            heartbeats: Heartbeats::new(&mut names),
            history: History::new(&mut names),
            clickhouse: Projected::new(&mut names),
            fleet: Fleet::new(&mut names),
            server: Server::new(&mut names),
            reading: tokio::sync::Mutex::default(),
            registry: names.0,
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
