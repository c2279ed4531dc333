//! The health loop: moves containers along the liveness ladder. It owns `health_status` and
//! `consecutive_failures`, and the observer's memory of when it last heard whom.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use parhelia_core::Timestamp;
use parhelia_core::config::Config;
use parhelia_core::ids::ContainerId;
use parhelia_core::liveness::{Patient, plan_health};
use parhelia_core::state::Health;
use parhelia_core::time::Clock;
use parhelia_store::{PatientRow, StoreError};
use tokio::sync::{Notify, watch};
use tracing::{error, info};

use super::driver::Ended;
use super::{Context, stopped};

/// A pass that comes this much later than three periods: the process itself was stopped meanwhile.
const FROZEN: Duration = Duration::from_secs(20);

/// While another server judges, whoever has not been heard for this long is forgotten here.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// When this process last heard each container, on its own monotonic clock. Shared with the intake.
#[derive(Debug)]
pub struct Observer {
    clock: Arc<dyn Clock>,
    /// On the monotonic clock, when it began to watch.
    since: Mutex<Duration>,
    /// On the monotonic clock, when the last health pass began; none while another server judges.
    last_pass: Mutex<Option<Duration>>,
    ears: Mutex<HashMap<ContainerId, Ear>>,
    /// Somebody was heard who was not healthy: look soon.
    pub good_news: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Ear {
    at: Duration,
    heard: bool,
    stored: Option<Timestamp>,
    healthy: bool,
}

impl Observer {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let since = Mutex::new(clock.monotonic());
        Self { clock, since, last_pass: Mutex::default(), ears: Mutex::default(), good_news: Notify::new() }
    }

    /// How long it has been listening without a break.
    pub fn watching_seconds(&self) -> f64 {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        self.clock.monotonic().saturating_sub(since).as_secs_f64()
    }

    /// We could not listen for a while (frozen, or the store took nothing): nobody is older for that, and the
    /// resumption window begins anew.
    pub fn was_away(&self) {
        let now = self.clock.monotonic();
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = now;
        for ear in self.ears.lock().unwrap_or_else(PoisonError::into_inner).values_mut() {
            ear.at = now;
        }
    }

    /// Whom we could not have heard, as whoever brings their signs of life did not answer: nobody is older for that.
    pub fn was_deaf_to<'i>(&self, ids: impl Iterator<Item = &'i ContainerId>) {
        let now = self.clock.monotonic();
        let mut ears = self.ears.lock().unwrap_or_else(PoisonError::into_inner);
        for id in ids {
            if let Some(ear) = ears.get_mut(id) {
                ear.at = now;
            }
        }
    }

    /// Whoever is heard next is good news if it was called anything but healthy.
    fn judged<'i>(&self, judged: impl Iterator<Item = (&'i ContainerId, Health)>) {
        let mut ears = self.ears.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, health) in judged {
            if let Some(ear) = ears.get_mut(id) {
                ear.healthy = health == Health::Healthy;
            }
        }
    }

    /// Whether this process was stopped since its last health pass, and no other pass has made up for that yet.
    pub(super) fn is_just_back(&self, config: &Config) -> bool {
        let last = *self.last_pass.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|last| self.clock.monotonic().saturating_sub(last) > absence(config))
    }

    fn passes(&self, at: Option<Duration>) {
        *self.last_pass.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// How long this process has not heard it; `None` when it never listened for it.
    pub fn silent_seconds(&self, id: &ContainerId) -> Option<f64> {
        let ears = self.ears.lock().unwrap_or_else(PoisonError::into_inner);
        ears.get(id).map(|ear| self.clock.monotonic().saturating_sub(ear.at).as_secs_f64())
    }

    /// A health pass forgets who is no patient any more. Where there is none, that is done before this memory grows.
    fn make_room(&self, ears: &mut HashMap<ContainerId, Ear>, now: Duration) {
        let judges = self.last_pass.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if !judges && ears.len() == ears.capacity() {
            ears.retain(|_, ear| now.saturating_sub(ear.at) < FORGOTTEN);
        }
    }

    /// A heartbeat has become durable.
    pub fn heard<'i>(&self, ids: impl Iterator<Item = &'i ContainerId>, received_at: Timestamp) {
        let at = self.clock.monotonic();
        let mut news = false;
        let mut ears = self.ears.lock().unwrap_or_else(PoisonError::into_inner);
        for id in ids {
            let ear = Ear { at, heard: true, stored: Some(received_at), healthy: false };
            match ears.get_mut(id) {
                Some(known) => *known = Ear { healthy: known.healthy, ..ear },
                None => {
                    self.make_room(&mut ears, at);
                    ears.insert(id.clone(), ear);
                }
            }
            news |= !ears.get(id).is_some_and(|ear| ear.healthy);
        }
        drop(ears);
        if news {
            self.good_news.notify_one();
        }
    }
}

fn period(config: &Config) -> Duration {
    Duration::from_secs(config.health.check_interval_seconds)
}

/// Between two health passes that are further apart this process was not there.
fn absence(config: &Config) -> Duration {
    period(config) * 3 + FROZEN
}

#[derive(Debug)]
pub struct HealthLoop {
    context: Context,
}

impl Drop for HealthLoop {
    /// From here on another server judges, or nobody.
    fn drop(&mut self) {
        self.context.observer.passes(None);
    }
}

impl HealthLoop {
    pub fn new(context: Context) -> Self {
        context.observer.passes(Some(context.clock.monotonic()));
        Self { context }
    }

    /// Judges everybody, once it is clear for how long we have been able to listen.
    pub async fn pass(&self) -> Result<usize, StoreError> {
        self.notice_own_absence();
        let judged = self.judge().await;
        if judged.as_ref().is_err_and(|e| !matches!(e, StoreError::Fenced { .. })) {
            self.context.observer.was_away();
        }
        judged
    }

    fn period(&self) -> Duration {
        period(&self.context.config)
    }

    /// A pass that comes far too late was held up together with everything else in this process.
    fn notice_own_absence(&self) {
        let observer = &self.context.observer;
        if observer.is_just_back(&self.context.config) {
            observer.was_away();
        }
        observer.passes(Some(self.context.clock.monotonic()));
    }

    async fn judge(&self) -> Result<usize, StoreError> {
        let rows = self.context.store.patients().await?;
        let now = self.context.clock.monotonic();
        let patients = self.examine(rows, now);
        let watched = self.context.observer.watching_seconds();
        let changes = plan_health(&patients, watched, &self.context.config.ladder());
        if changes.is_empty() {
            return Ok(0);
        }
        for change in &changes {
            info!(container = %change.id, "health {} -> {}: {}", change.from, change.to, change.message);
        }
        let applied =
            self.context.store.apply_health(&self.context.fence, &changes, self.context.clock.now()).await?;
        self.context.observer.judged(changes.iter().map(|change| (&change.id, change.to)));
        Ok(applied)
    }

    /// A stored heartbeat that we did not receive ourselves came through another server: it counts from
    /// when we first see it.
    fn examine(&self, rows: Vec<PatientRow>, now: Duration) -> Vec<Patient> {
        let mut ears = self.context.observer.ears.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = HashMap::with_capacity(rows.len());
        let patients = rows.into_iter().map(|(id, task_id, health, stored)| {
            let mut ear =
                ears.get(&id).copied().unwrap_or(Ear { at: now, heard: false, stored, healthy: false });
            // Not only forward: the wall clock may have been set back.
            if stored.is_some() && stored != ear.stored {
                ear = Ear { at: now, heard: true, stored, healthy: false };
            }
            ear.healthy = health == Health::Healthy;
            next.insert(id.clone(), ear);
            let silent_seconds = now.saturating_sub(ear.at).as_secs_f64();
            Patient { id, task_id, health, heard: ear.heard, silent_seconds }
        });
        let patients = patients.collect();
        // Somebody may be heard before the reconciler has seen it run; whoever is no patient by then is
        // forgotten, so that this memory is bounded by the fleet.
        let patience = Duration::from_secs(self.context.config.health.dead_after_seconds);
        for (id, ear) in ears.drain() {
            if now.saturating_sub(ear.at) < patience {
                next.entry(id).or_insert(ear);
            }
        }
        *ears = next;
        patients
    }

    pub async fn run(self, mut shutdown: watch::Receiver<bool>) -> Ended {
        let meter = self.context.metrics.loops.meter("health", "");
        loop {
            let pass = meter.begin(self.context.clock.as_ref());
            let passed = self.pass().await;
            pass.end(passed.is_ok());
            match passed {
                Ok(_) => {}
                Err(StoreError::Fenced { .. }) => return Ended::Fenced,
                Err(e) => error!(error = %e, "a health pass failed; the next one starts afresh"),
            }
            tokio::select! {
                () = stopped(&mut shutdown) => return Ended::Shutdown,
                () = tokio::time::sleep(self.period()) => {}
                () = self.context.observer.good_news.notified() => {
                    // Many arrive together after an outage: one pass for all of them.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use parhelia_providers::SystemClock;

    use super::*;

    /// Time that passes when somebody says so.
    #[derive(Debug, Default)]
    struct Hours(Mutex<u64>);

    impl Clock for Hours {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(3600 * *self.0.lock().unwrap())
        }
    }

    /// A server that follows is told of containers for months, and never judges one.
    #[test]
    fn who_follows_forgets_whom_it_has_not_heard_for_long() {
        let clock = Arc::new(Hours::default());
        let observer = Observer::new(clock.clone());
        let steady = ContainerId::mint(1, 0);
        for n in 1..10_000 {
            *clock.0.lock().unwrap() = n / 100;
            observer.heard([&steady, &ContainerId::mint(1, n)].into_iter(), Timestamp::UNIX_EPOCH);
        }
        let remembered = observer.ears.lock().unwrap().len();
        assert!(remembered < 1000, "{remembered} of 10000");
        assert_eq!(observer.silent_seconds(&steady), Some(0.0));
    }

    /// The ladder is looked at every ten seconds; whoever was called unwell and is heard does not wait for that.
    #[test]
    fn who_was_called_unwell_and_is_heard_is_good_news_at_once() {
        let observer = Observer::new(Arc::new(SystemClock::new()));
        let id = ContainerId::mint(1, 1);
        let heard = |health: Option<Health>| {
            observer.judged(health.map(|health| (&id, health)).into_iter());
            observer.heard(std::iter::once(&id), Timestamp::UNIX_EPOCH);
            observer.good_news.notified().now_or_never().is_some()
        };
        assert!(heard(None), "for the first time");
        assert!(!heard(Some(Health::Healthy)));
        assert!(!heard(None), "it still is");
        assert!(heard(Some(Health::Unhealthy)));
    }
}
