//! PostgreSQL, shared by several servers.
//!
//! Scripts run on pooled connections, one transaction each, pipelined; PostgreSQL itself lets concurrent
//! commits share a flush. The two high-rate inputs (heartbeats, and events that tell of no row's change) are
//! gathered: whatever waits is written by one transaction with array parameters. LISTEN and the leader's lock
//! have connections of their own. Nothing here knows what a container is.
//!
//! **When the connection is lost during a COMMIT nobody can know what became of it.** The caller is told so
//! (`Unavailable`, "outcome unknown"), and nothing is run again here. Every verb can be repeated by its caller with the same
//! ids: a second insert of a row is a `Conflict`; changes are guarded by the state,
//! attempt or epoch that they were decided from; receipts are written once. What may be told twice are a
//! heartbeat sample, a line of `append_events` and a reconcile cycle, which change no state.

mod address;
mod gather;
mod leader;
mod listen;
mod open;
mod run;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use deadpool::Runtime;
use deadpool::managed::{
    self, Metrics, Object, Pool, PoolError, RecycleError, RecycleResult, TimeoutType, Timeouts,
};
use futures::StreamExt;
use tokio::sync::{Semaphore, watch};
use tracing::{info, warn};

use crate::error::{Result, StoreError};
use crate::script::{Database, Query, Script, StepOutcome, Take};
use crate::sql;

use address::Address;
use run::{Done, Failure, Session, unreachable};

pub use address::{Messages, check_url, is_url, redacted};
pub use leader::{Seat, Seated};
pub use open::{MIGRATIONS, reach};

/// Connections for scripts and questions.
pub const POOL: usize = 12;
/// Scripts that renew a lease, with a connection of their own.
const LEASES: [&str; 2] = ["renew_leadership", "renew_owner"];
/// Scripts that may be under way or waiting; beyond it a caller waits for a place.
const QUEUE: usize = 1024;
/// How often a script is run again that the database broke off among equals (deadlock, serialization).
const TRIES: u32 = 5;
/// The database's own limit is 15 s; beyond this it is the connection that does not answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Whoever asks whether it answers wants to know soon.
const PROBE: Duration = Duration::from_secs(3);
const RECONNECT_FIRST: Duration = Duration::from_millis(100);
const RECONNECT_MOST: Duration = Duration::from_secs(3);

#[derive(Debug)]
struct Manager(Arc<Address>);

impl managed::Manager for Manager {
    type Type = Session;
    type Error = StoreError;

    async fn create(&self) -> Result<Session> {
        let connected = async {
            let (client, messages) = self.0.connect().await?;
            tokio::spawn(drive(messages));
            client.batch_execute(open::SETTINGS).await?;
            Ok(Session::new(client))
        };
        connected.await.map_err(|e| unreachable(&e, &self.0))
    }

    async fn recycle(&self, session: &mut Session, _: &Metrics) -> RecycleResult<StoreError> {
        if session.spoiled || session.client.is_closed() {
            return Err(RecycleError::message("the connection is gone"));
        }
        Ok(())
    }
}

/// Keeps a connection going that nobody listens on.
async fn drive(mut messages: Messages) {
    while let Some(Ok(_)) = messages.next().await {}
}

/// A connection that takes everything and answers nothing is none.
async fn in_time<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| Err(late()))
}

/// What the parts of a PostgreSQL store share.
#[derive(Debug)]
struct Shared {
    address: Arc<Address>,
    pool: Pool<Manager>,
    /// For those who renew a lease: they must not wait behind everybody.
    leases: Pool<Manager>,
    /// Why the database is away, while it is: callers are told at once, and one task tries to reach it.
    away: Mutex<Option<String>>,
    /// Why the last write was not taken, while it answers and takes none (a full disk, a standby).
    unwritable: Mutex<Option<String>>,
    closed: AtomicBool,
    /// The id of the last event that a reader of the tail may see.
    commits: watch::Sender<i64>,
    /// The highest event id that this process has committed.
    written: watch::Sender<i64>,
}

#[derive(Debug)]
pub struct Postgres {
    shared: Arc<Shared>,
    gather: gather::Gather,
    listener: listen::Listener,
    places: Arc<Semaphore>,
}

/// A bare connection, as the store makes its own, for measuring beside it. Nothing is checked or migrated; polling
/// the messages is what drives it.
pub async fn bare_connection(url: &str) -> Result<(tokio_postgres::Client, Messages)> {
    let address = Address::parse(url)?;
    address.connect().await.map_err(|e| unreachable(&e, &address))
}

impl Postgres {
    /// Connects, checks and migrates the database, then starts the tasks that keep it company.
    pub async fn open(url: &str) -> Result<Self> {
        let address = Arc::new(Address::parse(url)?);
        let last_event = open::open(&address).await?;
        let pool = |size| {
            let built =
                Pool::builder(Manager(address.clone())).max_size(size).runtime(Runtime::Tokio1).build();
            built.map_err(|e| StoreError::Unavailable {
                what: e.to_string(),
                fix: "please report this".into(),
            })
        };
        let (pool, leases) = (pool(POOL)?, pool(1)?);
        let shared = Arc::new(Shared {
            address,
            pool,
            leases,
            away: Mutex::default(),
            unwritable: Mutex::default(),
            closed: AtomicBool::new(false),
            commits: watch::Sender::new(last_event),
            written: watch::Sender::new(last_event),
        });
        let gather = gather::Gather::start(&shared);
        let listener = listen::Listener::start(&shared);
        Ok(Self { shared, gather, listener, places: Arc::new(Semaphore::new(QUEUE)) })
    }

    /// The chair of the leader: who sits on it, holds the advisory lock.
    pub fn seat(&self) -> Seat {
        Seat::new(self.shared.address.clone())
    }
}

impl Shared {
    fn away(&self) -> Option<String> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn session(self: &Arc<Self>, pool: &Pool<Manager>) -> Result<Object<Manager>> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(StoreError::closed());
        }
        if let Some(what) = self.away() {
            return Err(still_away(what));
        }
        let limits = Timeouts { wait: Some(PATIENCE), create: Some(PATIENCE), recycle: None };
        match pool.timeout_get(&limits).await {
            Ok(session) => Ok(session),
            Err(PoolError::Backend(error)) => {
                self.gone(&error);
                Err(error)
            }
            Err(PoolError::Closed) => Err(StoreError::closed()),
            Err(PoolError::Timeout(TimeoutType::Create)) => Err(self.did_not_answer()),
            // Whoever has one of them will say whether the database answers.
            Err(error) => Err(StoreError::Unavailable {
                what: format!("no connection to the database was free ({error})"),
                fix: "try again in a moment".into(),
            }),
        }
    }

    /// It may be there and hang: nobody else waits that long to be told.
    fn did_not_answer(self: &Arc<Self>) -> StoreError {
        let error = late();
        self.gone(&error);
        error
    }

    /// The database could not be reached: nobody waits for it, and one task tries until it can be.
    fn gone(self: &Arc<Self>, error: &StoreError) {
        // That somebody changed the password while we run passes too.
        let (StoreError::Unavailable { what, .. } | StoreError::Denied { what, .. }) = error else { return };
        let first = {
            let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
            away.replace(what.clone()).is_none()
        };
        if !first {
            return;
        }
        warn!(%error, "the database is away");
        let shared = self.clone();
        tokio::spawn(async move {
            let mut pause = RECONNECT_FIRST;
            while !shared.closed.load(Ordering::Relaxed) {
                tokio::time::sleep(pause).await;
                let connecting = managed::Manager::create(shared.pool.manager());
                let error = match tokio::time::timeout(PATIENCE, connecting).await {
                    Ok(Ok(_)) => break,
                    Ok(Err(error)) => error,
                    Err(_) => late(),
                };
                if let StoreError::Unavailable { what, .. } | StoreError::Denied { what, .. } = error {
                    *shared.away.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
                }
                pause = (pause * 2).min(RECONNECT_MOST);
            }
            *shared.away.lock().unwrap_or_else(PoisonError::into_inner) = None;
            info!("the database is back");
        });
    }

    /// Runs a script to its end, again if the database broke it off among equals.
    async fn run(self: &Arc<Self>, script: &Script) -> Result<Vec<StepOutcome>> {
        let mut pause = Duration::from_millis(5);
        let pool = if LEASES.contains(&script.name) { &self.leases } else { &self.pool };
        for left in (0..TRIES).rev() {
            let mut session = self.session(pool).await?;
            // The connection is held across the await: if it never answers, it is not used again.
            let failure = match tokio::time::timeout(PATIENCE, session.script(script)).await {
                Ok(Ok(done)) => return Ok(self.told(done)),
                Ok(Err(failure)) => failure,
                Err(_) => {
                    session.spoiled = true;
                    Failure::Unknown(self.did_not_answer().to_string())
                }
            };
            let answers = !session.client.is_closed();
            let_go(session);
            match failure {
                Failure::Undone(error) => {
                    // That a connection was lost says nothing about the next one.
                    if let (true, StoreError::Unavailable { what, .. }) = (answers, &error) {
                        self.note_unwritable(Some(what.clone()));
                    }
                    return Err(error);
                }
                Failure::Unknown(what) => return Err(unknown(script, &what)),
                Failure::Again if left > 0 => {
                    tokio::time::sleep(pause).await;
                    pause *= 3;
                }
                Failure::Again => break,
            }
        }
        Err(StoreError::Unavailable {
            what: format!("{} was broken off {TRIES} times by others who wanted the same rows", script.name),
            fix: "try again in a moment".into(),
        })
    }

    fn note_unwritable(&self, why: Option<String>) {
        *self.unwritable.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    fn told(&self, done: Done) -> Vec<StepOutcome> {
        self.note_unwritable(None);
        self.written.send_if_modified(|last| {
            let newer = done.last_event > *last;
            *last = done.last_event.max(*last);
            newer
        });
        done.outcomes
    }
}

/// One that is not used again is closed now, with whatever it holds there, and not when the pool comes to it.
fn let_go(session: Object<Manager>) {
    if session.spoiled {
        drop(Object::take(session));
    }
}

fn still_away(what: String) -> StoreError {
    StoreError::Unavailable {
        what,
        fix: "it is tried again by itself; check the database if this goes on".into(),
    }
}

fn late() -> StoreError {
    still_away("the database did not answer in time".into())
}

fn unknown(script: &Script, what: &str) -> StoreError {
    StoreError::Unavailable {
        what: format!("{}: outcome unknown, the answer to its commit never came ({what})", script.name),
        fix: "look whether it was done before you repeat it: what starts something new would start it twice"
            .into(),
    }
}

#[async_trait]
impl Database for Postgres {
    async fn write(&self, script: Script) -> Result<Vec<StepOutcome>> {
        if self.shared.closed.load(Ordering::Relaxed) {
            return Err(StoreError::closed());
        }
        if LEASES.contains(&script.name) {
            let shared = self.shared.clone();
            let work = tokio::spawn(async move { shared.run(&script).await });
            return work.await.map_err(|_| StoreError::closed())?;
        }
        let place = self.places.clone().acquire_owned().await.map_err(|_| StoreError::closed())?;
        if let Some(what) = self.shared.away() {
            return Err(still_away(what));
        }
        if gather::can_be_gathered(&script) {
            return self.gather.write(script, place).await;
        }
        // A task of its own: it runs to its end even if the caller stops waiting.
        let shared = self.shared.clone();
        let work = tokio::spawn(async move {
            let result = shared.run(&script).await;
            drop(place);
            result
        });
        work.await.map_err(|_| StoreError::closed())?
    }

    async fn read(&self, query: Query, take: Take) -> Result<()> {
        let mut session = self.shared.session(&self.shared.pool).await?;
        // A task of its own: a connection goes back when its question is answered, and not when its caller leaves.
        let shared = self.shared.clone();
        let work = tokio::spawn(async move {
            let answer = tokio::time::timeout(PATIENCE, session.query(&query, take)).await;
            let answer = answer.unwrap_or_else(|_| {
                session.spoiled = true;
                Err(shared.did_not_answer())
            });
            let_go(session);
            answer
        });
        work.await.map_err(|_| StoreError::closed())?
    }

    async fn probe(&self) -> Result<()> {
        let probe = Query { sql: &sql::PROBE, params: vec![] };
        let answer = self.read(probe, Box::new(|rows| rows.next().map(drop)));
        tokio::time::timeout(PROBE, answer).await.unwrap_or_else(|_| Err(late()))?;
        match self.shared.unwritable.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            None => Ok(()),
            Some(what) => Err(StoreError::Unavailable {
                what: format!("the last write was not taken: {what}"),
                fix: "mend the cause there; the next write that succeeds clears this".into(),
            }),
        }
    }

    async fn close(&self) -> Result<()> {
        if self.shared.closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        // Every place is free again: what was under way has ended.
        let all = self.places.acquire_many(QUEUE as u32);
        let _ = tokio::time::timeout(PATIENCE, all).await.map(|all| all.map(|places| places.forget()));
        self.places.close();
        self.listener.stop();
        self.shared.pool.close();
        self.shared.leases.close();
        Ok(())
    }

    fn queue_depth(&self) -> usize {
        QUEUE.saturating_sub(self.places.available_permits())
    }

    fn commits(&self) -> watch::Receiver<i64> {
        self.shared.commits.subscribe()
    }

    fn seat(&self) -> Option<Seat> {
        Some(Postgres::seat(self))
    }

    fn wake(&self, name: &str) {
        self.listener.wake(name);
    }

    fn wakes(&self) -> Option<tokio::sync::broadcast::Receiver<String>> {
        Some(self.listener.wakes())
    }
}
