//! A write is data: a script of named statements, their parameters, and how many rows each must touch. The
//! same scripts run on every database. This module owns those shapes and the small trait that a database
//! implements; it knows no SQL dialect and no driver.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use parhelia_core::ids::{CheckpointId, ContainerId, SessionId, SignalId, TaskId, TokenId, WaitId};
use parhelia_core::time;
use tokio::sync::{broadcast, watch};

use crate::error::{Result, StoreError};
use crate::sql::Sql;

/// A parameter or a cell. Text comes in three kinds only so that words and shared times are not copied.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
    Word(&'static str),
    Shared(Arc<str>),
}

impl Value {
    pub fn as_int(&self) -> Option<i64> {
        if let Value::Int(value) = self { Some(*value) } else { None }
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            Value::Word(text) => Some(text),
            Value::Shared(text) => Some(text),
            _ => None,
        }
    }
}

macro_rules! value_from {
    ($($from:ty => |$v:ident| $to:expr),+ $(,)?) => {
        $(impl From<$from> for Value { fn from($v: $from) -> Self { $to } })+
    };
}

value_from! {
    i64 => |v| Value::Int(v),
    bool => |v| Value::Int(i64::from(v)),
    f64 => |v| Value::Real(v),
    String => |v| Value::Text(v),
    &String => |v| Value::Text(v.clone()),
    &str => |v| Value::Text(v.to_owned()),
    &Arc<str> => |v| Value::Shared(v.clone()),
    &ContainerId => |v| Value::Text(v.as_str().to_owned()),
    &TokenId => |v| Value::Text(v.as_str().to_owned()),
    parhelia_core::alert::DeliveryState => |v| Value::Word(v.as_str()),
    parhelia_core::access::Role => |v| Value::Word(v.as_str()),
    Timestamp => |v| Value::Text(time::to_text(v)),
    parhelia_core::state::ContainerState => |v| Value::Word(v.as_str()),
    parhelia_core::state::Health => |v| Value::Word(v.as_str()),
    parhelia_core::state::Desired => |v| Value::Word(v.as_str()),
    parhelia_core::state::TerminationReason => |v| Value::Word(v.as_str()),
    parhelia_core::state::CostSource => |v| Value::Word(v.as_str()),
    parhelia_core::state::WorkerState => |v| Value::Word(v.as_str()),
    parhelia_core::job::JobStatus => |v| Value::Word(v.as_str()),
    parhelia_core::job::JobActivity => |v| Value::Word(v.as_str()),
    parhelia_core::session::SessionStatus => |v| Value::Word(v.as_str()),
    parhelia_core::session::BlockedType => |v| Value::Word(v.as_str()),
    parhelia_core::session::PhaseStatus => |v| Value::Word(v.as_str()),
    parhelia_core::session::TaskStatus => |v| Value::Word(v.as_str()),
    parhelia_core::session::AttemptStatus => |v| Value::Word(v.as_str()),
    parhelia_core::session::FailureReason => |v| Value::Word(v.as_str()),
    parhelia_core::session::WaitStatus => |v| Value::Word(v.as_str()),
    &SessionId => |v| Value::Text(v.as_str().to_owned()),
    &TaskId => |v| Value::Text(v.as_str().to_owned()),
    &WaitId => |v| Value::Text(v.as_str().to_owned()),
    &SignalId => |v| Value::Text(v.as_str().to_owned()),
    &CheckpointId => |v| Value::Text(v.as_str().to_owned()),
    uuid::Uuid => |v| Value::Text(v.to_string()),
    parhelia_core::event::EventType => |v| Value::Word(v.as_str()),
    parhelia_core::event::Source => |v| Value::Word(v.as_str()),
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// `params![id, state, now]`: each converted by `Into<Value>`.
macro_rules! params {
    ($($value:expr),* $(,)?) => { vec![$($crate::script::Value::from($value)),*] };
}
pub(crate) use params;

/// How many rows a step must change (or, for a query, return).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Any,
    Exactly(u64),
    AtLeast(u64),
}

impl Expect {
    pub fn met_by(self, rows: u64) -> bool {
        match self {
            Expect::Any => true,
            Expect::Exactly(n) => rows == n,
            Expect::AtLeast(n) => rows >= n,
        }
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expect::Any => f.write_str("any number of rows"),
            Expect::Exactly(n) => write!(f, "exactly {n} row(s)"),
            Expect::AtLeast(n) => write!(f, "at least {n} row(s)"),
        }
    }
}

#[derive(Debug)]
pub struct Step {
    pub sql: &'static Sql,
    pub params: Vec<Value>,
    pub expect: Expect,
    /// Runs only if that earlier step changed a row: how an event is written only with its change.
    pub only_if: Option<usize>,
}

#[derive(Debug)]
pub struct Script {
    pub name: &'static str,
    pub steps: Vec<Step>,
    /// Whose fence guards it, and in which epoch: every event of it says so.
    pub(crate) writer: [Value; 2],
}

impl Script {
    pub fn new(name: &'static str) -> Self {
        Self::with_room(name, 4)
    }

    pub(crate) fn with_room(name: &'static str, steps: usize) -> Self {
        Self { name, steps: Vec::with_capacity(steps), writer: [Value::Null, Value::Null] }
    }

    /// Adds a step that may touch any number of rows, and gives its place.
    pub fn step(&mut self, sql: &'static Sql, params: Vec<Value>) -> usize {
        self.push(sql, params, Expect::Any, None)
    }

    /// Adds a step that must touch exactly one row, or the whole script is undone.
    pub fn one(&mut self, sql: &'static Sql, params: Vec<Value>) -> usize {
        self.push(sql, params, Expect::Exactly(1), None)
    }

    pub fn step_if(&mut self, changed: usize, sql: &'static Sql, params: Vec<Value>) -> usize {
        self.push(sql, params, Expect::Any, Some(changed))
    }

    fn push(
        &mut self,
        sql: &'static Sql,
        params: Vec<Value>,
        expect: Expect,
        only_if: Option<usize>,
    ) -> usize {
        self.steps.push(Step { sql, params, expect, only_if });
        self.steps.len() - 1
    }
}

pub type Row = Vec<Value>;

/// What one step did: rows changed (or returned, for a query), and the rows that it gave back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepOutcome {
    pub touched: u64,
    pub rows: Vec<Row>,
}

#[derive(Debug)]
pub struct Query {
    pub sql: &'static Sql,
    pub params: Vec<Value>,
}

/// One row of an answer, read in place.
pub trait Cells {
    fn int(&self, column: usize) -> Result<Option<i64>, String>;
    fn real(&self, column: usize) -> Result<Option<f64>, String>;
    fn text(&self, column: usize) -> Result<Option<&str>, String>;
}

/// The rows of an answer, one at a time: a hundred thousand of them never exist twice.
pub trait Rows {
    fn next(&mut self) -> Result<Option<&dyn Cells>>;
}

/// Takes the rows where the database has them (for SQLite, on the reader's thread).
pub type Take = Box<dyn FnOnce(&mut dyn Rows) -> Result<()> + Send>;

/// A database that runs scripts. Acknowledged means durable; a script is kept whole or not at all.
#[async_trait]
pub trait Database: Send + Sync + fmt::Debug {
    /// Once it has been queued a script runs even if the caller stops waiting for it.
    async fn write(&self, script: Script) -> Result<Vec<StepOutcome>>;
    async fn read(&self, query: Query, take: Take) -> Result<()>;
    /// Whether reads are answered and the last commit went well.
    async fn probe(&self) -> Result<()>;
    /// Finishes what is queued and leaves the file tidy. Later calls are refused.
    async fn close(&self) -> Result<()>;
    /// Scripts that wait for the writer.
    fn queue_depth(&self) -> usize;
    /// Transactions that were committed since it was opened, where the database counts them: beside the
    /// number of writes it tells how many shared one.
    fn transactions(&self) -> Option<u64> {
        None
    }
    /// The highest event id that is known to be committed: a hint to read the tail, nothing to decide by.
    fn commits(&self) -> watch::Receiver<i64>;

    /// Where several servers share it: the seat of the leader. `None`: whoever has opened it leads.
    fn seat(&self) -> Option<crate::postgres::Seat> {
        None
    }
    /// Asks the other servers that share it to look at `name` soon. A hint that may be lost.
    fn wake(&self, _name: &str) {}
    /// What other servers (or this one) asked to look at.
    fn wakes(&self) -> Option<broadcast::Receiver<String>> {
        None
    }
}

pub(crate) fn unmet(script: &Script, step: &Step, rows: u64) -> StoreError {
    if [crate::sql::GUARD.index, crate::sql::GUARD_OWNER.index].contains(&step.sql.index) {
        return StoreError::Fenced { script: script.name };
    }
    StoreError::Conflict {
        script: script.name,
        step: step.sql.name,
        why: format!("{} would be right and {rows} matched", step.expect),
    }
}
