//! One server's connection to the store that all of them share: a place to die around every write, faults, and
//! a witness to who wrote what in which epoch.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use parhelia_store::sqlite::Inline;
use parhelia_store::{Database, Expect, Query, Script, StepOutcome, StoreError, Take, Value};
use tokio::sync::watch;

use crate::breakage::{Breakage, misread};
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
    "owner_renew",
];
/// What a server may do whoever leads, where it does it without a fence: each of these is right however often and by
/// whomever it is done. A wish to end somebody is a person's, or the reconciler's, which has one.
const UNFENCED: &[&str] = &["desire_termination", "renew_owner", "expire_owner"];
/// What the owner of a session does, whoever leads.
const OWNED: &[&str] = &["advance_session", "take_session", "begin_trial", "end_trial"];

/// What is known of all connections together.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The epoch of the last election.
    leader: AtomicI64,
    changed: AtomicBool,
    /// A server that does not lead has asked the one that does for a pass.
    woken: AtomicBool,
    /// Of a hundred writes, so many fail: half of them before their commit, half after it.
    failing_percent: AtomicU64,
    pub(crate) failed_writes: AtomicU64,
    pub(crate) refused: AtomicU64,
    usurped: Mutex<Option<String>>,
    sessions: Mutex<Sessions>,
}

/// Who may write which session, told by the writes alone.
#[derive(Debug, Default)]
struct Sessions {
    touched: BTreeSet<String>,
    holders: BTreeMap<String, (String, i64)>,
    ended: HashSet<String>,
}

/// The writes of a script that sessions are judged by.
#[derive(Debug)]
enum Noted {
    Begun { id: String, owner: String },
    Advanced { id: String, owner: String, epoch: i64 },
    Taken { id: String, owner: String, epoch: i64 },
    Touched { id: String },
    Expired { step: usize, owner: String },
}

/// What is remembered of a script while it is carried out.
#[derive(Debug)]
struct Written {
    name: &'static str,
    fenced: bool,
    /// The places of its events.
    events: Vec<usize>,
}

impl Written {
    fn of(script: &Script) -> Self {
        let named = |name: &'static str| {
            script.steps.iter().enumerate().filter(move |(_, step)| step.sql.name == name).map(|(at, _)| at)
        };
        Self { name: script.name, fenced: named("guard").next().is_some(), events: named("event").collect() }
    }
}

fn noted(script: &Script) -> Vec<Noted> {
    let mut all = Vec::new();
    for (step, it) in script.steps.iter().enumerate() {
        let text = |at: usize| it.params.get(at).and_then(Value::as_text).unwrap_or_default().to_owned();
        let int = |at: usize| it.params.get(at).and_then(Value::as_int).unwrap_or_default();
        all.push(match it.sql.name {
            "session_insert" => Noted::Begun { id: text(0), owner: text(16) },
            "session_advance" => Noted::Advanced { id: text(0), owner: text(1), epoch: int(2) },
            "session_take" => Noted::Taken { id: text(0), owner: text(1), epoch: int(2) + 1 },
            "session_cancel" => Noted::Touched { id: text(0) },
            "owner_expire" => Noted::Expired { step, owner: text(0) },
            _ => continue,
        });
    }
    all
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

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a pass was asked for since this was last asked.
    pub(crate) fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::Relaxed)
    }

    /// The sessions that were written since this was last asked.
    pub(crate) fn take_touched(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.sessions().touched)
    }

    /// Somebody was told something about it: that is to be found in it.
    pub(crate) fn touch_session(&self, id: &str) {
        self.sessions().touched.insert(id.to_owned());
        self.touch();
    }

    /// Whatever it still has under way is to be refused.
    pub(crate) fn owner_ended(&self, owner: &str) {
        self.sessions().ended.insert(owner.to_owned());
    }

    pub(crate) fn has_ended(&self, owner: &str) -> bool {
        self.sessions().ended.contains(owner)
    }

    /// Nobody but its holder writes a session, and nobody who has ended writes any.
    fn judge(&self, writer: &str, name: &'static str, noted: Vec<Noted>, outcomes: &[StepOutcome]) {
        let mut sessions = self.sessions();
        if OWNED.contains(&name) && sessions.ended.contains(writer) {
            self.usurp(format!("the owner {writer} wrote '{name}' although it has ended"));
        }
        for note in noted {
            match note {
                Noted::Begun { id, owner } => {
                    sessions.touched.insert(id.clone());
                    sessions.holders.insert(id, (owner, 1));
                }
                Noted::Taken { id, owner, epoch } => {
                    sessions.touched.insert(id.clone());
                    sessions.holders.insert(id, (owner, epoch));
                }
                Noted::Advanced { id, owner, epoch } => {
                    if sessions.holders.get(&id).is_some_and(|holder| *holder != (owner.clone(), epoch)) {
                        let holder = sessions.holders.get(&id);
                        self.usurp(format!(
                            "{id} was advanced by {owner} in epoch {epoch}, and {holder:?} has it"
                        ));
                    }
                    sessions.touched.insert(id);
                }
                Noted::Touched { id } => drop(sessions.touched.insert(id)),
                Noted::Expired { step, owner } => {
                    if outcomes.get(step).is_some_and(|done| done.touched > 0) {
                        sessions.ended.insert(owner);
                    }
                }
            }
        }
    }

    fn usurp(&self, what: String) {
        *self.usurped.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
    }

    fn written(&self, epoch: Option<i64>, script: &Written, outcomes: &[StepOutcome]) {
        let leader = self.leader.load(Ordering::Relaxed);
        let Some(epoch) = epoch.filter(|epoch| *epoch != leader) else { return };
        let name = script.name;
        if (UNFENCED.contains(&name) && !script.fenced) || OWNED.contains(&name) {
            return;
        }
        let told =
            script.events.iter().filter_map(|step| outcomes.get(*step)?.rows.first()?.first()?.as_int());
        let told: Vec<i64> = told.collect();
        self.usurp(format!(
            "the server of epoch {epoch} wrote '{name}' (events {told:?}) although epoch {leader} leads"
        ));
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) inner: Arc<Inline>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) dice: Arc<Dice>,
    /// In which it leads; absent where it never does.
    pub(crate) epoch: Option<i64>,
    pub(crate) owner: String,
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
            Some(Breakage::RetentionUnfenced) if script.name == "aggregate_heartbeats" => {
                script.steps.iter_mut().take(1).for_each(|guard| guard.expect = Expect::Any);
            }
            Some(Breakage::WishesLost) if script.name == "desire_termination" => {
                let wish = script.steps.iter_mut().find(|s| s.sql.name == "desire_termination");
                wish.into_iter().filter_map(|s| s.params.first_mut()).for_each(|id| *id = Value::Word(""));
            }
            Some(Breakage::LateIsWanted) if script.name == "create_lost" => {
                let observed = script.steps.iter_mut().filter(|s| s.sql.name == "observe");
                let reasons = observed
                    .flat_map(|s| &mut s.params)
                    .filter(|value| value.as_text() == Some("create_lost"));
                reasons.for_each(|reason| *reason = Value::Word("create_failed"));
            }
            Some(Breakage::Untold) if script.name == "observe" => {
                script.steps.pop_if(|step| step.sql.name == "event");
            }
            Some(Breakage::SessionUnfenced) => {
                let fences = ["guard_owner", "session_advance"];
                let fences = script.steps.iter_mut().filter(|s| fences.contains(&s.sql.name));
                fences.for_each(|s| s.expect = Expect::Any);
            }
            Some(Breakage::SignalStays) => script.steps.retain(|s| s.sql.name != "signal_deliver"),
            Some(Breakage::DoneIsForgotten) => {
                let ends = script.steps.iter_mut().filter(|s| s.sql.name == "session_task_end");
                for state in ends.filter_map(|s| s.params.get_mut(2)) {
                    if state.as_text() == Some("completed") {
                        *state = Value::Word("pending");
                    }
                }
            }
            Some(Breakage::SessionUntold) if script.name == "advance_session" => {
                script.steps.retain(|s| s.sql.name != "event");
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
        if name == "answer_wait" && self.breakage == Some(Breakage::AnswersLost) {
            return Ok(Vec::new());
        }
        let noted = noted(&script);
        let written = Written::of(&script);
        let changes = script.steps.iter().any(|step| !QUIET.contains(&step.sql.name));
        let done = self.inner.write(script).await;
        match &done {
            Ok(outcomes) => {
                self.ledger.written(self.epoch, &written, outcomes);
                self.ledger.judge(&self.owner, name, noted, outcomes);
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
        match self.breakage {
            Some(breakage) => {
                let take = misread(breakage, query.sql.name, take);
                self.inner.read(query, take).await
            }
            None => self.inner.read(query, take).await,
        }
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

    fn wake(&self, _name: &str) {
        self.ledger.woken.store(true, Ordering::Relaxed);
    }
}
