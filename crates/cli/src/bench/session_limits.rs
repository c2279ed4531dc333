//! What sessions are measured against: the rows of a phase written by the store's own statements in a bare loop with the
//! same durability, and processes that nobody looks after.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use futures::future::{join_all, try_join_all};
use parhelia_core::ids::SessionId;
use parhelia_store::postgres::{POOL, bare_connection};
use parhelia_store::{NewSession, Owner, Store, sql, sqlite};
use rusqlite::{Connection, params};
use serde_json::json;
use tokio_postgres::types::ToSql;

use super::postgres::text;
use super::store::moment;
use super::{Ground, stopwatch};

const NOW: &str = "2026-01-21T00:00:00.000Z";
const OWNER: &str = "bench";

/// A session that nobody advances but the loop here.
async fn session(store: &Store, n: u64) -> Result<SessionId, String> {
    let session_id = SessionId::mint(1_768_000_000_000 + n, n);
    let new = NewSession {
        session_id: session_id.clone(),
        cascade_id: "bench".to_owned(),
        parent: None,
        depth: 0,
        name: None,
        resumable: true,
        auto_resume: true,
        origin: None,
        created_by: "bench".to_owned(),
        metadata: json!({}),
        owner_id: OWNER.to_owned(),
        cascade_hash: "bench".to_owned(),
        definition: Arc::from("{}"),
        inputs: json!({}),
        surroundings: json!({}),
        done: Vec::new(),
    };
    store.start_session(&new, vec![], moment()).await.map_err(|e| e.to_string())?;
    Ok(session_id)
}

async fn owner(store: &Store) -> Result<(), String> {
    let owner = Owner {
        id: OWNER.to_owned(),
        home_id: "bench".to_owned(),
        host: "bench".to_owned(),
        boot_id: "bench".to_owned(),
        epoch: 0,
        started_at: moment(),
        // Nobody takes its sessions over.
        lease_until: parhelia_core::time::plus_seconds(moment(), 100 * 365 * 86_400),
        ended_at: None,
        version: parhelia_core::VERSION.to_owned(),
    };
    store.register_owner(&owner).await.map_err(|e| e.to_string())
}

/// Phases a second: `together` of a session in one write, as the server did just before, and the writes of all sessions in
/// one commit.
pub(super) async fn sqlite(
    ground: &Ground,
    sessions: usize,
    together: usize,
) -> Result<(f64, &'static str), String> {
    let path = ground.dir.join(format!("limit-sessions-{sessions}.db"));
    let store = Store::open_sqlite(&path).map_err(|e| e.to_string())?;
    owner(&store).await?;
    let mut ids = Vec::new();
    for n in 0..sessions as u64 {
        ids.push(session(&store, n).await?);
    }
    store.close().await.map_err(|e| e.to_string())?;
    let db = sqlite::bare_connection(&path).map_err(|e| e.to_string())?;
    let rate = phases_on(&db, &ids, together, ground).map_err(|e| e.to_string())?;
    Ok((rate, "same rows and commits, one loop"))
}

fn phases_on(db: &Connection, ids: &[SessionId], together: usize, ground: &Ground) -> rusqlite::Result<f64> {
    let mut guard = db.prepare(sql::GUARD_OWNER.sqlite())?;
    let mut advance = db.prepare(sql::SESSION_ADVANCE.sqlite())?;
    let mut end = db.prepare(sql::PHASE_END.sqlite())?;
    let mut checkpoint = db.prepare(sql::CHECKPOINT_INSERT.sqlite())?;
    let mut event = db.prepare(sql::EVENT.sqlite())?;
    let none = None::<&str>;
    let (began, mut position) = (stopwatch(), 0_i64);
    while began.elapsed() < ground.span {
        db.execute_batch("BEGIN IMMEDIATE")?;
        for id in ids {
            let id = id.as_str();
            let status = if position == 0 { "starting" } else { "running" };
            let _: i64 = guard.query_row([OWNER], |row| row.get(0))?;
            let touched = advance.execute(params![
                id, OWNER, 1, status, "running", "phase", none, none, none, none, none, none, none, none,
                none, none, none, NOW
            ])?;
            debug_assert_eq!(touched, 1);
            for place in position..position + together as i64 {
                let mark = format!("cp-{id}-{place}");
                end.execute(params![id, place, "phase", "completed", NOW, "{\"n\":1}", none])?;
                checkpoint.execute(params![mark, id, "phase", none, NOW])?;
                let line = params![
                    NOW,
                    "phase_completed",
                    none,
                    none,
                    none,
                    id,
                    none,
                    none,
                    "Phase phase completed",
                    "{\"phase\":\"phase\"}",
                    "sessions",
                    OWNER,
                    none
                ];
                let _: i64 = event.query_row(line, |row| row.get(0))?;
            }
        }
        db.execute_batch("COMMIT")?;
        position += together as i64;
    }
    Ok((position as usize * ids.len()) as f64 / began.elapsed().as_secs_f64())
}

/// The same on PostgreSQL, on as many connections as a server has.
pub(super) async fn postgres(
    ground: &Ground,
    url: &str,
    sessions: usize,
    together: usize,
) -> Result<(f64, &'static str), String> {
    let store = Store::open_postgres(url).await.map_err(|e| e.to_string())?;
    if sessions == 1 {
        owner(&store).await?;
    }
    let mut ids = Vec::new();
    for n in 0..sessions.min(POOL) {
        ids.push(session(&store, (sessions * 1000 + n) as u64).await?);
    }
    store.close().await.map_err(|e| e.to_string())?;
    let counted = AtomicU64::new(0);
    let began = stopwatch();
    let loops = ids.iter().map(|id| one_connection(url, id.as_str(), together, ground, &counted));
    for done in join_all(loops).await {
        done?;
    }
    let rate = counted.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    Ok((rate, if sessions == 1 { "same rows, one connection" } else { "same rows, a server's connections" }))
}

async fn one_connection(
    url: &str,
    id: &str,
    together: usize,
    ground: &Ground,
    counted: &AtomicU64,
) -> Result<(), String> {
    let (client, messages) = bare_connection(url).await.map_err(|e| e.to_string())?;
    tokio::spawn(messages.for_each(async |_| {}));
    let prepare = async |sql: &'static sql::Sql| client.prepare(sql.postgres()).await.map_err(text);
    let (guard, advance) = (prepare(&sql::GUARD_OWNER).await?, prepare(&sql::SESSION_ADVANCE).await?);
    let (end, checkpoint) = (prepare(&sql::PHASE_END).await?, prepare(&sql::CHECKPOINT_INSERT).await?);
    let reserve = client.prepare("SELECT reserve_events($1)").await.map_err(text)?;
    let event = client.prepare(sql::EVENT.batch.unwrap_or(sql::EVENT.text)).await.map_err(text)?;
    let none = None::<&str>;
    let n: &(dyn ToSql + Sync) = &none;
    // The store's form of events: columns as arrays, and the place of each in the ids that were reserved.
    let many = |text: &'static str| vec![text; together];
    let (at, kind, message) = (many(NOW), many("phase_completed"), many("Phase phase completed"));
    let (source, who, told) = (many("sessions"), many(OWNER), many("{\"phase\":\"phase\"}"));
    let (of, absent, epochs) = (vec![id; together], vec![none; together], vec![None::<i64>; together]);
    let slots: Vec<i64> = (0..together as i64).collect();
    let lines: [&(dyn ToSql + Sync); 14] = [
        &at, &kind, &absent, &absent, &absent, &of, &absent, &absent, &message, &told, &source, &who,
        &epochs, &slots,
    ];
    let (began, mut position) = (stopwatch(), 0_i64);
    while began.elapsed() < ground.span {
        let status = if position == 0 { "starting" } else { "running" };
        let advanced: [&(dyn ToSql + Sync); 18] =
            [&id, &OWNER, &1_i64, &status, &"running", &"phase", n, n, n, n, n, n, n, n, n, n, n, &NOW];
        let phases = (position..position + together as i64).map(|place| {
            let (client, end, checkpoint) = (&client, &end, &checkpoint);
            async move {
                let mark = format!("cp-{id}-{place}");
                let ended: [&(dyn ToSql + Sync); 7] =
                    [&id, &place, &"phase", &"completed", &NOW, &"{\"n\":1}", &none];
                let marked: [&(dyn ToSql + Sync); 5] = [&mark, &id, &"phase", &none, &NOW];
                tokio::try_join!(client.execute(end, &ended), client.execute(checkpoint, &marked))
            }
        });
        // Without waiting for one another's answers, as the store does it.
        let all = async {
            client.batch_execute("BEGIN").await?;
            let reserved = [&(together as i64) as &(dyn ToSql + Sync)];
            tokio::try_join!(
                client.execute(&reserve, &reserved),
                client.execute(&guard, &[&OWNER]),
                client.execute(&advance, &advanced),
                try_join_all(phases),
                client.query(&event, &lines),
            )?;
            client.batch_execute("COMMIT").await
        };
        all.await.map_err(text)?;
        position += together as i64;
        counted.fetch_add(together as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Processes a second that are only started and waited for: so many at once, so many after each other.
pub(super) async fn processes(at_once: usize, each: usize) -> Result<f64, String> {
    let began = stopwatch();
    let lines = (0..at_once).map(|_| async {
        for _ in 0..each {
            tokio::process::Command::new("true").status().await.map_err(|e| e.to_string())?;
        }
        Ok::<(), String>(())
    });
    for done in join_all(lines).await {
        done?;
    }
    Ok((at_once * each) as f64 / began.elapsed().as_secs_f64())
}
