//! The simulator's database: the same scripts on one connection, in the calling task, one transaction each.
//! No threads and no waiting for the disk, so a seed replays exactly. Not for a server: a crash of the
//! machine may lose what was acknowledged.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use rusqlite::Connection;
use tokio::sync::watch;

use super::open;
use super::run::{Runner, meaning};
use super::writer::stopped;
use crate::error::{Result, StoreError};
use crate::script::{Database, Query, Script, StepOutcome, Take};
use crate::sql;

#[derive(Debug)]
pub struct Inline {
    path: Arc<Path>,
    /// `None` once it is closed.
    connection: Mutex<Option<Connection>>,
    commits: watch::Sender<i64>,
}

impl Inline {
    pub fn open(path: &Path) -> Result<Self> {
        let connection = open::open(path, open::Durability::None)?;
        connection.set_prepared_statement_cache_capacity(sql::ALL.len());
        let last_event = open::last_event(&connection, path)?;
        Ok(Self {
            path: path.into(),
            connection: Mutex::new(Some(connection)),
            commits: watch::Sender::new(last_event),
        })
    }

    fn lock(&self) -> Result<MutexGuard<'_, Option<Connection>>> {
        self.connection.lock().map_err(|_| stopped())
    }

    fn transaction(&self, connection: &Connection, script: &Script) -> Result<Vec<StepOutcome>> {
        let bound = |sql: &str| {
            connection
                .prepare_cached(sql)
                .and_then(|mut statement| statement.raw_execute())
                .map_err(|error| meaning(error, script.name, "transaction", &self.path))
        };
        bound("BEGIN IMMEDIATE")?;
        let mut runner = Runner::caching(connection, &self.path);
        let result = runner.script(script).and_then(|outcomes| bound("COMMIT").map(|_| outcomes));
        if !connection.is_autocommit() {
            bound("ROLLBACK")?;
        }
        if result.is_ok() {
            self.commits.send_if_modified(|seen| {
                let newer = runner.last_event > *seen;
                *seen = runner.last_event.max(*seen);
                newer
            });
        }
        result
    }
}

#[async_trait]
impl Database for Inline {
    async fn write(&self, script: Script) -> Result<Vec<StepOutcome>> {
        let guard = self.lock()?;
        self.transaction(guard.as_ref().ok_or_else(StoreError::closed)?, &script)
    }

    async fn read(&self, query: Query, take: Take) -> Result<()> {
        let guard = self.lock()?;
        Runner::caching(guard.as_ref().ok_or_else(StoreError::closed)?, &self.path).query(&query, take)
    }

    async fn probe(&self) -> Result<()> {
        self.read(Query { sql: &sql::PROBE, params: vec![] }, Box::new(|rows| rows.next().map(drop))).await
    }

    async fn close(&self) -> Result<()> {
        self.lock()?.take();
        Ok(())
    }

    fn queue_depth(&self) -> usize {
        0
    }

    fn commits(&self) -> watch::Receiver<i64> {
        self.commits.subscribe()
    }
}
