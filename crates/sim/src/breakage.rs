//! Contracts broken on purpose, at the edges of the real code: each shows that an invariant can fail, and
//! that the simulation notices when it does.

use clap::ValueEnum;
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

/// What a server reads, if its eyes are what is broken.
pub(crate) fn misread(breakage: Breakage, statement: &str, take: Take) -> Take {
    match (breakage, statement) {
        (Breakage::UnknownIsGone | Breakage::AskedIsGone, "attempts_open") => {
            Box::new(move |rows| take(&mut Misread { breakage, rows, row: Vec::new() }))
        }
        (Breakage::NoHeirs, "sessions_ownerless") | (Breakage::SignalsUnseen, "signal_next") => {
            Box::new(move |_| take(&mut Nothing))
        }
        _ => take,
    }
}

struct Nothing;

impl Rows for Nothing {
    fn next(&mut self) -> Result<Option<&dyn Cells>, StoreError> {
        Ok(None)
    }
}

/// The rows of `attempts_open`, copied and changed.
struct Misread<'a> {
    breakage: Breakage,
    rows: &'a mut dyn Rows,
    row: Vec<Value>,
}

impl Rows for Misread<'_> {
    fn next(&mut self) -> Result<Option<&dyn Cells>, StoreError> {
        let Some(cells) = self.rows.next()? else { return Ok(None) };
        self.row = (0..COLUMNS).map(|at| copied(cells, at)).collect();
        let state = self.row[STATE].as_text();
        let gone = match self.breakage {
            Breakage::UnknownIsGone => state != Some("running"),
            _ => self.row[DESIRED].as_text() == Some("terminated"),
        };
        if gone {
            self.row[STATE] = Value::Word("terminated");
        }
        Ok(Some(self))
    }
}

fn copied(cells: &dyn Cells, at: usize) -> Value {
    match (cells.int(at), cells.text(at)) {
        (Ok(Some(int)), _) => Value::Int(int),
        (_, Ok(Some(text))) => Value::Text(text.to_owned()),
        _ => Value::Null,
    }
}

impl Cells for Misread<'_> {
    fn int(&self, column: usize) -> Result<Option<i64>, String> {
        Ok(self.row.get(column).and_then(Value::as_int))
    }

    fn real(&self, _column: usize) -> Result<Option<f64>, String> {
        Ok(None)
    }

    fn text(&self, column: usize) -> Result<Option<&str>, String> {
        Ok(self.row.get(column).and_then(Value::as_text))
    }
}
