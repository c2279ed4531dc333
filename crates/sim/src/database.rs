//! One server's connection to the store that all of them share: a place to die around every write, faults, and
//! a witness to who wrote what in which epoch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use parhelia_store::sqlite::Inline;
use parhelia_store::{Database, Expect, Query, Script, StepOutcome, StoreError, Take};
use tokio::sync::watch;

use crate::breakage::Breakage;
use crate::edge::Dice;
use crate::interrupt::breath;

/// Statements that change no row and no event that the invariants look at.
const QUIET: &[&str] = &[
    "guard",
    "heartbeat_touch",
    "heartbeat_insert",
    "heartbeat_workers",
    "heartbeats_fold",
    "heartbeats_delete",
    "heartbeat_hours_delete",
    "events_delete",
    "cycles_delete",
    "cycle_insert",
    "provider_save",
];
/// What a server may do whoever leads: each of these is right however often and by whomever it is done.
const UNFENCED: &[&str] =
    &["aggregate_heartbeats", "delete_old_events", "delete_old_heartbeat_hours", "delete_old_cycles"];

/// What is known of all connections together.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The epoch of the last election.
    leader: AtomicI64,
    changed: AtomicBool,
    /// Of a hundred writes, so many fail: half of them before their commit, half after it.
    failing_percent: AtomicU64,
    pub(crate) failed_writes: AtomicU64,
    pub(crate) refused: AtomicU64,
    usurped: Mutex<Option<String>>,
}

impl Ledger {
    pub(crate) fn elected(&self, epoch: i64) {
        self.leader.store(epoch, Ordering::Relaxed);
        self.changed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn fail(&self, percent: u64) {
        self.failing_percent.store(percent, Ordering::Relaxed);
    }

    pub(crate) fn fails(&self) -> bool {
        self.failing_percent.load(Ordering::Relaxed) > 0
    }

    /// Everything is to be read again.
    pub(crate) fn touch(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Whether rows or events may have changed since this was last asked.
    pub(crate) fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }

    /// What a server wrote after another was elected, if one did.
    pub(crate) fn take_usurped(&self) -> Option<String> {
        self.usurped.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn written(&self, epoch: i64, name: &'static str, outcomes: &[StepOutcome], events: &[usize]) {
        let leader = self.leader.load(Ordering::Relaxed);
        if epoch == leader || UNFENCED.contains(&name) {
            return;
        }
        let told = events.iter().filter_map(|step| outcomes.get(*step)?.rows.first()?.first()?.as_int());
        let told: Vec<i64> = told.collect();
        *self.usurped.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!(
            "the server of epoch {epoch} wrote '{name}' (events {told:?}) although epoch {leader} leads"
        ));
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) inner: Arc<Inline>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) dice: Arc<Dice>,
    pub(crate) epoch: i64,
    pub(crate) breakage: Option<Breakage>,
}

impl Connection {
    /// A write that fails now, and is kept (`true`) or not.
    fn fault(&self) -> Option<bool> {
        let percent = self.ledger.failing_percent.load(Ordering::Relaxed);
        let fails = percent > 0 && self.dice.chance(percent);
        fails.then(|| {
            self.ledger.failed_writes.fetch_add(1, Ordering::Relaxed);
            self.dice.chance(50)
        })
    }

    fn break_contract(&self, script: &mut Script) {
        match self.breakage {
            Some(Breakage::Unfenced) => {
                script
                    .steps
                    .iter_mut()
                    .filter(|s| s.sql.name == "guard")
                    .for_each(|s| s.expect = Expect::Any);
            }
            Some(Breakage::Untold) if script.name == "observe" => {
                script.steps.pop_if(|step| step.sql.name == "event");
            }
            _ => {}
        }
    }
}

fn lost(kept: bool) -> StoreError {
    let what = if kept { "the answer to a commit was lost" } else { "it did not answer" };
    StoreError::Unavailable { what: what.to_owned(), fix: "it comes back by itself".to_owned() }
}

#[async_trait]
impl Database for Connection {
    async fn write(&self, mut script: Script) -> Result<Vec<StepOutcome>, StoreError> {
        breath().await;
        let fault = self.fault();
        if fault == Some(false) {
            return Err(lost(false));
        }
        self.break_contract(&mut script);
        let name = script.name;
        let events: Vec<usize> =
            script.steps.iter().enumerate().filter(|(_, s)| s.sql.name == "event").map(|(i, _)| i).collect();
        let changes = script.steps.iter().any(|step| !QUIET.contains(&step.sql.name));
        let done = self.inner.write(script).await;
        match &done {
            Ok(outcomes) => {
                self.ledger.written(self.epoch, name, outcomes, &events);
                self.ledger.changed.fetch_or(changes, Ordering::Relaxed);
            }
            Err(StoreError::Fenced { .. }) => {
                self.ledger.refused.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {}
        }
        breath().await;
        if fault == Some(true) { Err(lost(true)) } else { done }
    }

    async fn read(&self, query: Query, take: Take) -> Result<(), StoreError> {
        self.inner.read(query, take).await
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.inner.probe().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn queue_depth(&self) -> usize {
        0
    }

    fn commits(&self) -> watch::Receiver<i64> {
        self.inner.commits()
    }
}
