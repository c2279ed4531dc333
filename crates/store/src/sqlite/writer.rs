//! The one writer. It takes whatever scripts are waiting, runs them in one transaction, commits them together
//! with a synced log, and only then acknowledges all of them.
//!
//! A script that fails is undone alone. Nearly all succeed, and a savepoint copies every page that its
//! script touches, so the group is first tried without any; if a script fails, all is rolled back and the
//! group runs again with a savepoint around each. An error that took the whole transaction with it makes the
//! writer start over with each script in a transaction of its own; a failed COMMIT fails everybody in the
//! group. So nobody is ever told "done" about something that is not on the disk, and the writer goes on:
//! it works again as soon as the disk does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Statement};
use tokio::sync::{mpsc, oneshot};
use tracing::{error, warn};

use super::Shared;
use super::run::{Runner, meaning, plain, trouble};
use crate::error::{Result, StoreError};
use crate::script::{Script, StepOutcome};

/// Scripts that may wait. Beyond it a caller waits for a place: memory stays bounded and nobody is refused.
const QUEUE: usize = 1024;
/// Scripts that share one commit, at most: bounds how long the first of them waits.
const GROUP: usize = 512;

/// How often the writer looks for the next who wants to share a commit before it goes on without, and how long it pauses in
/// between: about a microsecond, where a commit takes hundreds. Whoever waits for its processor has it meanwhile, which
/// can take longer: hence a bound on all of it.
const LOOKS: usize = 32;
const PAUSES: usize = 32;
const PATIENCE: Duration = Duration::from_millis(2);

/// The script goes back with its result, so that its caller frees it and not the writer.
type Reply = oneshot::Sender<(Result<Vec<StepOutcome>>, Script)>;

enum Job {
    Write(Script, Reply),
    Close(oneshot::Sender<Result<()>>),
}

#[derive(Debug)]
pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
    shared: Arc<Shared>,
}

impl Writer {
    pub(super) fn start(connection: Connection, shared: Arc<Shared>) -> Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let theirs = shared.clone();
        thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || work(connection, queue, &theirs))
            .map_err(no_thread)?;
        Ok(Self { jobs, shared })
    }

    pub(super) async fn write(&self, script: Script) -> Result<Vec<StepOutcome>> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(Job::Write(script, reply)).await.map_err(|_| StoreError::closed())?;
        let (result, _script) = answer.await.map_err(|_| stopped())?;
        result
    }

    /// Drains the queue, moves the log into the file, and ends the thread. A second close finds it done.
    pub(super) async fn close(&self) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        if self.jobs.send(Job::Close(reply)).await.is_err() {
            return Ok(());
        }
        answer.await.unwrap_or_else(|_| Ok(()))
    }

    pub(super) fn queue_depth(&self) -> usize {
        self.jobs.max_capacity() - self.jobs.capacity()
    }

    pub(super) fn probe(&self) -> Result<()> {
        if self.jobs.is_closed() {
            return Err(stopped());
        }
        let broken = self.shared.broken.lock().map_err(|_| stopped())?;
        match broken.as_ref() {
            None => Ok(()),
            Some(what) => Err(StoreError::Unavailable {
                what: format!("the last commit failed: {what}"),
                fix: "mend the cause; the next write that succeeds clears this".into(),
            }),
        }
    }
}

pub(super) fn no_thread(error: std::io::Error) -> StoreError {
    StoreError::Unavailable {
        what: format!("no thread could be started for it ({error})"),
        fix: "raise the limit of threads or free some memory".into(),
    }
}

pub(super) fn stopped() -> StoreError {
    StoreError::Unavailable {
        what: "its thread has stopped".into(),
        fix: "restart the server; its log says why this happened".into(),
    }
}

fn work(connection: Connection, mut queue: mpsc::Receiver<Job>, shared: &Shared) {
    let closing = {
        let mut group = match Group::new(&connection, shared) {
            Ok(group) => group,
            Err(problem) => {
                error!(%problem, "the store's writer could not begin");
                return;
            }
        };
        group.serve(&mut queue)
    };
    // The statements are gone: the connection can be tidied and closed.
    let tidy = connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .map_err(|e| meaning(e, "close", "wal_checkpoint", &shared.path));
    if let Err(problem) = &tidy {
        warn!(%problem, "the log was not moved into the file; the next start does it");
    }
    drop(connection);
    for reply in closing {
        // The log stays valid without the checkpoint, so a failed one is not a failed close.
        let _ = reply.send(Ok(()));
    }
}

/// The transaction of a group, with the statements that bound it.
struct Group<'c> {
    runner: Runner<'c>,
    shared: &'c Shared,
    begin: Statement<'c>,
    commit: Statement<'c>,
    savepoint: Statement<'c>,
    release: Statement<'c>,
    undo: Statement<'c>,
}

/// How a run of the whole group ended.
enum Ended {
    /// Each script has its own result, and what succeeded is durable.
    Committed(Vec<Result<Vec<StepOutcome>>>),
    /// Nothing is kept; everybody must be told so.
    Failed(rusqlite::Error),
    /// Nothing is kept, by the doing of one script: nobody else may pay for it.
    Undone,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Savepoints {
    None,
    EachScript,
}

impl<'c> Group<'c> {
    fn new(connection: &'c Connection, shared: &'c Shared) -> rusqlite::Result<Self> {
        Ok(Self {
            runner: Runner::keeping(connection, &shared.path),
            shared,
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            savepoint: connection.prepare("SAVEPOINT script")?,
            release: connection.prepare("RELEASE script")?,
            undo: connection.prepare("ROLLBACK TO script")?,
        })
    }

    /// Until the queue is closed and empty. Gives those who asked for the close.
    fn serve(&mut self, queue: &mut mpsc::Receiver<Job>) -> Vec<oneshot::Sender<Result<()>>> {
        let mut jobs = Vec::with_capacity(GROUP);
        let mut scripts = Vec::with_capacity(GROUP);
        let mut replies = Vec::with_capacity(GROUP);
        let mut closing = Vec::new();
        // With one processor nobody could come while it is waited for them.
        let company = thread::available_parallelism().is_ok_and(|n| n.get() > 1);
        let mut expected = 0;
        while queue.blocking_recv_many(&mut jobs, GROUP) > 0 {
            if company {
                gather(queue, &mut jobs, expected);
            }
            for job in jobs.drain(..) {
                match job {
                    Job::Write(script, reply) => {
                        scripts.push(script);
                        replies.push(reply);
                    }
                    Job::Close(reply) => {
                        queue.close();
                        closing.push(reply);
                    }
                }
            }
            if scripts.is_empty() {
                continue;
            }
            let results = self.commit_all(&scripts);
            let answered = scripts.len();
            for ((reply, script), result) in replies.drain(..).zip(scripts.drain(..)).zip(results) {
                // A caller that no longer waits has its write all the same.
                let _ = reply.send((result, script));
            }
            expected = (answered + queue.len()).min(GROUP);
        }
        closing
    }

    fn commit_all(&mut self, scripts: &[Script]) -> Vec<Result<Vec<StepOutcome>>> {
        let mut ended = self.run(scripts, Savepoints::None);
        if matches!(ended, Ended::Undone) {
            ended = self.run(scripts, Savepoints::EachScript);
        }
        match ended {
            Ended::Committed(results) => results,
            Ended::Failed(error) => self.fail(scripts, &error),
            Ended::Undone => scripts.iter().map(|script| self.alone(script)).collect(),
        }
    }

    /// One script in a transaction of its own, after its group was lost.
    fn alone(&mut self, script: &Script) -> Result<Vec<StepOutcome>> {
        let one = std::slice::from_ref(script);
        let mut results = match self.run(one, Savepoints::None) {
            Ended::Committed(results) => results,
            Ended::Failed(error) => self.fail(one, &error),
            Ended::Undone => vec![],
        };
        results.pop().unwrap_or_else(|| Err(stopped()))
    }

    fn run(&mut self, scripts: &[Script], savepoints: Savepoints) -> Ended {
        self.runner.last_event = 0;
        if let Err(error) = self.begin.raw_execute() {
            self.roll_back();
            return Ended::Failed(error);
        }
        let mut results = Vec::with_capacity(scripts.len());
        for script in scripts {
            let result = match savepoints {
                Savepoints::None => self.runner.script(script).map(Ok).map_err(Gone),
                Savepoints::EachScript => self.under_savepoint(script),
            };
            match result {
                Ok(result) => results.push(result),
                Err(Gone(why)) => {
                    self.roll_back();
                    // Alone, a script has its own error and nobody beside it.
                    return if scripts.len() > 1 { Ended::Undone } else { Ended::Committed(vec![Err(why)]) };
                }
            }
        }
        if let Err(error) = self.commit.raw_execute() {
            self.roll_back();
            if trouble(&error, self.runner.path()).is_some() {
                return Ended::Failed(error);
            }
            // A rule that is only checked at the end: one script broke it.
            return match scripts {
                [script] => {
                    Ended::Committed(vec![Err(meaning(error, script.name, "commit", self.runner.path()))])
                }
                _ => Ended::Undone,
            };
        }
        self.committed();
        Ended::Committed(results)
    }

    /// `Ok` holds the script's own result; `Err` means that the whole transaction can no longer be used.
    fn under_savepoint(&mut self, script: &Script) -> Result<Result<Vec<StepOutcome>>, Gone> {
        let told = self.runner.last_event;
        let lost = |error, path| Gone(meaning(error, script.name, "savepoint", path));
        self.savepoint.raw_execute().map_err(|error| lost(error, self.runner.path()))?;
        let result = self.runner.script(script);
        if self.runner.connection().is_autocommit() {
            // SQLite rolled the transaction back by itself (full disk, IO, memory).
            return Err(Gone(result.err().unwrap_or_else(stopped)));
        }
        if result.is_err() {
            self.runner.last_event = told;
            self.undo.raw_execute().map_err(|error| lost(error, self.runner.path()))?;
        }
        self.release.raw_execute().map_err(|error| lost(error, self.runner.path()))?;
        Ok(result)
    }

    fn roll_back(&mut self) {
        let connection = self.runner.connection();
        if !connection.is_autocommit()
            && let Err(problem) = connection.execute_batch("ROLLBACK")
        {
            error!(%problem, "a failed transaction could not be rolled back");
        }
    }

    fn committed(&mut self) {
        self.shared.transactions.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut broken) = self.shared.broken.lock() {
            *broken = None;
        }
        let last = self.runner.last_event;
        self.shared.commits.send_if_modified(|seen| {
            let newer = last > *seen;
            *seen = last.max(*seen);
            newer
        });
    }

    fn fail(&mut self, scripts: &[Script], error: &rusqlite::Error) -> Vec<Result<Vec<StepOutcome>>> {
        let what = plain(error);
        warn!(problem = %what, scripts = scripts.len(), "nothing of this group was written");
        if let Ok(mut broken) = self.shared.broken.lock() {
            *broken = Some(what.clone());
        }
        let told = |_: &Script| {
            Err(trouble(error, self.runner.path()).unwrap_or_else(|| StoreError::Unavailable {
                what: format!("{} did not commit ({what})", self.runner.path().display()),
                fix: "try again; if it stays, please report this".into(),
            }))
        };
        scripts.iter().map(told).collect()
    }
}

/// Whoever was answered last may be about to write again, and a commit costs the same for one and for all: once the first
/// of them is back, the others are waited for as long as they come one upon the other. Who writes alone is not.
#[allow(clippy::disallowed_methods, reason = "only how long it waits, never what is written")]
fn gather(queue: &mut mpsc::Receiver<Job>, jobs: &mut Vec<Job>, expected: usize) {
    let mut waiting = queue.len();
    let mut looks = 0;
    let begun = Instant::now();
    while jobs.len() + waiting < expected && looks < LOOKS && begun.elapsed() < PATIENCE {
        (0..PAUSES).for_each(|_| std::hint::spin_loop());
        thread::yield_now();
        let now = queue.len();
        looks = if now > waiting { 0 } else { looks + 1 };
        waiting = now;
    }
    let room = GROUP - jobs.len();
    if waiting > 0 && room > 0 {
        queue.blocking_recv_many(jobs, room);
    }
}

/// The transaction is gone; why.
struct Gone(StoreError);
