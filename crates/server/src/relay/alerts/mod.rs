//! Alerts: a durable reader of the tail that writes down which event goes to which alert, and a courier for each
//! alert. Both are the leader's, and every write carries its fence. What is chosen, and what an answer means, is
//! decided in `core::alert`.

mod courier;
mod post;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parhelia_core::config::Config;
use parhelia_core::event::Event;
use parhelia_store::{NewDelivery, ReaderMove, StoreError};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use self::courier::Courier;
pub use self::post::{Post, Reply};
use super::tail::Tail;
use crate::loops::driver::Ended;
use crate::loops::{Context, stopped};

/// While the store cannot be read or written.
const PAUSE: Duration = Duration::from_secs(1);
/// A place is written down with what was found, and otherwise only every so many events: a history in which nothing
/// is chosen costs no writes.
const UNSAVED: i64 = 1000;

/// Every configured alert.
pub type Posts = Vec<Arc<Post>>;

pub fn posts(config: &Config, secrets: &Path) -> Posts {
    config.alerts.iter().map(|alert| Arc::new(Post::new(alert, secrets))).collect()
}

/// The name of an alert's place in the history.
fn reader(alert: &str) -> String {
    format!("{PREFIX}{alert}")
}

const PREFIX: &str = "alert:";

/// Runs while this server leads.
pub async fn run(context: Context, posts: Posts, mut stopping: watch::Receiver<bool>) -> Ended {
    loop {
        let begun = tokio::select! {
            () = stopped(&mut stopping) => return Ended::Shutdown,
            begun = begin(&context, &posts) => begun,
        };
        match begun {
            Ok(()) => break,
            Err(StoreError::Fenced { .. }) => return Ended::Fenced,
            Err(error) => warn!(%error, "alerts cannot begin; trying again"),
        }
        tokio::select! {
            () = stopped(&mut stopping) => return Ended::Shutdown,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
    let mut work = JoinSet::new();
    let mut bells = Vec::new();
    for post in &posts {
        let bell = Arc::new(Notify::new());
        let courier = Courier { context: context.clone(), post: post.clone(), bell: bell.clone() };
        work.spawn(courier.run(stopping.clone()));
        bells.push(bell);
    }
    if posts.is_empty() {
        stopped(&mut stopping).await;
        return Ended::Shutdown;
    }
    work.spawn(Planner { context, posts, bells }.run(stopping));
    let mut ended = Ended::Shutdown;
    while let Some(one) = work.join_next().await {
        match one {
            Ok(Ended::Shutdown) => {}
            // Dropping the others is all right: what they have under way is made again.
            Ok(Ended::Fenced) => return Ended::Fenced,
            Err(lost) if lost.is_panic() => std::panic::resume_unwind(lost.into_panic()),
            Err(_) => ended = Ended::Fenced,
        }
    }
    ended
}

/// What the configuration says is made true: a new alert begins now, one that is gone is forgotten, and what was
/// under way when the last server ended is due again.
async fn begin(context: &Context, posts: &Posts) -> Result<(), StoreError> {
    let Context { store, fence, clock, .. } = context;
    let names: Vec<String> = posts.iter().map(|post| reader(&post.alert.name)).collect();
    let known = store.readers().await?;
    let gone: Vec<(String, String)> = known
        .into_iter()
        .filter(|(name, _)| !names.contains(name))
        .filter_map(|(name, _)| name.strip_prefix(PREFIX).map(|alert| (name.clone(), alert.to_owned())))
        .collect();
    for (_, alert) in &gone {
        info!(alert, "an alert is no longer configured; what was still on its way to it has ended");
    }
    let now = store.last_event_id().await?;
    store.resume_deliveries(fence, &names, now, &gone, clock.now()).await
}

struct Planner {
    context: Context,
    posts: Posts,
    bells: Vec<Arc<Notify>>,
}

/// Where each alert is: by its reader's name.
type Places = BTreeMap<String, i64>;

impl Planner {
    async fn run(self, mut stopping: watch::Receiver<bool>) -> Ended {
        loop {
            match self.follow(stopping.clone()).await {
                Ok(()) => return Ended::Shutdown,
                Err(StoreError::Fenced { .. }) => return Ended::Fenced,
                // The places are read again: whatever was written counts, and nothing is passed over.
                Err(error) => warn!(%error, "alerts cannot be written down; trying again"),
            }
            tokio::select! {
                () = stopped(&mut stopping) => return Ended::Shutdown,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    /// Follows the history from where it was left until the server stops.
    async fn follow(&self, mut stopping: watch::Receiver<bool>) -> Result<(), StoreError> {
        let store = &self.context.store;
        let mut places = Places::new();
        for (name, at) in store.readers().await? {
            if self.posts.iter().any(|post| reader(&post.alert.name) == name) {
                places.insert(name, at);
            }
        }
        let mut saved = places.values().copied().min().unwrap_or(0);
        let mut tail = Tail::from(store, saved);
        loop {
            let batch = tokio::select! {
                () = stopped(&mut stopping) => {
                    if tail.position() > saved {
                        self.write(&mut places, tail.position(), &[]).await?;
                    }
                    return Ok(());
                }
                batch = tail.next() => batch,
            };
            if let Some(lost) = batch.lost {
                warn!(
                    after = lost.after,
                    oldest = lost.oldest,
                    "events were deleted before anybody was alerted"
                );
            }
            let found = self.choose(&places, &batch.events);
            if found.is_empty() && tail.position() - saved < UNSAVED {
                continue;
            }
            self.write(&mut places, tail.position(), &found).await?;
            saved = tail.position();
            for (post, bell) in self.posts.iter().zip(&self.bells) {
                if found.iter().any(|one| one.alert == post.alert.name) {
                    bell.notify_one();
                }
            }
        }
    }

    fn choose(&self, places: &Places, events: &[Event]) -> Vec<NewDelivery> {
        let now = self.context.clock.now();
        let mut found = Vec::new();
        for event in events {
            for post in &self.posts {
                let alert = &post.alert;
                let new = places.get(&reader(&alert.name)).is_some_and(|place| event.id > *place);
                if new && alert.wants(event) {
                    let id = self.context.entropy.delivery_id(now);
                    found.push(NewDelivery { id, alert: alert.name.clone(), event_id: event.id });
                }
            }
        }
        found
    }

    async fn write(&self, places: &mut Places, to: i64, found: &[NewDelivery]) -> Result<(), StoreError> {
        let moves: Vec<ReaderMove> = places
            .iter()
            .filter(|(_, from)| **from < to)
            .map(|(name, from)| ReaderMove { reader: name.clone(), from: *from, to })
            .collect();
        let Context { store, fence, clock, .. } = &self.context;
        store.plan_deliveries(fence, &moves, found, clock.now()).await?;
        for moved in moves {
            places.insert(moved.reader, to);
        }
        Ok(())
    }
}
