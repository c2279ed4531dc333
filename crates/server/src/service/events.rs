//! The history, and its tail.

use std::collections::BTreeSet;
use std::time::Duration;

use parhelia_core::Timestamp;
use parhelia_core::api::EventList;
use parhelia_core::event::{Event, EventType};
use parhelia_store::EventFilter;

use super::{Service, ServiceError};
use crate::loops::stopped;

const MOST: i64 = 10_000;

#[derive(Debug, Clone, Default)]
pub struct EventQuery {
    pub container: Option<String>,
    pub task: Option<String>,
    /// Id, unique prefix or name.
    pub session: Option<String>,
    /// Any of these; all when empty.
    pub event_types: Vec<EventType>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub after: Option<i64>,
    pub limit: Option<i64>,
    pub newest_first: bool,
    /// With nothing to show yet, wait this long for something.
    pub wait_seconds: u64,
}

impl Service {
    pub async fn events(&self, query: EventQuery) -> Result<EventList, ServiceError> {
        // An id that has no row (any more) can still have events.
        let container_id = match &query.container {
            Some(given) => Some(match self.resolve(given).await {
                Ok(id) => id.to_string(),
                Err(ServiceError::NotFound { .. }) if query.after.is_some() => given.clone(),
                Err(e) => return Err(e),
            }),
            None => None,
        };
        let session_id = match &query.session {
            Some(given) => Some(self.session_of_events(given).await?),
            None => None,
        };
        let filter = EventFilter {
            container_id,
            task_id: query.task,
            session_id,
            since: query.since,
            until: query.until,
            after_id: query.after,
            limit: Some(query.limit.unwrap_or(100).clamp(1, MOST)),
            newest_first: query.newest_first,
            ..EventFilter::default()
        };
        let deadline = self.clock.monotonic() + Duration::from_secs(query.wait_seconds.min(60));
        let mut commits = self.store.subscribe_commits();
        let mut shutdown = self.shutdown.clone();
        loop {
            // Marked before reading: what commits after the read wakes us.
            commits.borrow_and_update();
            let last_known = self.store.last_event_id().await?;
            let events = self.of_types(&filter, &query.event_types).await?;
            let left = deadline.saturating_sub(self.clock.monotonic());
            if !events.is_empty() || left.is_zero() || *shutdown.borrow() {
                let newest = events.iter().map(|e| e.id).max();
                // A full page may have more behind it; an unfiltered short one is complete up to `last_known`.
                // Of a page of history, the newest may be beyond what the tail has settled: go on from there.
                let last_id = match (newest, query.after) {
                    (Some(newest), Some(_)) => newest,
                    (Some(newest), None) => newest.min(last_known),
                    (None, after) => after.unwrap_or(0).max(last_known),
                };
                return Ok(EventList { events, last_id });
            }
            tokio::select! {
                _ = commits.changed() => {}
                () = tokio::time::sleep(left) => {}
                () = stopped(&mut shutdown) => {}
            }
        }
    }

    /// What events call a session. One that has no row can still have events.
    pub(crate) async fn session_of_events(&self, given: &str) -> Result<String, ServiceError> {
        match self.resolve_session(given).await {
            Ok(id) => Ok(id.to_string()),
            Err(ServiceError::NotFound { .. }) => Ok(given.to_owned()),
            Err(other) => Err(other),
        }
    }

    /// One question per type: each has an index, and the first `limit` of all are among the first of each.
    async fn of_types(&self, filter: &EventFilter, types: &[EventType]) -> Result<Vec<Event>, ServiceError> {
        if types.is_empty() {
            return Ok(self.store.events(filter).await?);
        }
        let mut events = Vec::new();
        for event_type in types.iter().collect::<BTreeSet<_>>() {
            let one = EventFilter { event_type: Some(*event_type), ..filter.clone() };
            events.extend(self.store.events(&one).await?);
        }
        events.sort_by_key(|e| if filter.newest_first { -e.id } else { e.id });
        events.truncate(filter.limit.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX));
        Ok(events)
    }
}
