//! Runs scripts and queries on one connection. Owns the prepared statements, the binding of values and the
//! meaning of SQLite's errors; begins and ends no transaction of its own.

use std::path::Path;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, Statement, ToSql};

use crate::error::{Result, StoreError};
use crate::script::{Cells, Query, Row, Rows, Script, Step, StepOutcome, Take, Value, unmet};
use crate::sql::{self, Sql};

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(value) => ValueRef::Integer(*value),
            Value::Real(value) => ValueRef::Real(*value),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Word(text) => ValueRef::Text(text.as_bytes()),
            Value::Shared(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// A connection with its prepared statements. On a thread of its own they are found by their place; the
/// inline store, which cannot keep them beside the connection that they borrow, uses rusqlite's cache.
pub(super) struct Runner<'c> {
    connection: &'c Connection,
    path: &'c Path,
    prepared: Option<Vec<Option<Statement<'c>>>>,
    /// The highest event id written since it was last reset.
    pub(super) last_event: i64,
}

impl<'c> Runner<'c> {
    pub(super) fn keeping(connection: &'c Connection, path: &'c Path) -> Self {
        let prepared = Some(sql::ALL.iter().map(|_| None).collect());
        Self { connection, path, prepared, last_event: 0 }
    }

    pub(super) fn caching(connection: &'c Connection, path: &'c Path) -> Self {
        Self { connection, path, prepared: None, last_event: 0 }
    }

    pub(super) fn connection(&self) -> &'c Connection {
        self.connection
    }

    pub(super) fn path(&self) -> &'c Path {
        self.path
    }

    fn with<T>(
        &mut self,
        sql: &'static Sql,
        run: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        match &mut self.prepared {
            None => run(&mut *self.connection.prepare_cached(sql.sqlite())?),
            Some(prepared) => match &mut prepared[sql.index] {
                Some(statement) => run(statement),
                empty => run(empty.insert(self.connection.prepare(sql.sqlite())?)),
            },
        }
    }

    /// Runs every step in order. On an error the caller undoes the savepoint or transaction around it.
    pub(super) fn script(&mut self, script: &Script) -> Result<Vec<StepOutcome>> {
        let mut outcomes: Vec<StepOutcome> = Vec::with_capacity(script.steps.len());
        for step in &script.steps {
            let wanted = step.only_if.is_none_or(|earlier| outcomes[earlier].touched > 0);
            let outcome = if wanted { self.step(script, step)? } else { StepOutcome::default() };
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    fn step(&mut self, script: &Script, step: &Step) -> Result<StepOutcome> {
        let outcome = self
            .with(step.sql, |statement| run_step(statement, &step.params))
            .map_err(|error| meaning(error, script.name, step.sql.name, self.path))?;
        if !step.expect.met_by(outcome.touched) {
            return Err(unmet(script, step, outcome.touched));
        }
        if step.sql.index == sql::EVENT.index
            && let Some(id) = outcome.rows.first().and_then(|row| row.first()?.as_int())
        {
            self.last_event = self.last_event.max(id);
        }
        Ok(outcome)
    }

    pub(super) fn query(&mut self, query: &Query, take: Take) -> Result<()> {
        let path = self.path;
        let name = query.sql.name;
        let result = self.with(query.sql, |statement| {
            bind(statement, &query.params)?;
            let mut rows = Answer { rows: statement.raw_query(), path, name };
            Ok(take(&mut rows))
        });
        result.map_err(|error| meaning(error, name, name, path))?
    }
}

fn bind(statement: &mut Statement<'_>, params: &[Value]) -> rusqlite::Result<()> {
    for (i, value) in params.iter().enumerate() {
        statement.raw_bind_parameter(i + 1, value)?;
    }
    Ok(())
}

fn run_step(statement: &mut Statement<'_>, params: &[Value]) -> rusqlite::Result<StepOutcome> {
    bind(statement, params)?;
    let columns = statement.column_count();
    if columns == 0 {
        return Ok(StepOutcome { touched: statement.raw_execute()? as u64, rows: vec![] });
    }
    let mut found = statement.raw_query();
    let mut rows: Vec<Row> = Vec::with_capacity(1);
    while let Some(row) = found.next()? {
        let mut cells = Vec::with_capacity(columns);
        for column in 0..columns {
            cells.push(match row.get_ref(column)? {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(value) => Value::Int(value),
                ValueRef::Real(value) => Value::Real(value),
                ValueRef::Text(text) | ValueRef::Blob(text) => {
                    Value::Text(String::from_utf8_lossy(text).into_owned())
                }
            });
        }
        rows.push(cells);
    }
    Ok(StepOutcome { touched: rows.len() as u64, rows })
}

/// The rows of a running query.
struct Answer<'s, 'p> {
    rows: rusqlite::Rows<'s>,
    path: &'p Path,
    name: &'static str,
}

impl Rows for Answer<'_, '_> {
    fn next(&mut self) -> Result<Option<&dyn Cells>> {
        match self.rows.next() {
            Ok(row) => Ok(row.map(|row| row as &dyn Cells)),
            Err(error) => Err(meaning(error, self.name, self.name, self.path)),
        }
    }
}

impl Cells for rusqlite::Row<'_> {
    fn int(&self, column: usize) -> Result<Option<i64>, String> {
        match self.get_ref(column) {
            Ok(ValueRef::Integer(value)) => Ok(Some(value)),
            Ok(ValueRef::Null) => Ok(None),
            other => Err(format!("a whole number was expected, found {other:?}")),
        }
    }

    fn real(&self, column: usize) -> Result<Option<f64>, String> {
        match self.get_ref(column) {
            Ok(ValueRef::Real(value)) => Ok(Some(value)),
            Ok(ValueRef::Integer(value)) => Ok(Some(value as f64)),
            Ok(ValueRef::Null) => Ok(None),
            other => Err(format!("a number was expected, found {other:?}")),
        }
    }

    fn text(&self, column: usize) -> Result<Option<&str>, String> {
        match self.get_ref(column) {
            Ok(ValueRef::Text(text)) => std::str::from_utf8(text).map(Some).map_err(|e| e.to_string()),
            Ok(ValueRef::Null) => Ok(None),
            other => Err(format!("text was expected, found {other:?}")),
        }
    }
}

/// What an SQLite error means for the caller.
pub(super) fn meaning(
    error: rusqlite::Error,
    script: &'static str,
    step: &'static str,
    path: &Path,
) -> StoreError {
    let code = error.sqlite_error_code();
    if code == Some(ErrorCode::ConstraintViolation) {
        return StoreError::Conflict { script, step, why: plain(&error) };
    }
    trouble(&error, path).unwrap_or(StoreError::Sqlite { script, step, source: error })
}

/// Errors of the surroundings (disk, locks, permissions, memory, a damaged file), told with what to do.
pub(super) fn trouble(error: &rusqlite::Error, path: &Path) -> Option<StoreError> {
    let file = path.display();
    let (what, fix) = match error.sqlite_error_code()? {
        ErrorCode::DiskFull => (
            format!("the disk that holds {file} is full"),
            "free some space there; writing goes on by itself as soon as there is room".to_owned(),
        ),
        ErrorCode::SystemIoFailure => (
            format!("the disk that holds {file} failed ({})", plain(error)),
            "check the disk and its free space ('dmesg' and 'df' tell more), then try again".to_owned(),
        ),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => (
            format!("another process holds {file} locked"),
            "end it (another server, or a tool such as sqlite3 inside a transaction), then try again"
                .to_owned(),
        ),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => (
            format!("{file} cannot be written"),
            "give this user write permission on the file and its directory, or mount the disk writable"
                .to_owned(),
        ),
        ErrorCode::CannotOpen => (
            format!("{file} cannot be opened"),
            "check that its directory exists and that this user may write there".to_owned(),
        ),
        ErrorCode::OutOfMemory => {
            (format!("memory ran out while using {file}"), "free some memory, then try again".to_owned())
        }
        ErrorCode::OperationInterrupted | ErrorCode::OperationAborted => {
            (format!("an operation on {file} was interrupted"), "try again".to_owned())
        }
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            return Some(StoreError::Corrupt { path: path.to_owned(), detail: plain(error) });
        }
        _ => return None,
    };
    Some(StoreError::Unavailable { what, fix })
}

/// SQLite's own words, without rusqlite's.
pub(super) fn plain(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        rusqlite::Error::SqliteFailure(code, None) => code.to_string(),
        other => other.to_string(),
    }
}
