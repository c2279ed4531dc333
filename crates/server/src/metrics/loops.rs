//! How the control loops go: when each last went well, how long a pass takes, and whether one is stuck.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use parhelia_core::time::Clock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::{Names, Real, locked};

/// `provider` is empty for the loops that there is one of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    r#loop: &'static str,
    provider: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfProvider {
    provider: String,
}

type Durations = Family<Labels, Histogram, fn() -> Histogram>;

/// A pass that does nothing takes a millisecond, one that waits for a provider up to minutes.
fn buckets() -> Histogram {
    Histogram::new([0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0])
}

#[derive(Debug)]
pub struct Loops {
    duration: Durations,
    last_duration: Family<Labels, Real>,
    failures: Family<Labels, Counter>,
    last_success: Family<Labels, Real>,
    reachable: Family<OfProvider, Gauge>,
    known: Mutex<Vec<Arc<LoopMeter>>>,
}

/// One loop of one server.
#[derive(Debug)]
pub struct LoopMeter {
    labels: Labels,
    duration: Histogram,
    last_duration: Real,
    failures: Counter,
    last_success: Real,
    /// Milliseconds of the monotonic clock at which the pass under way began, and one; 0 when there is none.
    began: AtomicU64,
}

/// A pass under way. Dropped without its end, it counts for nothing: the loop was stopped.
#[derive(Debug)]
#[must_use]
pub struct Pass<'a> {
    meter: &'a LoopMeter,
    clock: &'a dyn Clock,
    began: Duration,
}

impl Loops {
    pub(super) fn new(names: &mut Names) -> Self {
        Self {
            duration: names.add(
                "loop_pass_duration_seconds",
                "How long the passes of a control loop take",
                Family::new_with_constructor(buckets as fn() -> Histogram),
            ),
            last_duration: names.add(
                "loop_last_pass_duration_seconds",
                "How long the last pass of a control loop took",
                Family::default(),
            ),
            failures: names.add("loop_failures", "Passes of a control loop that failed", Family::default()),
            last_success: names.add(
                "loop_last_success_timestamp_seconds",
                "When a pass of a control loop last went well, in Unix time; 0 before the first",
                Family::default(),
            ),
            reachable: names.add(
                "provider_reachable",
                "Whether a provider answered the last pass over it",
                Family::default(),
            ),
            known: Mutex::default(),
        }
    }

    /// The meter of a loop; the same one when the loop is started again.
    pub fn meter(&self, name: &'static str, provider: &str) -> Arc<LoopMeter> {
        let labels = Labels { r#loop: name, provider: provider.to_owned() };
        let mut known = locked(&self.known);
        if let Some(meter) = known.iter().find(|meter| meter.labels == labels) {
            return meter.clone();
        }
        let meter = Arc::new(LoopMeter {
            duration: self.duration.get_or_create_owned(&labels),
            last_duration: self.last_duration.get_or_create_owned(&labels),
            failures: self.failures.get_or_create_owned(&labels),
            last_success: self.last_success.get_or_create_owned(&labels),
            began: AtomicU64::new(0),
            labels,
        });
        known.push(meter.clone());
        meter
    }

    pub fn reachable(&self, provider: &str, answered: bool) {
        let labels = OfProvider { provider: provider.to_owned() };
        self.reachable.get_or_create(&labels).set(i64::from(answered));
    }

    /// A loop whose pass has been under way for longer than `limit`, and for how long.
    pub fn stuck(&self, now: Duration, limit: Duration) -> Option<(String, Duration)> {
        locked(&self.known).iter().find_map(|meter| {
            let took = meter.under_way(now).filter(|took| *took > limit)?;
            let Labels { r#loop, provider } = &meter.labels;
            let of = if provider.is_empty() { String::new() } else { format!(" of {provider}") };
            Some((format!("{loop}{of}"), took))
        })
    }
}

impl LoopMeter {
    pub fn begin<'a>(&'a self, clock: &'a dyn Clock) -> Pass<'a> {
        let began = clock.monotonic();
        self.began.store(millis(began) + 1, Ordering::Relaxed);
        Pass { meter: self, clock, began }
    }

    fn under_way(&self, now: Duration) -> Option<Duration> {
        let began = self.began.load(Ordering::Relaxed).checked_sub(1)?;
        Some(now.saturating_sub(Duration::from_millis(began)))
    }
}

impl Pass<'_> {
    pub fn end(self, well: bool) {
        let took = self.clock.monotonic().saturating_sub(self.began).as_secs_f64();
        self.meter.duration.observe(took);
        self.meter.last_duration.set(took);
        if well {
            self.meter.last_success.set(self.clock.now().as_millisecond() as f64 / 1000.0);
        } else {
            self.meter.failures.inc();
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.meter.began.store(0, Ordering::Relaxed);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX - 1)
}

#[cfg(test)]
mod tests {
    use parhelia_providers::SystemClock;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn a_pass_is_stuck_only_while_it_is_under_way() {
        let loops = Loops::new(&mut Names(Registry::default()));
        let clock = SystemClock::new();
        let meter = loops.meter("reconciler", "docker");
        let later = clock.monotonic() + Duration::from_secs(100);
        let limit = Duration::from_secs(60);
        assert_eq!(loops.stuck(later, limit), None, "it has not begun");
        let pass = meter.begin(&clock);
        assert_eq!(loops.stuck(clock.monotonic(), limit), None, "it has just begun");
        assert_eq!(loops.stuck(later, limit).unwrap().0, "reconciler of docker");
        drop(pass);
        assert_eq!(loops.stuck(later, limit), None, "its loop was stopped");
        assert_eq!(meter.failures.get(), 0);
        meter.begin(&clock).end(false);
        meter.begin(&clock).end(true);
        assert_eq!(loops.stuck(later, limit), None);
        assert_eq!(loops.meter("reconciler", "docker").failures.get(), 1, "it is the same one");
        assert!(meter.last_success.get() > 1e9);
    }
}
