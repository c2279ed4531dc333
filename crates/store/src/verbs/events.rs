//! The history: appending what belongs to no other change, and reading.

use jiff::Timestamp;
use parhelia_core::event::{Event, NewEvent};

use super::{first_int, text_of};
use crate::error::Result;
use crate::script::{Script, Value, params};
use crate::types::{EventFilter, Fence};
use crate::{Store, row, sql};

/// After every stored time, in text order.
const END_OF_TIME: &str = "~";
const DEFAULT_LIMIT: i64 = 100;

impl Store {
    /// Appends events that tell of no row's change; gives their ids, in order.
    pub async fn append_events(&self, events: Vec<NewEvent>, now: Timestamp) -> Result<Vec<i64>> {
        if events.is_empty() {
            return Ok(vec![]);
        }
        let mut script = Script::new("append_events");
        script.events(events, &text_of(now));
        let done = self.write(script).await?;
        Ok((0..done.len()).filter_map(|step| first_int(&done, step)).collect())
    }

    /// The same by a holder of a fence: what it announces is told only while that is true.
    pub async fn announce(&self, fence: &Fence, events: Vec<NewEvent>, now: Timestamp) -> Result<()> {
        let mut script = Script::fenced("announce", fence);
        script.events(events, &text_of(now));
        self.write(script).await.map(drop)
    }

    pub async fn events(&self, filter: &EventFilter) -> Result<Vec<Event>> {
        let sql = match (filter, filter.newest_first) {
            (EventFilter { container_id: Some(_), .. }, false) => &sql::EVENTS_CONTAINER_OLDEST,
            (EventFilter { container_id: Some(_), .. }, true) => &sql::EVENTS_CONTAINER_NEWEST,
            (EventFilter { task_id: Some(_), .. }, false) => &sql::EVENTS_TASK_OLDEST,
            (EventFilter { task_id: Some(_), .. }, true) => &sql::EVENTS_TASK_NEWEST,
            (EventFilter { session_id: Some(_), .. }, false) => &sql::EVENTS_SESSION_OLDEST,
            (EventFilter { session_id: Some(_), .. }, true) => &sql::EVENTS_SESSION_NEWEST,
            (EventFilter { event_type: Some(_), .. }, false) => &sql::EVENTS_TYPE_OLDEST,
            (EventFilter { event_type: Some(_), .. }, true) => &sql::EVENTS_TYPE_NEWEST,
            // A tail is short whatever span it is asked for; without a span there is nothing to narrow by.
            (EventFilter { after_id: Some(_), .. }, false) => &sql::EVENTS_AFTER,
            (EventFilter { since: None, until: None, .. }, false) => &sql::EVENTS_AFTER,
            (EventFilter { since: None, until: None, .. }, true) => &sql::EVENTS_BEFORE,
            (_, false) => &sql::EVENTS_OLDEST,
            (_, true) => &sql::EVENTS_NEWEST,
        };
        let params = params![
            filter.container_id.as_ref(),
            filter.task_id.as_ref(),
            filter.session_id.as_ref(),
            filter.event_type,
            filter.source,
            filter.since.map_or(Value::Word(""), Value::from),
            filter.until.map_or(Value::Word(END_OF_TIME), Value::from),
            // Below 0: not a tail, so a PostgreSQL need not hold back what an older transaction may precede.
            filter.after_id.map_or(-1, |after| after.max(0)),
            filter.limit.unwrap_or(DEFAULT_LIMIT),
        ];
        self.query(sql, params, row::event).await
    }

    /// The oldest event that is still kept; 0 when there is none.
    pub async fn first_event_id(&self) -> Result<i64> {
        Ok(self.query_one(&sql::FIRST_EVENT, vec![], |c| c.int()).await?.unwrap_or(0))
    }

    /// The id of the last event that is not later than `at` (0: none), and when the oldest one kept happened.
    pub async fn history_end(&self, at: Timestamp) -> Result<(i64, Option<Timestamp>)> {
        let end = self.query_one(&sql::HISTORY_END, params![at], |c| Ok((c.int()?, c.time_opt()?))).await?;
        Ok(end.unwrap_or_default())
    }

    /// The events of containers with ids above `after` and up to `last`, in order, a page of them.
    pub async fn history_page(&self, after: i64, last: i64, limit: i64) -> Result<Vec<Event>> {
        self.query(&sql::HISTORY_PAGE, params![after, last, limit], row::event).await
    }

    /// Where the tail ends now; 0 when nothing has happened.
    pub async fn last_event_id(&self) -> Result<i64> {
        Ok(self.query_one(&sql::LAST_EVENT, vec![], |c| c.int()).await?.unwrap_or(0))
    }
}
