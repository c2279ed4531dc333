//! SQLite behind one writer thread and a few reader threads.
//!
//! Every write of the process goes through one queue to one connection; what is waiting is committed
//! together, so a durable write costs a share of one fsync. Reads have their own read-only connections and
//! see everything that was acknowledged. Nothing here knows what a container is.

mod inline;
mod open;
mod reader;
mod run;
mod writer;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::error::Result;
use crate::script::{Database, Query, Script, StepOutcome, Take};
use crate::sql;

pub use inline::Inline;
pub use open::{APPLICATION_ID, Examined, MIGRATIONS, bare_connection, examine};

/// Where the writer stands, as others see it.
#[derive(Debug)]
struct Shared {
    path: Arc<Path>,
    /// Why the last commit failed, until one succeeds.
    broken: std::sync::Mutex<Option<String>>,
    commits: watch::Sender<i64>,
    /// Transactions that were committed since it was opened.
    transactions: std::sync::atomic::AtomicU64,
}

#[derive(Debug)]
pub struct Sqlite {
    shared: Arc<Shared>,
    writer: writer::Writer,
    readers: reader::Readers,
}

impl Sqlite {
    /// Opens, checks and migrates the file, then starts its threads.
    pub fn open(path: &Path) -> Result<Self> {
        let path: Arc<Path> = path.into();
        let connection = open::open(&path, open::Durability::Full)?;
        let last_event = open::last_event(&connection, &path)?;
        let shared = Arc::new(Shared {
            path: path.clone(),
            broken: std::sync::Mutex::new(None),
            commits: watch::Sender::new(last_event),
            transactions: 0.into(),
        });
        let readers = reader::Readers::start(&path)?;
        let writer = writer::Writer::start(connection, shared.clone())?;
        Ok(Self { shared, writer, readers })
    }
}

#[async_trait]
impl Database for Sqlite {
    async fn write(&self, script: Script) -> Result<Vec<StepOutcome>> {
        self.writer.write(script).await
    }

    async fn read(&self, query: Query, take: Take) -> Result<()> {
        self.readers.read(query, take).await
    }

    async fn probe(&self) -> Result<()> {
        self.writer.probe()?;
        self.readers
            .read(Query { sql: &sql::PROBE, params: vec![] }, Box::new(|rows| rows.next().map(drop)))
            .await
    }

    async fn close(&self) -> Result<()> {
        // Readers first: an open read would keep the checkpoint from taking the whole log.
        self.readers.close().await;
        self.writer.close().await
    }

    fn queue_depth(&self) -> usize {
        self.writer.queue_depth()
    }

    fn transactions(&self) -> Option<u64> {
        Some(self.shared.transactions.load(std::sync::atomic::Ordering::Relaxed))
    }

    fn commits(&self) -> watch::Receiver<i64> {
        self.shared.commits.subscribe()
    }
}
