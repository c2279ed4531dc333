//! Requests and connections. Heartbeats come by the ten thousand a second, so every handle is made when its route is
//! added and a request only counts.

use axum::response::Response;
use parhelia_core::TRACES;
use parhelia_core::time::Clock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tracing::field::Empty;
use tracing::{Instrument, info_span};

use super::Names;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    route: String,
    method: &'static str,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct At {
    door: &'static str,
}

const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

#[derive(Debug)]
pub struct Doors {
    requests: Family<Answered, Counter>,
    duration: Family<Route, Histogram, fn() -> Histogram>,
    connections: Family<At, Gauge>,
    turned_away: Family<At, Counter>,
}

fn buckets() -> Histogram {
    Histogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0])
}

impl Doors {
    pub(super) fn new(names: &mut Names) -> Self {
        Self {
            requests: names.add(
                "http_requests",
                "Requests that were answered, by route, method and class of status",
                Family::default(),
            ),
            duration: names.add(
                "http_request_duration_seconds",
                "From the head of a request to the head of its answer",
                Family::new_with_constructor(buckets as fn() -> Histogram),
            ),
            connections: names.add(
                "connections_open",
                "Connections that are open, by door",
                Family::default(),
            ),
            turned_away: names.add(
                "connections_turned_away",
                "Connections for which there was no place, by door",
                Family::default(),
            ),
        }
    }

    pub fn route(&self, route: &str, method: &'static str) -> RouteMeter {
        let answered = |status| Answered { route: route.to_owned(), method, status };
        RouteMeter {
            name: format!("{method} {route}"),
            classes: CLASSES.map(|status| self.requests.get_or_create_owned(&answered(status))),
            duration: self.duration.get_or_create_owned(&Route { route: route.to_owned(), method }),
        }
    }

    pub fn door(&self, door: &'static str) -> DoorMeter {
        let at = At { door };
        DoorMeter {
            open: self.connections.get_or_create_owned(&at),
            turned_away: self.turned_away.get_or_create_owned(&at),
        }
    }
}

#[derive(Debug)]
pub struct RouteMeter {
    name: String,
    classes: [Counter; 4],
    duration: Histogram,
}

#[derive(Debug)]
pub struct DoorMeter {
    open: Gauge,
    turned_away: Counter,
}

impl DoorMeter {
    pub fn turned_away(&self) {
        self.turned_away.inc();
    }

    pub fn enter(&self) -> Inside {
        self.open.inc();
        Inside(self.open.clone())
    }
}

/// A connection, for as long as it lasts.
#[derive(Debug)]
pub struct Inside(Gauge);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl RouteMeter {
    /// Around every route.
    pub async fn measure(&self, clock: &dyn Clock, answer: impl Future<Output = Response>) -> Response {
        let began = clock.monotonic();
        let span = info_span!(
            target: TRACES, "http", otel.name = self.name, otel.kind = "server", http.response.status_code = Empty
        );
        let response = answer.instrument(span.clone()).await;
        span.record("http.response.status_code", response.status().as_u16());
        self.duration.observe(clock.monotonic().saturating_sub(began).as_secs_f64());
        self.answered(response.status().as_u16());
        response
    }

    pub fn answered(&self, status: u16) {
        let class = usize::from(status / 100).saturating_sub(2).min(CLASSES.len() - 1);
        self.classes[class].inc();
    }
}
