//! Contracts broken on purpose, at the edges of the real code: each shows that an invariant can fail, and
//! that the simulation notices when it does.

use std::sync::Arc;

use clap::ValueEnum;
use parhelia_core::config::Config;
use parhelia_store::{Cells, Rows, StoreError, Take, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Breakage {
    /// A failed listing is taken for an empty one, a failed inspection for an absence.
    FailureIsAbsence,
    /// The fence of a write is asked and not heeded.
    Unfenced,
    /// The same of retention alone.
    RetentionUnfenced,
    /// A state is written without its event.
    Untold,
    /// A create that was not answered is simply sent again, whatever the provider makes of it.
    BlindRetry,
    /// The listing is filtered by instance wrongly: sandboxes of others seem to be ours.
    EverythingIsOurs,
    /// The listing leaves out what was started by hand.
    HalfBlind,
    /// A request to stop is taken and forgotten.
    StopIsForgotten,
    /// A stop ends the whole fleet rather than the one that was named.
    StopsTooMuch,
    /// What runs is taken for an orphan.
    RunningIsOrphaned,
    /// What is to be kept is taken for what is not.
    KeepIsForgotten,
    /// Orphans and the stale are ended although nobody has switched that on.
    PoliciesUnasked,
    /// Silence ends long before its hours are over.
    HoursAreMinutes,
    /// That somebody wants a container ended is acknowledged and not kept.
    WishesLost,
    /// A create that was not answered is taken for lost while it may still arrive.
    GivenUpAtOnce,
    /// A create that was lost is taken for one that failed: what arrives after all is wanted.
    LateIsWanted,
    /// A restarted server goes on with the ages that it had counted before.
    OutageAges,
    /// Heartbeats are acknowledged and not kept.
    HeartbeatsLost,
    /// What a task runs in is taken for gone while it is not known to run.
    UnknownIsGone,
    /// What a task runs in is taken for gone once its end was asked for.
    AskedIsGone,
    /// The fences of a session are asked and not heeded.
    SessionUnfenced,
    /// Nobody goes on with the sessions of a dead server.
    NoHeirs,
    /// A signal that was taken stays where it was.
    SignalStays,
    /// Answers are acknowledged and not kept.
    AnswersLost,
    /// A signal is not seen by whoever waits for it.
    SignalsUnseen,
    /// A task that is done is recorded as not yet begun.
    DoneIsForgotten,
    /// What becomes of a session is written without its events.
    SessionUntold,
}

/// The place of the state of what a task runs in, and of what is wanted of it, in `attempts_open`.
const STATE: usize = 31;
const DESIRED: usize = 32;
const COLUMNS: usize = 48;
/// The places of the state, and of whether it is to be kept, in `tracked`.
const TRACKED_STATE: usize = 4;
const TRACKED_KEEP: usize = 26;
const TRACKED_COLUMNS: usize = 34;

/// The settings as a server understands them, if those are what is broken.
pub(crate) fn misunderstood(breakage: Option<Breakage>, config: &Arc<Config>) -> Arc<Config> {
    let mut wrong = Config::clone(config);
    match breakage {
        Some(Breakage::PoliciesUnasked) => {
            wrong.reconciler.auto_terminate_orphans = true;
            wrong.reconciler.auto_terminate_stale = true;
        }
        Some(Breakage::HoursAreMinutes) => wrong.reconciler.max_silent_hours /= 60.0,
        _ => return config.clone(),
    }
    Arc::new(wrong)
}

/// What a server reads, if its eyes are what is broken.
pub(crate) fn misread(breakage: Breakage, statement: &str, take: Take) -> Take {
    let columns = match (breakage, statement) {
        (Breakage::UnknownIsGone | Breakage::AskedIsGone, "attempts_open") => COLUMNS,
        (Breakage::RunningIsOrphaned | Breakage::KeepIsForgotten, "tracked") => TRACKED_COLUMNS,
        (Breakage::NoHeirs, "sessions_ownerless") | (Breakage::SignalsUnseen, "signal_next") => {
            return Box::new(move |_| take(&mut Nothing));
        }
        _ => return take,
    };
    Box::new(move |rows| take(&mut Misread { breakage, columns, rows, row: Vec::new() }))
}

struct Nothing;

impl Rows for Nothing {
    fn next(&mut self) -> Result<Option<&dyn Cells>, StoreError> {
        Ok(None)
    }
}

/// The rows of an answer, copied and changed.
struct Misread<'a> {
    breakage: Breakage,
    columns: usize,
    rows: &'a mut dyn Rows,
    row: Vec<Value>,
}

impl Rows for Misread<'_> {
    fn next(&mut self) -> Result<Option<&dyn Cells>, StoreError> {
        let Some(cells) = self.rows.next()? else { return Ok(None) };
        self.row = (0..self.columns).map(|at| copied(cells, at)).collect();
        let is = |at: usize, word: &str| self.row[at].as_text() == Some(word);
        let wrong = match self.breakage {
            Breakage::UnknownIsGone if !is(STATE, "running") => Some((STATE, Value::Word("terminated"))),
            Breakage::AskedIsGone if is(DESIRED, "terminated") => Some((STATE, Value::Word("terminated"))),
            Breakage::RunningIsOrphaned if is(TRACKED_STATE, "running") => {
                Some((TRACKED_STATE, Value::Word("orphaned")))
            }
            Breakage::KeepIsForgotten => Some((TRACKED_KEEP, Value::Int(0))),
            _ => None,
        };
        if let Some((at, value)) = wrong {
            self.row[at] = value;
        }
        Ok(Some(self))
    }
}

fn copied(cells: &dyn Cells, at: usize) -> Value {
    match (cells.int(at), cells.real(at), cells.text(at)) {
        (Ok(Some(int)), _, _) => Value::Int(int),
        (_, Ok(Some(real)), _) => Value::Real(real),
        (_, _, Ok(Some(text))) => Value::Text(text.to_owned()),
        _ => Value::Null,
    }
}

impl Cells for Misread<'_> {
    fn int(&self, column: usize) -> Result<Option<i64>, String> {
        Ok(self.row.get(column).and_then(Value::as_int))
    }

    fn real(&self, column: usize) -> Result<Option<f64>, String> {
        Ok(match self.row.get(column) {
            Some(Value::Real(real)) => Some(*real),
            Some(Value::Int(int)) => Some(*int as f64),
            _ => None,
        })
    }

    fn text(&self, column: usize) -> Result<Option<&str>, String> {
        Ok(self.row.get(column).and_then(Value::as_text))
    }
}
