//! Runs scripts and queries on one connection. Owns its prepared statements, the binding of values, the
//! pipeline, and the meaning of PostgreSQL's errors.
//!
//! Steps go out without waiting for the answers of earlier ones; only a step that depends on an earlier result
//! (`only_if`), and the COMMIT of a script that has guards, wait. Steps in a row of a statement that has a batch
//! form go out as one statement with arrays.

use std::borrow::Cow;
use std::error::Error as StdError;

use futures::future::{BoxFuture, FutureExt, join_all};
use tokio::sync::OnceCell;
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, Kind, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Error, Row as PgRow, Statement};

use super::address::Address;
use crate::error::{Result, StoreError};
use crate::script::{Cells, Expect, Query, Row, Rows, Script, StepOutcome, Take, Value, unmet};
use crate::sql::{self, Sql};

type Boxed = Box<dyn StdError + Sync + Send>;

/// Text as PostgreSQL can store it: it has no room for a zero byte.
fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        match (self, ty) {
            (Value::Null, _) => Ok(IsNull::Yes),
            (Value::Int(v), &Type::INT4) => i32::try_from(*v)?.to_sql(ty, out),
            (Value::Int(v), &Type::FLOAT8) => (*v as f64).to_sql(ty, out),
            (Value::Int(v), &Type::INT8) => v.to_sql(ty, out),
            (Value::Real(v), &Type::FLOAT8) => v.to_sql(ty, out),
            (other, &Type::TEXT) => match other.as_text() {
                Some(text) => storable(text).as_ref().to_sql(ty, out),
                None => Err(format!("a number was given for {ty}").into()),
            },
            (_, ty) => Err(format!("a value of another type was given for {ty}").into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// One parameter of a batch: the values of all its steps.
#[derive(Debug)]
struct Column<'a>(Vec<Cow<'a, Value>>);

impl ToSql for Column<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        let Kind::Array(inner) = ty.kind() else { return Err(format!("{ty} is not an array").into()) };
        let cells = self.0.iter().map(Cow::as_ref);
        match *inner {
            Type::TEXT => {
                let all: Vec<_> = cells.map(|v| v.as_text().map(storable)).collect();
                all.to_sql(ty, out)
            }
            Type::INT8 => cells.map(Value::as_int).collect::<Vec<_>>().to_sql(ty, out),
            Type::FLOAT8 => {
                let real = |v: &Value| match v {
                    Value::Real(v) => Some(*v),
                    other => other.as_int().map(|v| v as f64),
                };
                cells.map(real).collect::<Vec<_>>().to_sql(ty, out)
            }
            _ => Err(format!("an array of {inner} is not known").into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A connection with its prepared statements, each found by its place.
pub(super) struct Session {
    pub(super) client: Client,
    prepared: Vec<OnceCell<Statement>>,
    reserve: OnceCell<Statement>,
    /// Something about it is not as it should be: it is not used again.
    pub(super) spoiled: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("closed", &self.client.is_closed()).finish_non_exhaustive()
    }
}

/// How a script that failed left the database.
#[derive(Debug)]
pub(super) enum Failure {
    /// For certain nothing of it was kept.
    Undone(StoreError),
    /// The same, by the database's choice among equals: it may go well if it is run again.
    Again,
    /// The connection was lost after COMMIT was sent and before its answer.
    Unknown(String),
}

/// What a script did, with the highest event id that it wrote (0: none).
pub(super) struct Done {
    pub(super) outcomes: Vec<StepOutcome>,
    pub(super) last_event: i64,
}

/// One statement under way and the steps that it stands for.
struct Flight<'a> {
    steps: Vec<usize>,
    batch: bool,
    answer: BoxFuture<'a, Result<(u64, Vec<PgRow>), Error>>,
}

impl Session {
    pub(super) fn new(client: Client) -> Self {
        let prepared = sql::ALL.iter().map(|_| OnceCell::new()).collect();
        Self { client, prepared, reserve: OnceCell::new(), spoiled: false }
    }

    /// Statements with a batch form have no other here.
    async fn statement(&self, sql: &'static Sql) -> Result<&Statement, Error> {
        let text = sql.batch.unwrap_or_else(|| sql.postgres());
        self.prepared[sql.index].get_or_try_init(|| self.client.prepare(text)).await
    }

    async fn reserve(&self) -> Result<&Statement, Error> {
        self.reserve.get_or_try_init(|| self.client.prepare("SELECT reserve_events($1)")).await
    }

    async fn prepare(&self, script: &Script, events: i64) -> Result<()> {
        let mut wanted: Vec<&'static Sql> = vec![];
        for step in &script.steps {
            let known = self.prepared[step.sql.index].initialized();
            if !known && !wanted.iter().any(|sql| sql.index == step.sql.index) {
                wanted.push(step.sql);
            }
        }
        let all = join_all(wanted.iter().map(|sql| self.statement(sql))).await;
        for (sql, result) in wanted.iter().zip(all) {
            result.map_err(|e| meaning(e, script.name, sql.name))?;
        }
        if events > 0 {
            self.reserve().await.map_err(|e| meaning(e, script.name, "reserve_events"))?;
        }
        Ok(())
    }

    pub(super) async fn script(&mut self, script: &Script) -> Result<Done, Failure> {
        let mut committing = false;
        let result = self.transaction(script, &mut committing).await;
        let error = match result {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        // Harmless after a COMMIT that became a rollback; needed after everything else.
        let alive = !self.client.is_closed() && self.client.batch_execute("ROLLBACK").await.is_ok();
        // One that was broken off may have kept the lock that orders events: it ends with the connection.
        self.spoiled = !alive || error.is_unavailable();
        match error {
            // Whatever the error says: the COMMIT may have been heard, and nobody is left to ask.
            error if committing && !alive => Err(Failure::Unknown(error.to_string())),
            StoreError::Postgres { ref source, .. } if is_transient(source) => Err(Failure::Again),
            other => Err(Failure::Undone(other)),
        }
    }

    async fn transaction(&self, script: &Script, committing: &mut bool) -> Result<Done> {
        let is_event = |sql: &Sql| sql.index == sql::EVENT.index;
        let events = script.steps.iter().filter(|step| is_event(step.sql)).count() as i64;
        self.prepare(script, events).await?;
        let client = &self.client;
        let count = Value::Int(events);
        let mut flights: Vec<Flight<'_>> = vec![Flight {
            steps: vec![],
            batch: false,
            answer: async move { client.batch_execute("BEGIN").await.map(|()| (0, vec![])) }.boxed(),
        }];
        if events > 0 {
            flights.push(Flight {
                steps: vec![],
                batch: false,
                answer: async {
                    let reserve = self.reserve().await?;
                    client.query(reserve, &[&count]).await.map(|rows| (0, rows))
                }
                .boxed(),
            });
        }
        let mut outcomes: Vec<Option<StepOutcome>> = script.steps.iter().map(|_| None).collect();
        let (mut at, mut slot) = (0, 0_i64);
        while at < script.steps.len() {
            let end = run_end(script, at);
            let depends = |i: usize| script.steps[i].only_if.is_some_and(|on| outcomes[on].is_none());
            if (at..end).any(depends) {
                self.land(script, &mut flights, &mut outcomes).await?;
            }
            let (mut wanted, mut slots) = (vec![], vec![]);
            for i in at..end {
                let changed = |on: usize| outcomes[on].as_ref().is_some_and(|outcome| outcome.touched > 0);
                if script.steps[i].only_if.is_none_or(changed) {
                    wanted.push(i);
                    slots.push(slot);
                } else {
                    outcomes[i] = Some(StepOutcome::default());
                }
                slot += i64::from(is_event(script.steps[i].sql));
            }
            if !wanted.is_empty() {
                flights.push(self.launch(script, wanted, slots));
            }
            at = end;
        }
        // Nothing to check before it is kept: the COMMIT need not wait for the answers. After a step that
        // failed it is a rollback.
        if script.steps.iter().all(|step| step.expect == Expect::Any) {
            *committing = true;
            flights.push(Flight {
                steps: vec![],
                batch: false,
                answer: async move { client.batch_execute("COMMIT").await.map(|()| (0, vec![])) }.boxed(),
            });
            self.land(script, &mut flights, &mut outcomes).await?;
        } else {
            self.land(script, &mut flights, &mut outcomes).await?;
            *committing = true;
            client.batch_execute("COMMIT").await.map_err(|e| meaning(e, script.name, "commit"))?;
        }
        let outcomes: Vec<StepOutcome> = outcomes.into_iter().map(Option::unwrap_or_default).collect();
        let ids = script.steps.iter().zip(&outcomes).filter(|(step, _)| is_event(step.sql));
        let last_event = ids.filter_map(|(_, o)| o.rows.first()?.first()?.as_int()).max().unwrap_or(0);
        Ok(Done { outcomes, last_event })
    }

    fn launch<'a>(&'a self, script: &'a Script, steps: Vec<usize>, slots: Vec<i64>) -> Flight<'a> {
        let sql = script.steps[steps[0]].sql;
        let batch = sql.batch.is_some();
        let ids = steps.clone();
        let answer = async move {
            let statement = self.statement(sql).await?;
            if !batch {
                let params = &script.steps[ids[0]].params;
                return self.ask(statement, params).await;
            }
            let width = script.steps[ids[0]].params.len();
            let mut columns: Vec<Column<'_>> = (0..width)
                .map(|p| Column(ids.iter().map(|i| Cow::Borrowed(&script.steps[*i].params[p])).collect()))
                .collect();
            if sql.index == sql::EVENT.index {
                columns.push(Column(slots.iter().map(|slot| Cow::Owned(Value::Int(*slot))).collect()));
            }
            self.ask(statement, &columns).await
        };
        Flight { steps, batch, answer: answer.boxed() }
    }

    async fn ask<T: ToSql + Sync>(
        &self,
        statement: &Statement,
        params: &[T],
    ) -> Result<(u64, Vec<PgRow>), Error> {
        let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|p| p as _).collect();
        if statement.columns().is_empty() {
            Ok((self.client.execute(statement, &params).await?, vec![]))
        } else {
            let rows = self.client.query(statement, &params).await?;
            Ok((rows.len() as u64, rows))
        }
    }

    /// Waits for everything under way, in order; the first thing that is wrong is what is told.
    async fn land(
        &self,
        script: &Script,
        flights: &mut Vec<Flight<'_>>,
        outcomes: &mut [Option<StepOutcome>],
    ) -> Result<()> {
        let (meant, answers): (Vec<_>, Vec<_>) =
            flights.drain(..).map(|flight| ((flight.steps, flight.batch), flight.answer)).unzip();
        // Polled in order, which is the order in which they are sent.
        for ((steps, batch), answer) in meant.into_iter().zip(join_all(answers).await) {
            let name = steps.first().map_or("transaction", |i| script.steps[*i].sql.name);
            let (touched, rows) = answer.map_err(|e| meaning(e, script.name, name))?;
            if batch {
                spread(&steps, &rows, outcomes, name)?;
            } else if let Some(i) = steps.first() {
                let step = &script.steps[*i];
                if !step.expect.met_by(touched) {
                    return Err(unmet(script, step, touched));
                }
                let rows = rows.iter().map(|row| cells(row, name)).collect::<Result<_>>()?;
                outcomes[*i] = Some(StepOutcome { touched, rows });
            }
        }
        Ok(())
    }

    pub(super) async fn query(&self, query: &Query, take: Take) -> Result<()> {
        let name = query.sql.name;
        let told = |e| meaning(e, name, name);
        let statement = self.statement(query.sql).await.map_err(told)?;
        let (_, rows) = self.ask(statement, &query.params).await.map_err(told)?;
        take(&mut Answer { rows: rows.into_iter(), current: None })
    }
}

/// Where the run of steps that begins at `at` ends: one step, or all in a row of one batch statement.
fn run_end(script: &Script, at: usize) -> usize {
    let first = &script.steps[at];
    let alike = |i: usize| script.steps[i].sql.index == first.sql.index;
    if first.sql.batch.is_none() {
        return at + 1;
    }
    (at + 1..script.steps.len()).find(|i| !alike(*i)).unwrap_or(script.steps.len())
}

/// A batch gives, for each step that touched something, its place in the batch (from 1) and its own cells.
/// Of one that gives nothing it is not known what each step touched, and nobody asks.
fn spread(
    steps: &[usize],
    rows: &[PgRow],
    outcomes: &mut [Option<StepOutcome>],
    name: &'static str,
) -> Result<()> {
    for i in steps {
        outcomes[*i] = Some(StepOutcome::default());
    }
    for row in rows {
        let mut cells = cells(row, name)?;
        let place = cells.first().and_then(Value::as_int).and_then(|ord| usize::try_from(ord - 1).ok());
        let Some(i) = place.and_then(|place| steps.get(place)) else { continue };
        cells.remove(0);
        outcomes[*i] =
            Some(StepOutcome { touched: 1, rows: if cells.is_empty() { vec![] } else { vec![cells] } });
    }
    Ok(())
}

fn cells(row: &PgRow, query: &'static str) -> Result<Row> {
    let cell = |column: usize| -> Result<Value, String> {
        let value = match *row.columns()[column].type_() {
            Type::INT4 | Type::INT8 => row.int(column)?.map(Value::Int),
            Type::FLOAT8 => row.real(column)?.map(Value::Real),
            _ => row.text(column)?.map(|text| Value::Text(text.to_owned())),
        };
        Ok(value.unwrap_or(Value::Null))
    };
    (0..row.len())
        .map(|column| cell(column).map_err(|detail| StoreError::Unreadable { query, column, detail }))
        .collect()
}

struct Answer {
    rows: std::vec::IntoIter<PgRow>,
    current: Option<PgRow>,
}

impl Rows for Answer {
    fn next(&mut self) -> Result<Option<&dyn Cells>> {
        self.current = self.rows.next();
        Ok(self.current.as_ref().map(|row| row as &dyn Cells))
    }
}

impl Cells for PgRow {
    fn int(&self, column: usize) -> Result<Option<i64>, String> {
        match self.columns().get(column).map(|c| c.type_()) {
            Some(&Type::INT4) => {
                self.try_get::<_, Option<i32>>(column).map(|v| v.map(i64::from)).map_err(|e| e.to_string())
            }
            _ => self.try_get(column).map_err(|e| e.to_string()),
        }
    }

    fn real(&self, column: usize) -> Result<Option<f64>, String> {
        match self.columns().get(column).map(|c| c.type_()) {
            Some(&Type::FLOAT8) => self.try_get(column).map_err(|e| e.to_string()),
            _ => Ok(self.int(column)?.map(|v| v as f64)),
        }
    }

    fn text(&self, column: usize) -> Result<Option<&str>, String> {
        self.try_get(column).map_err(|e| e.to_string())
    }
}

fn is_transient(error: &Error) -> bool {
    matches!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED))
}

/// What an error of PostgreSQL means for the caller.
pub(super) fn meaning(error: Error, script: &'static str, step: &'static str) -> StoreError {
    let Some(db) = error.as_db_error() else {
        if error.is_closed() || io_source(&error) {
            return lost(&error);
        }
        return StoreError::Postgres { script, step, source: error };
    };
    let class = db.code().code().get(..2).unwrap_or_default();
    match (class, db.code()) {
        ("23", _) | (_, &SqlState::RAISE_EXCEPTION) => {
            StoreError::Conflict { script, step, why: violated(db) }
        }
        (_, &SqlState::QUERY_CANCELED) => StoreError::Unavailable {
            what: format!("the database did not finish {script} in time"),
            fix: "look for a long transaction that holds locks (pg_stat_activity), then try again".into(),
        },
        ("53" | "57" | "58" | "08", _) | (_, &SqlState::READ_ONLY_SQL_TRANSACTION) => {
            StoreError::Unavailable {
                what: format!("the database said: {}", db.message()),
                fix: "mend the cause there; it is used again by itself as soon as it can be".into(),
            }
        }
        (_, &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT) => lost(&error),
        (_, &SqlState::INSUFFICIENT_PRIVILEGE) => denied(db.message()),
        _ => StoreError::Postgres { script, step, source: error },
    }
}

/// It is there, and this user may not do there what is needed.
pub(super) fn denied(why: &str) -> StoreError {
    StoreError::Denied {
        what: format!("the database does not let this user make and use its tables ({why})"),
        fix: "make it the owner: ALTER DATABASE … OWNER TO …, or GRANT ALL ON SCHEMA … TO …".into(),
    }
}

fn io_source(error: &Error) -> bool {
    error.source().is_some_and(|source| source.is::<std::io::Error>())
}

fn lost(error: &Error) -> StoreError {
    StoreError::Unavailable {
        what: format!("the connection to the database was lost ({error})"),
        fix: "it is made again by itself; repeat the request".into(),
    }
}

/// The violated constraint with the columns it is about, as `table.column`.
fn violated(db: &DbError) -> String {
    let columns = db.detail().and_then(|d| d.strip_prefix("Key (")).and_then(|d| d.split_once(")=("));
    match (db.table(), columns) {
        (Some(table), Some((columns, _))) => format!("{} ({table}.{columns})", db.message()),
        _ => db.message().to_owned(),
    }
}

/// What a failed attempt to connect means: not there (yet), or there and not for us.
pub(super) fn unreachable(error: &Error, address: &Address) -> StoreError {
    let why = match error.as_db_error() {
        Some(db) => db.message().to_owned(),
        None => match error.source() {
            Some(source) => source.to_string(),
            None => error.to_string(),
        },
    };
    if is_final(error) {
        return StoreError::Denied {
            what: format!("{address} does not let us in ({why})"),
            fix: "check the user, the password, the name of the database and sslmode in its address".into(),
        };
    }
    // It was reached, and has no room.
    let full = error.code().is_some_and(|code| code.code().starts_with("53"));
    let fix = match full {
        true => "raise max_connections there, or the limit of this user; it is tried again by itself",
        false => "check that it runs and that the address is right; it is tried again by itself",
    };
    StoreError::Unavailable {
        what: format!("the database {address} cannot be reached ({why})"),
        fix: fix.into(),
    }
}

/// Whether trying again is of no use: wrong credentials, an unknown database, TLS that is not to be had. Whatever
/// may pass (nobody listens, it is starting up, it has no connection left, a broken line) is not.
fn is_final(error: &Error) -> bool {
    if let Some(code) = error.code() {
        let unknown = [&SqlState::INVALID_CATALOG_NAME, &SqlState::INSUFFICIENT_PRIVILEGE];
        return code.code().starts_with("28") || unknown.contains(&code);
    }
    let io = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    match io {
        Some(io) => io.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()),
        None => !error.is_closed(),
    }
}
