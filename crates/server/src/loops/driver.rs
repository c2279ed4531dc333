//! What makes the loops go round: timers, provider hints and requests. Nothing here decides anything; a
//! hint only makes the next pass come sooner.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parhelia_core::TRACES;
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::job::StartStep;
use parhelia_core::time::{Clock, seconds_between};
use parhelia_store::StoreError;
use serde_json::json;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tracing::{Instrument, error, info_span};

use super::jobs::JobNews;
use super::reconciler::{PassReport, Reconciler};
use super::{Context, stopped};
use crate::startup::{Said, StartLog};

/// While something is being started, stopped or operated on, and after a pass that failed.
pub const BUSY_PERIOD: Duration = Duration::from_secs(2);
/// Passes are never closer than this, nor closer than the last one took: a storm of hints cannot occupy us.
pub const LEAST_PAUSE: Duration = Duration::from_millis(20);
/// However long a pass took, a request is not kept waiting for longer than this.
const MOST_DEAF: Duration = Duration::from_secs(1);
/// Requests for a pass that wait for it at once; more are told to come again.
const REQUESTS: usize = 64;

/// The handle by which the service asks for a pass.
#[derive(Debug, Clone)]
pub struct PassRequests {
    soon: Arc<Notify>,
    ask: mpsc::Sender<Asker>,
}

/// Waits for a pass, and is told why it failed if it did.
type Asker = oneshot::Sender<Result<(), String>>;

impl PassRequests {
    /// Look soon; nobody waits for it.
    pub fn poke(&self) {
        self.soon.notify_one();
    }

    /// Returns when a pass that began after this call has ended: `None` when there is none to be had, else
    /// whether it failed, and why.
    pub async fn pass(&self) -> Option<Result<(), String>> {
        let (done, wait) = oneshot::channel();
        self.ask.send(done).await.ok()?;
        wait.await.ok()
    }
}

/// Why a loop ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    Shutdown,
    /// Another server leads: this one must stop at once.
    Fenced,
}

/// The receiving half, for `drive`.
#[derive(Debug)]
pub struct PassQueue {
    soon: Arc<Notify>,
    asked: mpsc::Receiver<Asker>,
}

impl PassQueue {
    /// Whether somebody asked to look soon since this was last asked: for the simulation, which has no loop that waits.
    pub fn take_poke(&self) -> bool {
        self.soon.notified().now_or_never().is_some()
    }
}

/// Outlives the loop that reads it: a server may lose the lead and win it again.
pub type SharedQueue = Arc<tokio::sync::Mutex<PassQueue>>;

pub fn requests() -> (PassRequests, SharedQueue) {
    let soon = Arc::new(Notify::new());
    let (ask, asked) = mpsc::channel(REQUESTS);
    let queue = PassQueue { soon: soon.clone(), asked };
    (PassRequests { soon, ask }, Arc::new(tokio::sync::Mutex::new(queue)))
}

/// Whom a reconciler waits for at the start, and whom it tells of its passes.
#[derive(Debug, Clone)]
pub struct Company {
    pub start: Arc<StartLog>,
    pub jobs: Arc<JobNews>,
    /// Its first pass is the step of the start that looks for orphans.
    pub first: bool,
}

/// Runs one provider's reconciler until shutdown.
pub async fn reconcile(
    context: Context,
    reconciler: Reconciler,
    queue: SharedQueue,
    company: Company,
    mut shutdown: watch::Receiver<bool>,
) -> Ended {
    // Nobody is called an orphan, and nothing is ended, before every job of this home is classified.
    tokio::select! {
        () = stopped(&mut shutdown) => return Ended::Shutdown,
        () = company.start.inherited() => {}
    }
    // Nobody else wants it while this loop runs; the one after it goes on with it.
    let mut queue = queue.lock().await;
    let queue = &mut *queue;
    let meter = context.metrics.loops.meter("reconciler", reconciler.provider().name());
    let poll = Duration::from_secs(context.config.reconciler.poll_interval_seconds);
    let mut trigger = "start";
    let mut waiting: Vec<Asker> = Vec::new();
    let mut failing: Option<String> = None;
    loop {
        while let Ok(more) = queue.asked.try_recv() {
            waiting.push(more);
        }
        let began = context.clock.monotonic();
        let pass = meter.begin(context.clock.as_ref());
        let passed = reconciler
            .pass(trigger)
            .instrument(
                info_span!(target: TRACES, "reconcile", provider = reconciler.provider().name(), trigger),
            )
            .await;
        pass.end(passed.is_ok());
        let (pause, outcome) = match passed {
            Ok(report) => {
                failing = None;
                if report.acted || trigger == "hint" {
                    company.jobs.poke();
                }
                if company.first && !company.start.is_finished() {
                    let counts = &report.counts;
                    let message = format!(
                        "{} sandboxes, {} orphans, {} suspects",
                        counts.sandboxes, counts.orphans, counts.suspected
                    );
                    let step =
                        company.start.step(StartStep::Orphans, Said::ok(message), context.clock.as_ref());
                    if step.await.is_err() {
                        return Ended::Fenced;
                    }
                }
                (pause(&report, poll, context.clock.as_ref()), Ok(()))
            }
            Err(StoreError::Fenced { .. }) => return Ended::Fenced,
            Err(e) => {
                let why = e.to_string();
                if failing.as_ref() != Some(&why)
                    && failed(&context, reconciler.provider().name(), &why).await
                {
                    failing = Some(why.clone());
                }
                (BUSY_PERIOD.min(poll), Err(why))
            }
        };
        for done in waiting.drain(..) {
            let _ = done.send(outcome.clone());
        }
        let took = context.clock.monotonic().saturating_sub(began);
        tokio::select! {
            () = stopped(&mut shutdown) => return Ended::Shutdown,
            () = tokio::time::sleep(took.clamp(LEAST_PAUSE, MOST_DEAF.min(poll))) => {}
        }
        trigger = tokio::select! {
            () = stopped(&mut shutdown) => return Ended::Shutdown,
            () = tokio::time::sleep(pause.saturating_sub(took.max(LEAST_PAUSE))) => "timer",
            () = reconciler.provider().changed() => "hint",
            () = queue.soon.notified() => "request",
            Some(done) = queue.asked.recv() => {
                waiting.push(done);
                "request"
            }
        };
    }
}

/// How long after a pass the next one comes by itself.
pub fn pause(report: &PassReport, poll: Duration, clock: &dyn Clock) -> Duration {
    let now = clock.now();
    let wake =
        report.wake_at.map(|at| Duration::from_secs_f64(seconds_between(now, at).clamp(0.0, 86_400.0)));
    let busy = (report.busy || report.failures > 0).then_some(BUSY_PERIOD);
    [Some(poll), wake, busy].into_iter().flatten().min().unwrap_or(poll)
}

/// Tells of it once, until it works again or fails for another reason. False when even that failed: the store
/// may be what is broken, and then the log has to do.
async fn failed(context: &Context, provider: &str, why: &str) -> bool {
    error!(provider, error = %why, "a reconcile pass failed; the next one starts afresh");
    let message = format!("Reconcile pass failed: {why}");
    let event = NewEvent::new(EventType::ReconcileFailed, Source::Reconciler, message)
        .details(json!({ "provider": provider }));
    context.store.announce(&context.fence, vec![event], context.clock.now()).await.is_ok()
}
