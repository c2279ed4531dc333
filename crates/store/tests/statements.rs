//! Every statement is prepared on a migrated database, and the hot ones are served by an index.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod common;

use common::World;
use parhelia_store::sql::{self, Sql};
use rusqlite::Connection;

#[tokio::test]
async fn every_file_is_valid_sql_on_the_migrated_schema() {
    let w = World::sqlite().await;
    let connection = Connection::open(w.path()).unwrap();
    for sql in sql::ALL {
        connection.prepare(sql.sqlite()).unwrap_or_else(|error| panic!("{}.sql: {error}", sql.name));
    }
}

#[tokio::test]
async fn every_file_is_valid_sql_on_a_migrated_postgresql() {
    let w = World::postgres().await;
    let url = common::postgres::Server::shared().database();
    parhelia_store::Store::open(&url).await.unwrap().close().await.unwrap();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let mut wrong = String::new();
    for sql in sql::ALL {
        for text in [Some(sql.postgres()), sql.batch].into_iter().flatten() {
            if let Err(error) = client.prepare(text).await {
                let why = error.as_db_error().map_or(error.to_string(), ToString::to_string);
                wrong.push_str(&format!("{}.sql: {why}\n", sql.name));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    w.store.close().await.unwrap();
}

/// Pages and prefixes are found by comparing text, and joins use an index only where both sides compare alike.
#[tokio::test]
async fn text_compares_bytewise_in_every_table_whatever_the_locale() {
    let url = common::postgres::Server::shared().database();
    parhelia_store::Store::open(&url).await.unwrap().close().await.unwrap();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let collations = "SELECT c.relname || '.' || a.attname, l.collname::TEXT
        FROM pg_attribute a
        JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'r'
        JOIN pg_collation l ON l.oid = a.attcollation
        WHERE c.relnamespace = current_schema()::REGNAMESPACE AND a.attnum > 0 AND NOT a.attisdropped";
    let found = client.query(collations, &[]).await.unwrap();
    assert!(found.len() > 100, "the columns of the schema are there");
    let other = found.iter().filter(|row| row.get::<_, String>(1) != "C");
    let other: Vec<String> = other.map(|row| row.get(0)).collect();
    assert!(other.is_empty(), "{other:?}");
}

fn plan(connection: &Connection, sql: &Sql) -> Vec<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", sql.sqlite())).unwrap();
    let count = statement.parameter_count();
    for i in 1..=count {
        statement.raw_bind_parameter(i, rusqlite::types::Null).unwrap();
    }
    let mut rows = statement.raw_query();
    let mut lines = vec![];
    while let Some(row) = rows.next().unwrap() {
        lines.push(row.get::<_, String>(3).unwrap());
    }
    lines
}

#[tokio::test]
async fn hot_statements_never_scan_a_table_nor_sort_one() {
    let w = World::sqlite().await;
    let connection = Connection::open(w.path()).unwrap();
    let hot = [
        (&sql::GUARD, "SCAN leadership"), // a table of one row
        (&sql::TRACKED, "idx_containers_live (provider=?)"),
        (&sql::TRACKED_BY_IDS, "(id=?)"),
        (&sql::TRACKED_BY_SANDBOXES, "(provider=? AND sandbox_id=?)"),
        (&sql::PATIENTS, "idx_containers_state (state=?)"),
        (&sql::LIVE_COUNT, "idx_containers_active"),
        (&sql::CONTAINERS, "idx_containers_created"),
        (&sql::CONTAINERS_ACTIVE, "idx_containers_active"),
        (&sql::OLDEST_RUNNING, "idx_containers_state (state=?)"),
        (&sql::CONTAINERS_SILENT, "idx_containers_state (state=?)"),
        (&sql::CONTAINER, "(id=?)"),
        (&sql::CONTAINER_BY_SANDBOX, "(provider=? AND sandbox_id=?)"),
        (&sql::CONTAINER_IDS, "(id>? AND id<?)"),
        (&sql::CONTAINERS_OF_TASK, "idx_containers_task (task_id=?)"),
        (&sql::HEARTBEAT_TOUCH, "(container_id=?)"),
        (&sql::HEARTBEAT_WORKERS, "idx_workers_container (container_id=?)"),
        (&sql::HEARTBEAT_HISTORY, "idx_heartbeats_timestamp (timestamp>?"),
        (&sql::HEARTBEATS_DELETE, "idx_heartbeats_timestamp (timestamp<?)"),
        (&sql::HEARTBEATS_FOLD, "idx_heartbeats_timestamp (timestamp<?)"),
        (&sql::OBSERVE, "(id=?)"),
        (&sql::APPLY_HEALTH, "(id=?)"),
        (&sql::EVENTS_AFTER, "INTEGER PRIMARY KEY (rowid>?)"),
        (&sql::EVENTS_BEFORE, "INTEGER PRIMARY KEY (rowid>?)"),
        (&sql::EVENTS_OLDEST, "idx_events_timestamp (timestamp>? AND timestamp<?)"),
        (&sql::EVENTS_NEWEST, "idx_events_timestamp (timestamp>? AND timestamp<?)"),
        (&sql::EVENTS_CONTAINER_OLDEST, "idx_events_container (container_id=?"),
        (&sql::EVENTS_CONTAINER_NEWEST, "idx_events_container (container_id=?"),
        (&sql::EVENTS_TASK_OLDEST, "idx_events_task (task_id=?"),
        (&sql::EVENTS_TASK_NEWEST, "idx_events_task (task_id=?"),
        (&sql::EVENTS_TYPE_OLDEST, "idx_events_type (event_type=? AND rowid>?)"),
        (&sql::EVENTS_TYPE_NEWEST, "idx_events_type (event_type=? AND rowid>?)"),
        (&sql::EVENTS_DELETE, "idx_events_timestamp (timestamp<?)"),
        (&sql::FIRST_EVENT, "SEARCH events"),
        (&sql::LAST_EVENT, "SEARCH events"),
        (&sql::READER_ADVANCE, "(name=?)"),
        (&sql::DELIVERIES_PENDING, "idx_deliveries_pending (alert=?)"),
        (&sql::DELIVERIES_OPEN, "idx_deliveries_open"),
        (&sql::DELIVERIES_DELETE, "idx_deliveries_finished (finished_at<?)"),
        (&sql::DELIVERY_CLAIM, "(id=?)"),
        (&sql::DELIVERY_RECORD, "(id=?)"),
        (&sql::ALERT_TROUBLE, "idx_deliveries_trouble (alert=?"),
        (&sql::JOBS_WATCHED, "idx_jobs_open"),
        (&sql::JOB_NOTE, "(id=?)"),
        (&sql::SESSIONS, "idx_sessions_started"),
        (&sql::SESSIONS_OPEN, "idx_sessions_open"),
        (&sql::SESSIONS_OF_PARENT, "idx_sessions_parent (parent_session_id=?)"),
        (&sql::SESSION_SHOWN, "(session_id=?)"),
        (&sql::SESSION_IDS, "(session_id>? AND session_id<?)"),
        (&sql::SESSIONS_NAMED, "idx_sessions_name (name=?)"),
        (&sql::SESSION_PHASE_COUNTS, "(session_id=?)"),
        (&sql::SESSION_TASK_COUNTS, "COVERING INDEX idx_tasks_level (session_id=?"),
        (&sql::SESSION_TASKS, "idx_tasks_level (session_id=? AND phase=?)"),
        (
            &sql::SESSION_TASKS_OF_STATE,
            "idx_tasks_level (session_id=? AND phase=? AND state=? AND position>?)",
        ),
        (&sql::ATTEMPTS_OF_TASKS, "(task_id=?)"),
        (&sql::SESSION_CHECKPOINTS, "idx_checkpoints_session (session_id=? AND id>?)"),
        (&sql::WAIT, "(id=?)"),
        (&sql::WAIT_IDS, "(id>? AND id<?)"),
        (&sql::WAIT_ANSWER, "(id=?)"),
        (&sql::WAIT_COUNTS, "COVERING INDEX idx_waits_open"),
        (&sql::WAITS_OF_SESSION, "idx_waits_session (session_id=?)"),
        (&sql::INBOX, "idx_waits_open (wait_type=?)"),
        (&sql::INBOX_JOBS, "idx_jobs_waiting"),
        (&sql::INBOX_JOBS, "idx_jobs_origin (origin_id=?)"),
        (&sql::SIGNALS, "idx_signals_fired"),
        (&sql::SIGNALS_PENDING, "idx_signals_pending"),
        (&sql::SIGNAL_BY_ID, "(id=?)"),
        (&sql::EVENTS_SESSION_OLDEST, "idx_events_session (session_id=?"),
        (&sql::EVENTS_SESSION_NEWEST, "idx_events_session (session_id=?"),
        (&sql::SESSIONS_BY_IDS, "(session_id=?)"),
        (&sql::SESSIONS_PAGE, "(session_id>?)"),
        (&sql::SESSIONS_BEATING_PAGE, "idx_sessions_open ((owner_id,session_id)>(?,?))"),
        (&sql::CYCLE_OF_PROVIDER, "idx_cycles_provider (provider=?)"),
    ];
    // What these sort is bounded or small: a batch, one task's containers, the silent ones, one minimum,
    // a span of time, what of sessions is open, one session's own.
    let may_sort = [
        &sql::HEARTBEATS_FOLD,
        &sql::CONTAINERS_OF_TASK,
        &sql::CONTAINERS_SILENT,
        &sql::OLDEST_RUNNING,
        &sql::EVENTS_OLDEST,
        &sql::EVENTS_NEWEST,
        &sql::SESSIONS_OPEN,
        &sql::SESSIONS_OF_PARENT,
        &sql::SESSIONS_NAMED,
        &sql::SESSION_PHASE_COUNTS,
        &sql::SESSION_TASKS,
        &sql::WAITS_OF_SESSION,
        &sql::INBOX,
        &sql::SIGNALS_PENDING,
    ]
    .map(|sql| sql.name);
    let mut wrong = String::new();
    for (sql, index) in hot {
        let lines = plan(&connection, sql);
        let served = lines.iter().any(|line| line.contains(index));
        let scans = lines.iter().any(|line| line.starts_with("SCAN") && !line.contains("INDEX"))
            && sql.name != "guard";
        let sorts = lines.iter().any(|line| line.contains("TEMP B-TREE")) && !may_sort.contains(&sql.name);
        if !served || scans || sorts {
            wrong.push_str(&format!("{}: wanted {index}\n  {}\n", sql.name, lines.join("\n  ")));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
