//! Opening a database file: what is refused (and then left exactly as it was), what is created, and the
//! migrations in between.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::run::{meaning, plain, trouble};
use crate::error::{Result, StoreError};
use crate::sql;

/// `PHLA`: says whose file it is.
pub const APPLICATION_ID: i64 = 0x5048_4c41;

/// In order; a database's `user_version` is how many of them it has had.
pub const MIGRATIONS: &[(&str, &str)] = &[
    ("0001_init", include_str!("../../migrations/sqlite/0001_init.sql")),
    ("0002_event_writer", include_str!("../../migrations/sqlite/0002_event_writer.sql")),
    ("0003_tokens", include_str!("../../migrations/sqlite/0003_tokens.sql")),
    ("0004_deliveries", include_str!("../../migrations/sqlite/0004_deliveries.sql")),
    ("0005_heartbeat_index", include_str!("../../migrations/sqlite/0005_heartbeat_index.sql")),
    ("0006_jobs", include_str!("../../migrations/sqlite/0006_jobs.sql")),
    ("0007_sessions", include_str!("../../migrations/sqlite/0007_sessions.sql")),
    ("0008_vitals", include_str!("../../migrations/sqlite/0008_vitals.sql")),
    ("0009_session_trials", include_str!("../../migrations/sqlite/0009_session_trials.sql")),
    ("0010_sessions_orphaned", include_str!("../../migrations/sqlite/0010_sessions_orphaned.sql")),
];

/// How long to wait for somebody else's lock before saying so.
const OPEN_WAIT: Duration = Duration::from_secs(2);
const BUSY_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// Every commit is on the disk before it is acknowledged.
    Full,
    /// The simulator's: the machine does not crash there.
    None,
}

/// The writing connection, on a file that is ours and of our version.
pub(super) fn open(path: &Path, durability: Durability) -> Result<Connection> {
    let in_memory = path == Path::new(":memory:");
    if !in_memory {
        create_private(path)?;
        // Without a log beside it the file alone is the database, and can be judged without touching
        // anything. With one, only SQLite can tell: the file may be half of a crashed checkpoint.
        if !has_log(path) {
            let look = look_only(path)?;
            judge(&look, path)?;
        }
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let flags = if in_memory { flags | OpenFlags::SQLITE_OPEN_CREATE } else { flags };
    let mut connection = Connection::open_with_flags(path, flags).map_err(|e| refused(e, path))?;
    make_room(&connection);
    accept(&mut connection, path, durability).map_err(|problem| match problem {
        Problem::Told(error) => error,
        Problem::Sqlite(error) => refused(error, path),
    })?;
    Ok(connection)
}

/// A connection as the writer's own, for a measurement beside it.
pub fn bare_connection(path: &Path) -> Result<Connection> {
    open(path, Durability::Full)
}

/// What a look from outside finds of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    pub sqlite: &'static str,
    pub journal_mode: String,
    pub version: i64,
    /// The newest version that this program knows.
    pub known: i64,
}

/// Looks at a database without changing anything, whether or not a server has it open.
pub fn examine(path: &Path) -> Result<Examined> {
    usable(path)?;
    let connection = if has_log(path) { reader(path)? } else { look_only(path)? };
    let version = judge(&connection, path)?;
    let journal_mode = connection
        .pragma_query_value(None, "journal_mode", |row| row.get(0))
        .map_err(|e| unreadable(e, path))?;
    Ok(Examined { sqlite: rusqlite::version(), journal_mode, version, known: MIGRATIONS.len() as i64 })
}

/// Room for the small things that every statement needs while it runs. SQLite's own is taken up by the prepared
/// statements that the writer keeps, and then each cursor and each bound text is a `malloc` under a lock: thirty
/// for one heartbeat. Without it everything works as well, only slower.
#[allow(unsafe_code, reason = "rusqlite does not offer this setting")]
fn make_room(connection: &Connection) {
    const SLOT_BYTES: std::ffi::c_int = 1200;
    const SLOTS: std::ffi::c_int = 500;
    let own = std::ptr::null_mut::<std::ffi::c_void>();
    // SAFETY: the handle is that of an open connection which outlives the call, nothing has been prepared on it yet,
    // and the three arguments are those of this setting. SQLite takes the memory itself and frees it at the end.
    let told = unsafe {
        rusqlite::ffi::sqlite3_db_config(
            connection.handle(),
            rusqlite::ffi::SQLITE_DBCONFIG_LOOKASIDE,
            own,
            SLOT_BYTES,
            SLOTS,
        )
    };
    if told != rusqlite::ffi::SQLITE_OK {
        tracing::debug!(told, "the room for small things stays as it is");
    }
}

/// A read-only connection beside the writer.
pub(super) fn reader(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|e| refused(e, path))?;
    let tune = || -> rusqlite::Result<()> {
        connection.busy_timeout(BUSY_WAIT)?;
        stable_plans(&connection)?;
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "cache_size", -8192)?;
        connection.pragma_update(None, "temp_store", "memory")
    };
    tune().map_err(|e| refused(e, path))?;
    Ok(connection)
}

/// A statement is planned once. Otherwise SQLite compiles some of ours anew whenever a parameter is bound, in
/// case its value (beside a partial index, or in a LIKE) allows another plan.
fn stable_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

pub(super) fn last_event(connection: &Connection, path: &Path) -> Result<i64> {
    connection
        .query_row(sql::LAST_EVENT.sqlite(), [], |row| row.get(0))
        .map_err(|e| meaning(e, "open", "last_event", path))
}

enum Problem {
    Told(StoreError),
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Problem {
    fn from(error: rusqlite::Error) -> Self {
        Problem::Sqlite(error)
    }
}

/// Judges the file once more through the log, and only then sets it up and migrates it.
fn accept(connection: &mut Connection, path: &Path, durability: Durability) -> Result<(), Problem> {
    // Until it is accepted, closing must not move a log into a file that we refuse.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.busy_timeout(OPEN_WAIT)?;
    judge(connection, path).map_err(Problem::Told)?;
    if connection.is_readonly(rusqlite::MAIN_DB)? {
        return Err(Problem::Told(read_only(path)));
    }
    stable_plans(connection)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "cache_size", -32_768)?;
    if durability == Durability::Full {
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        // A checkpoint syncs twice more; at thousands of writes a second 1000 pages would be one every
        // few commits.
        connection.pragma_update(None, "wal_autocheckpoint", 4000)?;
        connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    } else {
        connection.pragma_update(None, "journal_mode", "memory")?;
        connection.pragma_update(None, "synchronous", "off")?;
    }
    let migrated = migrate(connection, path)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    connection.busy_timeout(BUSY_WAIT)?;
    if migrated && durability == Durability::Full {
        // So that the version in the file itself is true, and a later refusal need not read the log.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    }
    Ok(())
}

/// Runs the missing migrations under an exclusive lock. A second process waits, and then finds none missing.
fn migrate(connection: &mut Connection, path: &Path) -> Result<bool, Problem> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Exclusive)?;
    let version = judge(&transaction, path).map_err(Problem::Told)?;
    let missing = MIGRATIONS.get(version as usize..).unwrap_or_default();
    for (_, text) in missing {
        transaction.execute_batch(text)?;
    }
    if !missing.is_empty() {
        transaction.pragma_update(None, "user_version", MIGRATIONS.len() as i64)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    transaction.commit()?;
    Ok(!missing.is_empty())
}

/// Reads whose database it is, of which version, and whether its schema can be read. Changes nothing.
fn judge(connection: &Connection, path: &Path) -> Result<i64> {
    let number = |name: &str| -> Result<i64> {
        connection.pragma_query_value(None, name, |row| row.get(0)).map_err(|e| unreadable(e, path))
    };
    let tables: i64 = connection
        .query_row("SELECT COUNT(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|e| unreadable(e, path))?;
    let version = number("user_version")?;
    let known = MIGRATIONS.len() as i64;
    let empty = tables == 0 && version == 0;
    if !empty && number("application_id")? != APPLICATION_ID {
        let detail = "it is a database of another program".to_owned();
        return Err(StoreError::Corrupt { path: path.to_owned(), detail });
    }
    if version > known {
        return Err(StoreError::Newer { path: path.to_owned(), found: version, known });
    }
    Ok(version)
}

/// The file as it lies there: no locks, no log, no recovery, nothing created beside it.
fn look_only(path: &Path) -> Result<Connection> {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => uri.push(*byte as char),
            other => uri.push_str(&format!("%{other:02x}")),
        }
    }
    uri.push_str("?mode=ro&immutable=1");
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(uri, flags).map_err(|e| refused(e, path))
}

/// An empty file that only its owner may read; SQLite gives the files beside it the same mode.
fn create_private(path: &Path) -> Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => usable(path),
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
            Err(read_only(path))
        }
        Err(error) => Err(StoreError::Unavailable {
            what: format!("{} cannot be created ({error})", path.display()),
            fix: "check that its directory exists and that this user may write there".into(),
        }),
    }
}

/// Whether a file that exists may be touched at all. Root may write where nobody should: a file marked
/// read-only is respected all the same.
fn usable(path: &Path) -> Result<()> {
    let metadata = std::fs::metadata(path).map_err(|error| StoreError::Unavailable {
        what: format!("{} cannot be read ({error})", path.display()),
        fix: "check the permissions of the file and of its directory".into(),
    })?;
    if !metadata.is_file() {
        let detail = "it is not a file".to_owned();
        return Err(StoreError::Corrupt { path: path.to_owned(), detail });
    }
    // SQLite takes anything shorter than its smallest page for a new database, and would write over it.
    if (1..512).contains(&metadata.len()) && !has_log(path) {
        let detail = "it is too short to be a database".to_owned();
        return Err(StoreError::Corrupt { path: path.to_owned(), detail });
    }
    if metadata.permissions().readonly() { Err(read_only(path)) } else { Ok(()) }
}

fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(PathBuf::from(log)).is_ok_and(|log| log.len() > 0)
}

fn read_only(path: &Path) -> StoreError {
    StoreError::Unavailable {
        what: format!("{} cannot be written", path.display()),
        fix: "give this user write permission on the file and its directory, or mount the disk writable"
            .into(),
    }
}

/// A schema that does not parse is reported as a plain error.
fn unreadable(error: rusqlite::Error, path: &Path) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::Unknown) => StoreError::Corrupt { path: path.to_owned(), detail: plain(&error) },
        _ => refused(error, path),
    }
}

fn refused(error: rusqlite::Error, path: &Path) -> StoreError {
    trouble(&error, path).unwrap_or(StoreError::Sqlite { script: "open", step: "open", source: error })
}
