//! The readers: a few threads, each with a read-only connection, on one bounded queue. They never write,
//! and a slow question does not hold up the writer.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::open;
use super::run::Runner;
use super::writer::{no_thread, stopped};
use crate::error::{Result, StoreError};
use crate::script::{Query, Take};

const THREADS: usize = 4;
/// Questions that may wait. Beyond it a caller waits for a place.
const QUEUE: usize = 256;

type Reply = oneshot::Sender<Result<()>>;

enum Job {
    Read(Query, Take, Reply),
    /// Ends one thread.
    Close(oneshot::Sender<()>),
}

#[derive(Debug)]
pub(super) struct Readers {
    jobs: mpsc::Sender<Job>,
    /// Set by `close`: reads are refused from then on.
    closed: std::sync::atomic::AtomicBool,
}

impl Readers {
    pub(super) fn start(path: &Arc<Path>) -> Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..THREADS {
            let connection = open::reader(path)?;
            let (path, queue) = (path.clone(), queue.clone());
            thread::Builder::new()
                .name("store-reader".into())
                .spawn(move || work(connection, &path, &queue))
                .map_err(no_thread)?;
        }
        Ok(Self { jobs, closed: false.into() })
    }

    pub(super) async fn read(&self, query: Query, take: Take) -> Result<()> {
        if self.closed.load(std::sync::atomic::Ordering::Acquire) {
            return Err(StoreError::closed());
        }
        let (reply, answer) = oneshot::channel();
        self.jobs.send(Job::Read(query, take, reply)).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    /// Waits for the questions that were asked before.
    pub(super) async fn close(&self) {
        if self.closed.swap(true, std::sync::atomic::Ordering::AcqRel) {
            return;
        }
        let mut ended = Vec::with_capacity(THREADS);
        for _ in 0..THREADS {
            let (reply, answer) = oneshot::channel();
            if self.jobs.send(Job::Close(reply)).await.is_ok() {
                ended.push(answer);
            }
        }
        for answer in ended {
            // A thread that is gone already has nothing left to answer.
            let _ = answer.await;
        }
    }
}

fn work(connection: Connection, path: &Path, queue: &Mutex<mpsc::Receiver<Job>>) {
    let ended = {
        let mut runner = Runner::keeping(&connection, path);
        loop {
            // One thread waits for a job; the others wait for their turn to wait.
            let job = match queue.lock() {
                Ok(mut queue) => queue.blocking_recv(),
                Err(_) => None,
            };
            match job {
                Some(Job::Read(query, take, reply)) if !reply.is_closed() => {
                    let _ = reply.send(runner.query(&query, take));
                }
                Some(Job::Read(..)) => {} // nobody waits for this answer any more
                Some(Job::Close(reply)) => break Some(reply),
                None => break None,
            }
        }
    };
    drop(connection);
    if let Some(reply) = ended {
        let _ = reply.send(());
    }
}
