//! Gathers the high-rate inputs: scripts that are nothing but batch statements without guards. While one
//! transaction is under way the next ones wait, and then go together. If together they fail, each is run alone,
//! so that nobody pays for a neighbour.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::{QUEUE, Shared};
use crate::error::{Result, StoreError};
use crate::script::{Expect, Script, Step, StepOutcome};

/// Steps that share one transaction, at most: bounds how long the first of them waits.
const STEPS: usize = 12_000;
/// Gatherers of each kind: while one waits for its commit, the other fills.
const HANDS: usize = 2;

struct Job {
    script: Script,
    reply: oneshot::Sender<Result<Vec<StepOutcome>>>,
    _place: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub(super) struct Gather {
    heartbeats: mpsc::Sender<Job>,
    events: mpsc::Sender<Job>,
}

pub(super) fn can_be_gathered(script: &Script) -> bool {
    matches!(script.name, "heartbeats" | "append_events")
        && script.steps.iter().all(|step| step.sql.batch.is_some() && step.expect == Expect::Any)
}

impl Gather {
    pub(super) fn start(shared: &Arc<Shared>) -> Self {
        let start = |hands: usize| {
            let (jobs, queue) = mpsc::channel(QUEUE);
            let queue = Arc::new(tokio::sync::Mutex::new(queue));
            for _ in 0..hands {
                tokio::spawn(work(shared.clone(), queue.clone()));
            }
            jobs
        };
        // Two transactions of heartbeats would only wait for each other's rows.
        Self { heartbeats: start(1), events: start(HANDS) }
    }

    pub(super) async fn write(
        &self,
        script: Script,
        place: OwnedSemaphorePermit,
    ) -> Result<Vec<StepOutcome>> {
        let (reply, answer) = oneshot::channel();
        let jobs = if script.name == "heartbeats" { &self.heartbeats } else { &self.events };
        let job = Job { script, reply, _place: place };
        jobs.send(job).await.map_err(|_| StoreError::closed())?;
        answer.await.map_err(|_| StoreError::closed())?
    }
}

/// Ends when the store and its sender are gone.
async fn work(shared: Arc<Shared>, queue: Arc<tokio::sync::Mutex<mpsc::Receiver<Job>>>) {
    loop {
        let mut group = Vec::new();
        {
            let mut queue = queue.lock().await;
            let Some(first) = queue.recv().await else { return };
            let mut steps = first.script.steps.len();
            group.push(first);
            while steps < STEPS {
                let Ok(more) = queue.try_recv() else { break };
                steps += more.script.steps.len();
                group.push(more);
            }
        }
        together(&shared, group).await;
    }
}

async fn together(shared: &Arc<Shared>, mut group: Vec<Job>) {
    if group.len() > 1 {
        let mut scripts: Vec<&mut Script> = group.iter_mut().map(|job| &mut job.script).collect();
        let (merged, places) = merge(&mut scripts);
        match shared.run(&merged).await {
            Ok(mut outcomes) => {
                for (job, places) in group.into_iter().zip(places) {
                    let own = places.into_iter().map(|i| std::mem::take(&mut outcomes[i])).collect();
                    let _ = job.reply.send(Ok(own));
                }
                return;
            }
            // Whether it was kept is not known: running each again could keep it twice.
            Err(StoreError::Unavailable { what, fix }) => {
                for job in group {
                    let error = StoreError::Unavailable { what: what.clone(), fix: fix.clone() };
                    let _ = job.reply.send(Err(error));
                }
                return;
            }
            Err(_) => part(merged, &mut group, &places),
        }
    }
    for job in group {
        let result = shared.run(&job.script).await;
        let _ = job.reply.send(result);
    }
}

/// One script of all: statement by statement, so that each statement's steps stand in a row. Gives where each
/// script's steps went.
fn merge(scripts: &mut [&mut Script]) -> (Script, Vec<Vec<usize>>) {
    let mut merged = Script::new(scripts[0].name);
    let mut places: Vec<Vec<usize>> = scripts.iter().map(|s| vec![0; s.steps.len()]).collect();
    let mut taken: Vec<Vec<Option<Step>>> =
        scripts.iter_mut().map(|s| s.steps.drain(..).map(Some).collect()).collect();
    let mut at = vec![0; taken.len()];
    while let Some(first) = taken.iter().zip(&at).position(|(steps, at)| *at < steps.len()) {
        let Some(kind) = taken[first][at[first]].as_ref().map(|step| step.sql.index) else { break };
        for script in 0..taken.len() {
            while let Some(step) = taken[script].get_mut(at[script])
                && step.as_ref().is_some_and(|step| step.sql.index == kind)
                && let Some(mut step) = step.take()
            {
                step.only_if = step.only_if.map(|on| places[script][on]);
                places[script][at[script]] = merged.steps.len();
                merged.steps.push(step);
                at[script] += 1;
            }
        }
    }
    (merged, places)
}

/// The reverse of [`merge`].
fn part(merged: Script, group: &mut [Job], places: &[Vec<usize>]) {
    let mut steps: Vec<Option<Step>> = merged.steps.into_iter().map(Some).collect();
    for (job, places) in group.iter_mut().zip(places) {
        for place in places {
            let Some(mut step) = steps[*place].take() else { continue };
            step.only_if = step.only_if.and_then(|on| places.iter().position(|p| *p == on));
            job.script.steps.push(step);
        }
    }
}
