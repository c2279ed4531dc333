//! One start of a server, written down step by step: store, leadership, jobs, sessions, orphans. The steps run on every start and
//! in this order; each may be run again after a start that was cut off. What looks for orphans waits here until every
//! job is classified.

use std::sync::Mutex;
use std::time::Duration;

use parhelia_core::Timestamp;
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::job::{StartStep, Startup, StepReport};
use parhelia_core::time::Clock;
use parhelia_store::{Fence, Store, StoreError};
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::{info, warn};

/// How many starts are kept.
pub const KEPT: i64 = 10;

#[derive(Debug)]
pub struct StartLog {
    store: Store,
    fence: Fence,
    started_at: Timestamp,
    /// On the monotonic clock.
    began: Duration,
    steps: Mutex<Steps>,
    /// The last step that others wait for.
    reached: watch::Sender<Option<StartStep>>,
}

#[derive(Debug, Default)]
struct Steps {
    done: Vec<StepReport>,
    /// When the step under way began.
    began: Duration,
    finished: bool,
}

/// What a step has to say.
#[derive(Debug, Default)]
pub struct Said {
    pub ok: bool,
    pub message: String,
    pub details: Value,
}

impl Said {
    pub fn ok(message: impl Into<String>) -> Self {
        Self { ok: true, message: message.into(), details: Value::Null }
    }
}

impl StartLog {
    /// The row of this start is there already: [`begin`] wrote it.
    pub fn new(
        store: Store,
        fence: Fence,
        started_at: Timestamp,
        began: Duration,
        done: Vec<StepReport>,
        clock: &dyn Clock,
    ) -> Self {
        let steps = Steps { began: clock.monotonic(), done, finished: false };
        Self { store, fence, started_at, began, steps: Mutex::new(steps), reached: watch::Sender::new(None) }
    }

    pub fn started_at(&self) -> Timestamp {
        self.started_at
    }

    /// Milliseconds since the server began to start.
    pub fn elapsed_ms(&self, clock: &dyn Clock) -> i64 {
        millis(clock.monotonic().saturating_sub(self.began))
    }

    /// Returns when every job has been looked at once.
    pub async fn classified(&self) {
        // The sender is ours, so it cannot be gone.
        let _ = self.reached.subscribe().wait_for(Option::is_some).await;
    }

    /// Returns when the sessions of those who were here before have somebody who goes on with them.
    pub async fn inherited(&self) {
        let _ = self.reached.subscribe().wait_for(|step| *step == Some(StartStep::Sessions)).await;
    }

    /// A step is over. Its being written down holds nobody up: the next step writes all of them again.
    pub async fn step(&self, step: StartStep, said: Said, clock: &dyn Clock) -> Result<(), StoreError> {
        let Some(steps) = self.add(step, said, clock) else { return Ok(()) };
        let last = step == StartStep::Orphans;
        let now = clock.now();
        let written = if last {
            self.store.finish_startup(&self.fence, &steps, self.completed(&steps, now), now).await
        } else {
            self.store.note_startup(&self.fence.owner_id, &steps, None).await
        };
        if matches!(step, StartStep::Jobs | StartStep::Sessions) {
            self.reached.send_replace(Some(step));
        }
        match written {
            Err(fenced @ StoreError::Fenced { .. }) => Err(fenced),
            Err(error) => {
                warn!(%error, %step, "a step of this start could not be written down");
                if last {
                    // Once more at the next pass.
                    locked(&self.steps).done.retain(|report| report.step != step);
                }
                Ok(())
            }
            Ok(()) => {
                if last {
                    locked(&self.steps).finished = true;
                }
                Ok(())
            }
        }
    }

    pub fn is_finished(&self) -> bool {
        locked(&self.steps).finished
    }

    /// `None` when that step was made before.
    fn add(&self, step: StartStep, said: Said, clock: &dyn Clock) -> Option<Vec<StepReport>> {
        let mut steps = locked(&self.steps);
        if steps.done.iter().any(|report| report.step == step) {
            return None;
        }
        let now = clock.monotonic();
        let report = report(step, said, clock.now(), now.saturating_sub(steps.began));
        info!(step = %step, ms = report.duration_ms, "{}", report.message);
        steps.began = now;
        steps.done.push(report);
        Some(steps.done.clone())
    }

    fn completed(&self, steps: &[StepReport], now: Timestamp) -> NewEvent {
        let jobs = steps.iter().find(|report| report.step == StartStep::Jobs);
        let message = match jobs {
            Some(jobs) => format!("Start completed: {}", jobs.message),
            None => "Start completed".to_owned(),
        };
        let took = now.duration_since(self.started_at).as_millis().max(0);
        NewEvent::new(EventType::StartupCompleted, Source::System, message).details(json!({
            "owner_id": self.fence.owner_id,
            "duration_ms": i64::try_from(took).unwrap_or(i64::MAX),
            "jobs": jobs.map(|jobs| jobs.details.clone()),
        }))
    }
}

/// The intent to start, before anything else is done; says whether the start before was cut off.
pub async fn begin(store: &Store, home_id: &str, startup: &Startup) -> Result<Option<String>, StoreError> {
    store.begin_startup(startup, KEPT).await?;
    let before = store.startup_before(home_id, &startup.owner_id).await?;
    Ok(before.filter(|before| before.finished_at.is_none()).map(|before| {
        let reached = before.steps.last().map_or("its first step", |report| report.step.as_str());
        format!("the start before, of {}, was cut off after {reached}", before.started_at)
    }))
}

pub fn report(step: StartStep, said: Said, at: Timestamp, took: Duration) -> StepReport {
    StepReport {
        step,
        at,
        duration_ms: millis(took),
        ok: said.ok,
        message: said.message,
        details: said.details,
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn locked(steps: &Mutex<Steps>) -> std::sync::MutexGuard<'_, Steps> {
    steps.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
