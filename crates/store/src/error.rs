//! What can go wrong in the store. Each error says what was tried, on what, and what to do next; it never
//! repeats its source.

use std::path::PathBuf;

use thiserror::Error;

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

#[derive(Debug, Error)]
pub enum StoreError {
    /// A guard of the script was not met; nothing of the script was kept. Read again and decide again.
    #[error("{script}: not done, because at step '{step}' {why}; read the current state and decide again")]
    Conflict { script: &'static str, step: &'static str, why: String },

    /// The writer no longer leads. It must stop at once: somebody else decides now.
    #[error("{script}: not done, because this server no longer leads; another has taken over")]
    Fenced { script: &'static str },

    #[error("no {what} '{id}' in this store")]
    NotFound { what: &'static str, id: String },

    /// Nothing was acknowledged. The same call may work later, once the cause is gone.
    #[error("the store could not be used: {what}; {fix}")]
    Unavailable { what: String, fix: String },

    /// The database is there and does not let us in: waiting changes nothing.
    #[error("the database cannot be used: {what}; {fix}")]
    Denied { what: String, fix: String },

    #[error(
        "the database {} has schema version {found} and this program knows versions up to {known}; \
         use the newer program that wrote it, or another database (nothing in it was changed)",
        path.display()
    )]
    Newer { path: PathBuf, found: i64, known: i64 },

    #[error(
        "the database {} cannot be used: {detail}; move the file aside (with its -wal and -shm files, if any) \
         and start again, or put a backup in its place (nothing in it was changed)",
        path.display()
    )]
    Corrupt { path: PathBuf, detail: String },

    #[error("the database {database} cannot be used: {detail} (nothing in it was changed)")]
    NotOurs { database: String, detail: String },

    /// A stored value that this program cannot read: the row is named by the query that found it.
    #[error("{query}: column {column} holds something that this program cannot read: {detail}")]
    Unreadable { query: &'static str, column: usize, detail: String },

    /// A fault of this program rather than of its surroundings.
    #[error("{script}: the database refused step '{step}' ({source}); please report this")]
    Sqlite {
        script: &'static str,
        step: &'static str,
        #[source]
        source: rusqlite::Error,
    },

    /// The same, of PostgreSQL.
    #[error("{script}: the database refused step '{step}' ({}); please report this", cause(source))]
    Postgres {
        script: &'static str,
        step: &'static str,
        #[source]
        source: tokio_postgres::Error,
    },
}

/// The driver's own words are no more than 'db error'.
fn cause(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned())
}

impl StoreError {
    /// The same call may succeed later without anybody deciding anew.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, StoreError::Unavailable { .. })
    }

    pub fn is_conflict(&self) -> bool {
        matches!(self, StoreError::Conflict { .. })
    }

    pub(crate) fn closed() -> Self {
        StoreError::Unavailable {
            what: "it has been closed".into(),
            fix: "the server is stopping; try again once it runs".into(),
        }
    }
}
