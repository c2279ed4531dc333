//! Hints: one open connection to each live supervisor, whose end of file says "look now". A hint decides
//! nothing, so a watch that cannot be had is simply left to the next listing.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::Notify;
use uuid::Uuid;

use super::jobdir::JobDir;
use super::lock::is_locked;
use super::locked;

const CONNECT_WAIT: Duration = Duration::from_secs(2);
/// Hard bound, whatever the limit of open files is.
const WATCHES_MAX: usize = 65_536;

#[derive(Debug, Clone)]
pub(crate) struct Watches {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    watched: Mutex<HashSet<Uuid>>,
    changed: Notify,
    most: usize,
}

impl Watches {
    pub(crate) fn new() -> Self {
        // Half of the descriptors stay for everything else that the server does.
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from(files / 2).unwrap_or(WATCHES_MAX).min(WATCHES_MAX);
        let shared = Shared { watched: Mutex::default(), changed: Notify::new(), most };
        Self { shared: Arc::new(shared) }
    }

    /// Resolves after the next hint; many hints are one.
    pub(crate) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    pub(crate) fn hint(&self) {
        self.shared.changed.notify_one();
    }

    /// Watches a live job, unless that is being done. Needs a runtime around it.
    pub(crate) fn watch(&self, job: Uuid, dir: JobDir) {
        {
            let mut watched = locked(&self.shared.watched);
            if watched.len() >= self.shared.most || !watched.insert(job) {
                return;
            }
        }
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let stood = until_end(&dir).await;
            locked(&shared.watched).remove(&job);
            // Without a connection a held lock means "try at the next listing", a free one "it has just ended".
            if stood || !is_alive(&dir) {
                shared.changed.notify_one();
            }
        });
    }
}

/// Only for the choice whether to hint; anything unclear counts as alive.
fn is_alive(dir: &JobDir) -> bool {
    std::fs::File::open(dir.alive()).and_then(is_locked).unwrap_or(true)
}

/// True when a connection stood and then ended.
async fn until_end(dir: &JobDir) -> bool {
    let connecting = UnixStream::connect(dir.control_socket());
    let Ok(Ok(mut stream)) = tokio::time::timeout(CONNECT_WAIT, connecting).await else { return false };
    let mut ignored = [0; 512];
    while stream.read(&mut ignored).await.is_ok_and(|got| got > 0) {}
    true
}
