//! Opening a database: what is refused (and then left exactly as it was), what is created, and the migrations in
//! between. Two servers that start at once migrate one after the other: the second finds nothing missing.

use std::path::PathBuf;

use tokio_postgres::Client;

use super::address::{Address, Messages};
use super::in_time;
use super::run::{denied, meaning, unreachable};
use crate::error::{Result, StoreError};

/// In order; a database's version is how many of them it has had.
pub const MIGRATIONS: &[(&str, &str)] = &[
    ("0001_init", include_str!("../../migrations/postgres/0001_init.sql")),
    ("0002_event_writer", include_str!("../../migrations/postgres/0002_event_writer.sql")),
    ("0003_tokens", include_str!("../../migrations/postgres/0003_tokens.sql")),
    ("0004_deliveries", include_str!("../../migrations/postgres/0004_deliveries.sql")),
    ("0005_jobs", include_str!("../../migrations/postgres/0005_jobs.sql")),
    ("0006_sessions", include_str!("../../migrations/postgres/0006_sessions.sql")),
    ("0007_vitals", include_str!("../../migrations/postgres/0007_vitals.sql")),
    ("0008_session_trials", include_str!("../../migrations/postgres/0008_session_trials.sql")),
    ("0009_sessions_orphaned", include_str!("../../migrations/postgres/0009_sessions_orphaned.sql")),
    ("0010_bytewise", include_str!("../../migrations/postgres/0010_bytewise.sql")),
];

/// `PHLA` and what follows: the first half of our advisory locks. The second is the schema, so that two
/// stores in one database do not meet.
pub(super) const LOCK_MIGRATION: i32 = 0x5048_4c41;
pub(super) const LOCK_LEADER: i32 = 0x5048_4c42;

/// The first version that has what we need: `xid8` and its snapshots.
const OLDEST_SERVER: i32 = 13_00_00;

/// A session for scripts: what takes too long there has failed.
pub(super) const SETTINGS: &str = "SET statement_timeout = '15s';
    SET idle_in_transaction_session_timeout = '5s';
    SET client_min_messages = 'warning';
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

/// Connects once, judges, migrates; gives the last event's id. What does not answer is not waited for; a migration
/// may take as long as the history is large.
pub(super) async fn open(address: &Address) -> Result<i64> {
    let (mut client, messages) = connect(address).await?;
    let driver = tokio::spawn(super::drive(messages));
    let result = accept(&mut client, address).await;
    drop(client);
    let _ = driver.await;
    result
}

/// Connects and judges, and changes nothing: a sentence for people, without the address's password.
pub async fn reach(url: &str) -> Result<String> {
    let address = Address::parse(url)?;
    let (client, messages) = connect(&address).await?;
    let driver = tokio::spawn(super::drive(messages));
    let judged = in_time(judge(&client, &address)).await;
    drop(client);
    driver.abort();
    judged.map(|version| format!("{address} answers, schema {version} of {}", MIGRATIONS.len()))
}

async fn connect(address: &Address) -> Result<(Client, Messages)> {
    in_time(async { address.connect().await.map_err(|e| unreachable(&e, address)) }).await
}

fn told(error: tokio_postgres::Error) -> StoreError {
    meaning(error, "open", "migrate")
}

async fn accept(client: &mut Client, address: &Address) -> Result<i64> {
    let server: i32 = client
        .query_one("SELECT current_setting('server_version_num')::INTEGER", &[])
        .await
        .map_err(told)?
        .get(0);
    if server < OLDEST_SERVER {
        let detail = format!("it is PostgreSQL {}, and 13 or newer is needed", server / 10_000);
        return Err(StoreError::NotOurs { database: address.to_string(), detail });
    }
    in_time(judge(client, address)).await?;
    let transaction = client.transaction().await.map_err(told)?;
    let lock = format!("SELECT pg_advisory_xact_lock({LOCK_MIGRATION}, hashtext(current_schema()))");
    transaction.batch_execute(&lock).await.map_err(told)?;
    let version = judge(transaction.client(), address).await?;
    let missing = MIGRATIONS.get(version as usize..).unwrap_or_default();
    for (_, text) in missing {
        transaction.batch_execute(text).await.map_err(told)?;
    }
    if !missing.is_empty() {
        let mark =
            format!("DELETE FROM parhelia_schema; INSERT INTO parhelia_schema VALUES ({})", MIGRATIONS.len());
        transaction.batch_execute(&mark).await.map_err(told)?;
    }
    transaction.commit().await.map_err(told)?;
    after_restore(client).await.map_err(told)?;
    Ok(client.query_one(crate::sql::LAST_EVENT.postgres(), &[]).await.map_err(told)?.get(0))
}

/// A dump that was restored into another cluster brings transaction ids that this one has not reached: its
/// events would be held back from the tail until then. They are all long decided.
async fn after_restore(client: &Client) -> Result<(), tokio_postgres::Error> {
    client
        .batch_execute(
            "UPDATE events SET txid = '0'
             WHERE EXISTS (SELECT 1 FROM (SELECT txid FROM events ORDER BY id DESC LIMIT 1) newest
                           WHERE newest.txid >= pg_snapshot_xmax(pg_current_snapshot()))",
        )
        .await
}

/// Reads whose database it is and of which version. Changes nothing.
async fn judge(client: &Client, address: &Address) -> Result<i64> {
    let refuse =
        |detail: &str| StoreError::NotOurs { database: address.to_string(), detail: detail.to_owned() };
    let schema: Option<String> =
        client.query_one("SELECT current_schema()::TEXT", &[]).await.map_err(told)?.get(0);
    if schema.is_none() {
        return Err(refuse("the search_path of this user names no schema that exists"));
    }
    let row = client
        .query_one(
            "SELECT COUNT(*), COUNT(*) FILTER (WHERE relname = 'parhelia_schema')
             FROM pg_class
             WHERE relnamespace = current_schema()::REGNAMESPACE AND relkind IN ('r', 'p', 'v', 'm', 'S', 'f')",
            &[],
        )
        .await
        .map_err(told)?;
    let (relations, ours): (i64, i64) = (row.get(0), row.get(1));
    if ours == 0 {
        if relations > 0 {
            return Err(refuse(
                "it holds the tables of another program; give Parhelia an empty database of its own",
            ));
        }
        let may = "SELECT has_schema_privilege(current_schema()::TEXT, 'CREATE')";
        let may: bool = client.query_one(may, &[]).await.map_err(told)?.get(0);
        let schema = schema.unwrap_or_default();
        return may
            .then_some(0)
            .ok_or_else(|| denied(&format!("nothing can be made in the schema {schema}")));
    }
    let found: i64 = client
        .query_one("SELECT COALESCE(MAX(version), 0) FROM parhelia_schema", &[])
        .await
        .map_err(told)?
        .get(0);
    let known = MIGRATIONS.len() as i64;
    if found > known {
        return Err(StoreError::Newer { path: PathBuf::from(address.to_string()), found, known });
    }
    Ok(found)
}
