//! The durable memory of the control plane: domain verbs over one database.
//!
//! A verb is a *script*, which is data: named statements, their parameters, and how many rows each must
//! touch. The database runs a script whole or not at all, and acknowledges it only once it is durable. Every
//! verb that changes a state takes the events that tell of it and writes them in the same script.
//!
//! This crate owns the schema, the SQL and the guards. It decides nothing, it reads no clock (`now` is an
//! argument), and there is no verb that writes a row back whole: each touches exactly the columns that its
//! caller owns.

mod error;
pub mod postgres;
mod row;
mod row_session;
mod script;
pub mod sql;
pub mod sqlite;
mod types;
mod verbs;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{broadcast, oneshot, watch};
use tracing::Instrument;

pub use error::{Result, StoreError};
pub use script::{Cells, Database, Expect, Query, Row, Rows, Script, Step, StepOutcome, Take, Value};
pub use types::{
    Attempted, ContainerFilter, ContainerPage, ContainerStats, Cycle, CycleOutcome, DesireOutcome,
    EventFilter, Fence, Figures, Foreign, Instance, JobCount, JobFilter, Leadership, NewContainer, NewCycle,
    NewDelivery, NewJob, OldestRunning, Owner, ReaderMove, RetentionReport, ShownFilter, ShownJob, Silence,
    Task, Wish, Worker,
};
pub use verbs::{
    ChildRow, Done, InboxRow, NewSession, PatientRow, PhaseTasks, SessionFilter, SessionValues, SessionWrite,
    ShownSession, SignalFilter,
};

use row::Columns;

/// The store. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Store {
    db: Arc<dyn Database>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    done: AtomicU64,
    failed: AtomicU64,
}

/// Scripts of this process since it opened the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Writes {
    pub done: u64,
    /// That the database could not take. A guard that was not met is an answer, and no failure.
    pub failed: u64,
}

impl Store {
    pub fn new(db: Arc<dyn Database>) -> Self {
        Self { db, counts: Arc::default() }
    }

    /// Opens (or creates) the SQLite file at `path`, migrating it if it is older. A file that is refused is
    /// left exactly as it was.
    pub fn open_sqlite(path: &Path) -> Result<Self> {
        Ok(Self::new(Arc::new(sqlite::Sqlite::open(path)?)))
    }

    /// The simulator's store: the same scripts, run in the calling task on one connection, without threads
    /// and without waiting for the disk, so that a seed replays exactly. `:memory:` is a path too.
    pub fn open_sqlite_inline(path: &Path) -> Result<Self> {
        Ok(Self::new(Arc::new(sqlite::Inline::open(path)?)))
    }

    /// Connects to the PostgreSQL database at `url`, migrating it if it is older. One that is refused is left
    /// exactly as it was. Needs a tokio runtime.
    pub async fn open_postgres(url: &str) -> Result<Self> {
        Ok(Self::new(Arc::new(postgres::Postgres::open(url).await?)))
    }

    /// `postgres://…` or `postgresql://…`, or else the path of an SQLite file.
    pub async fn open(url_or_path: &str) -> Result<Self> {
        if postgres::is_url(url_or_path) {
            Self::open_postgres(url_or_path).await
        } else {
            Self::open_sqlite(Path::new(url_or_path))
        }
    }

    /// The seat of the leader, where several servers share this store; `None` where whoever has opened it
    /// leads.
    pub fn seat(&self) -> Option<postgres::Seat> {
        self.db.seat()
    }

    /// Asks every server that shares this store, this one too, to look at `name` soon. A hint that may be
    /// lost: whoever it is about looks on a timer as well.
    pub fn wake(&self, name: &str) {
        self.db.wake(name);
    }

    /// The names that were given to [`Store::wake`] by any server; `None` where nobody shares the store.
    pub fn wakes(&self) -> Option<broadcast::Receiver<String>> {
        self.db.wakes()
    }

    /// Whether reads are answered, the writer lives, and the last commit went well.
    pub async fn probe(&self) -> Result<()> {
        self.db.probe().await
    }

    /// Finishes what is queued, checkpoints and closes. Later calls fail with `Unavailable`.
    pub async fn close(&self) -> Result<()> {
        self.db.close().await
    }

    /// Scripts that wait for the writer. It holds 1024; beyond that callers wait for a place.
    pub fn queue_depth(&self) -> usize {
        self.db.queue_depth()
    }

    /// What was written through this store and its clones.
    pub fn writes(&self) -> Writes {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Writes { done: of(&self.counts.done), failed: of(&self.counts.failed) }
    }

    /// Transactions that were committed since it was opened, where the database counts them.
    pub fn transactions(&self) -> Option<u64> {
        self.db.transactions()
    }

    /// Tells whenever an event has been committed (its id, or that of a later one). A hint to read the tail:
    /// intermediate values are skipped, and it says nothing of events from before it was subscribed to.
    pub fn subscribe_commits(&self) -> watch::Receiver<i64> {
        self.db.commits()
    }

    pub(crate) async fn write(&self, script: Script) -> Result<Vec<StepOutcome>> {
        let span = tracing::info_span!(target: parhelia_core::TRACES, "store.write", script = script.name);
        let result = self.db.write(script).instrument(span).await;
        match &result {
            Ok(_) => self.counts.done.fetch_add(1, Ordering::Relaxed),
            Err(StoreError::Conflict { .. } | StoreError::Fenced { .. }) => 0,
            Err(_) => self.counts.failed.fetch_add(1, Ordering::Relaxed),
        };
        result
    }

    /// Reads every row of a query, each turned into a `T` where the database has it.
    /// Every row that can be read. One that cannot is named in the log and left out: the rest must work.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        sql: &'static sql::Sql,
        params: Vec<Value>,
        map: fn(&mut Columns<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let rows = self.read_rows(sql, params, map).await?;
        Ok(rows.into_iter().filter_map(|row| row.inspect_err(|e| tracing::error!("{e}")).ok()).collect())
    }

    pub(crate) async fn read_rows<T: Send + 'static>(
        &self,
        sql: &'static sql::Sql,
        params: Vec<Value>,
        map: fn(&mut Columns<'_>) -> Result<T>,
    ) -> Result<Vec<Result<T>>> {
        let (found, answer) = oneshot::channel();
        let take: Take = Box::new(move |rows| {
            let mut all = Vec::new();
            while let Some(cells) = rows.next()? {
                match map(&mut Columns::new(cells, sql.name)) {
                    Err(StoreError::Unreadable { query, column, detail }) => {
                        let row = cells.text(0).ok().flatten().unwrap_or("?").to_owned();
                        let detail = format!("{detail} (row {row})");
                        all.push(Err(StoreError::Unreadable { query, column, detail }));
                    }
                    Err(other) => return Err(other),
                    readable => all.push(readable),
                }
            }
            // Nobody waits any more: nothing is lost but the answer.
            let _ = found.send(all);
            Ok(())
        });
        self.db.read(Query { sql, params }, take).await?;
        answer.await.map_err(|_| StoreError::closed())
    }

    pub(crate) async fn query_one<T: Send + 'static>(
        &self,
        sql: &'static sql::Sql,
        params: Vec<Value>,
        map: fn(&mut Columns<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        // Strict: one that cannot be read is not one that does not exist.
        self.read_rows(sql, params, map).await?.into_iter().next().transpose()
    }
}
