//! What is sent, and in which order: events that were gathered, the sessions that they name, a page of all sessions
//! where some are missing over there, and the heartbeats of those that live.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use parhelia_core::event::Event;
use parhelia_core::ids::SessionId;
use parhelia_core::session::Session;
use parhelia_core::session::projection::{
    HISTORY_COLUMNS, STATE_COLUMNS, as_it_was, change_of, heartbeat, history_row, state_row,
};
use serde::Serialize;
use tracing::{info, warn};

use super::client::{ClickHouse, Trouble, UNKNOWN_DATABASE};
use super::places::Places;
use super::{Away, Stopped, TABLES};
use crate::loops::Context;
use crate::relay::tail::{Batch, Tail};

/// A place is written down with what was sent, and otherwise only every so many events.
const UNSAVED: i64 = 1000;
/// Ids in one question: the text of a statement is bounded over there.
const IDS_AT_ONCE: usize = 1000;

pub(super) struct Sender<'a> {
    context: &'a Context,
    clickhouse: &'a ClickHouse,
    instance_id: &'a str,
    away: &'a mut Away,
    places: Places,
    tail: Tail,
    /// Events of sessions that were read and not sent.
    gathered: Vec<Event>,
    /// All sessions after this one are still to be sent.
    missing: Option<String>,
    /// When the last batch of events went, and when the heartbeats go next, on the monotonic clock.
    sent_at: Option<Duration>,
    beats_at: Duration,
}

impl<'a> Sender<'a> {
    pub(super) fn new(
        context: &'a Context,
        clickhouse: &'a ClickHouse,
        instance_id: &'a str,
        away: &'a mut Away,
    ) -> Self {
        Self {
            context,
            clickhouse,
            instance_id,
            away,
            places: Places::default(),
            tail: Tail::from(&context.store, 0),
            gathered: Vec::new(),
            missing: None,
            sent_at: None,
            beats_at: Duration::ZERO,
        }
    }

    /// Goes on from the place in the store until something fails. Whatever was in memory is read again then.
    pub(super) async fn follow(&mut self, doubted: &mut bool) -> Result<Infallible, Stopped> {
        self.make_tables().await?;
        self.places = Places::load(self.context).await?;
        if *doubted {
            self.compare().await?;
            *doubted = false;
        }
        if !self.places.whole {
            self.missing = Some(String::new());
        }
        self.finish_intent().await?;
        self.tail = Tail::from(&self.context.store, self.places.cursor);
        loop {
            self.gather().await?;
            self.send_gathered().await?;
            self.send_missing().await?;
            self.send_beats().await?;
            self.away.over(self.context).await?;
            if self.gathered.is_empty() && self.missing.is_none() {
                self.context.metrics.clickhouse.is_current();
            }
        }
    }

    async fn make_tables(&self) -> Result<(), Trouble> {
        for table in TABLES {
            match self.clickhouse.ask(table).await {
                Err(Trouble { code: Some(UNKNOWN_DATABASE), .. }) => {
                    let database = &self.clickhouse.config.database;
                    let make = format!("CREATE DATABASE IF NOT EXISTS {database}");
                    self.clickhouse.ask_anywhere(&make).await?;
                    self.clickhouse.ask(table).await?;
                }
                other => drop(other?),
            }
        }
        Ok(())
    }

    /// Whether somebody has emptied the tables, or exchanged the server, since we were last here.
    async fn compare(&mut self) -> Result<(), Stopped> {
        let number = async |query: &str| -> Result<i64, Trouble> {
            let answer = self.clickhouse.ask(query).await?;
            let odd =
                || Trouble { code: None, message: format!("it answered '{}' for a count", answer.trim()) };
            answer.trim().parse().map_err(|_| odd())
        };
        let shown = number("SELECT uniqExact(session_id) FROM session_state").await?;
        let told = number("SELECT count() FROM session_history").await?;
        let store = &self.context.store;
        // Each session that is not there yet has an event that was not sent yet.
        let unsent = (store.last_event_id().await? - self.places.cursor).max(0);
        if self.places.whole && store.session_count().await? - shown > unsent {
            warn!(shown, "ClickHouse has fewer sessions than were sent: all are sent again");
            self.places.set_whole(self.context, false).await?;
        }
        if told == 0 && self.places.intent > 0 {
            info!("the history of sessions in ClickHouse is empty: whatever is kept of it is sent");
            self.places.start_over(self.context).await?;
        }
        Ok(())
    }

    /// A batch of which nobody knows whether it has arrived is sent again: the same events, under the same token.
    async fn finish_intent(&mut self) -> Result<(), Stopped> {
        let Places { cursor, intent, .. } = self.places;
        let mut tail = Tail::from(&self.context.store, cursor);
        while tail.position() < intent {
            let batch = tail.page().await?;
            if batch.events.is_empty() {
                break;
            }
            self.take(batch).await?;
        }
        if cursor < intent {
            let upto = self.gathered.partition_point(|event| event.id <= intent);
            self.gathered.truncate(upto);
            let events = std::mem::take(&mut self.gathered);
            self.send(&events, intent).await?;
        }
        Ok(())
    }

    /// Returns when there is something to do.
    async fn gather(&mut self) -> Result<(), Stopped> {
        let config = &self.clickhouse.config;
        let most = usize::try_from(config.batch_rows).unwrap_or(usize::MAX);
        if self.gathered.is_empty() && self.missing.is_none() {
            let wait = self.beats_at.saturating_sub(self.context.clock.monotonic());
            tokio::select! {
                batch = self.tail.next() => self.take(batch).await?,
                () = tokio::time::sleep(wait) => return Ok(()),
            }
        }
        if let (Some(sent_at), false) = (self.sent_at, self.gathered.is_empty()) {
            let next = sent_at + Duration::from_millis(config.flush_interval_ms);
            tokio::time::sleep(next.saturating_sub(self.context.clock.monotonic())).await;
        }
        while self.gathered.len() < most {
            let batch = self.tail.page().await?;
            if batch.events.is_empty() {
                break;
            }
            self.take(batch).await?;
        }
        Ok(())
    }

    async fn take(&mut self, batch: Batch) -> Result<(), Stopped> {
        if let Some(lost) = batch.lost {
            warn!(
                after = lost.after,
                oldest = lost.oldest,
                "events were deleted before ClickHouse had them: all sessions are sent again, their history has a gap"
            );
            self.places.set_whole(self.context, false).await?;
            self.missing = Some(String::new());
        }
        let of_sessions = batch.events.into_iter().filter(|event| event.session_id.is_some());
        self.gathered.extend(of_sessions);
        if let Some(first) = self.gathered.first() {
            self.context.metrics.clickhouse.is_behind(first.timestamp);
        }
        Ok(())
    }

    /// At most one batch; the rest stays for the next.
    async fn send_gathered(&mut self) -> Result<(), Stopped> {
        let most = usize::try_from(self.clickhouse.config.batch_rows).unwrap_or(usize::MAX).max(1);
        let rest = if self.gathered.len() > most { self.gathered.split_off(most) } else { Vec::new() };
        let events = std::mem::replace(&mut self.gathered, rest);
        let to = match (events.last(), self.gathered.is_empty()) {
            (Some(last), false) => last.id,
            _ => self.tail.position(),
        };
        if events.is_empty() {
            if to - self.places.cursor >= UNSAVED {
                self.places.pass_over(self.context, to).await?;
            }
            return Ok(());
        }
        self.send(&events, to).await
    }

    /// The history of these events and the state of the sessions that they name; then the place moves to `to`.
    async fn send(&mut self, events: &[Event], to: i64) -> Result<(), Stopped> {
        let pass = self.context.metrics.loops.meter("clickhouse", "");
        let pass = pass.begin(self.context.clock.as_ref());
        let sent = self.send_batch(events, to).await;
        pass.end(sent.is_ok());
        self.sent_at = Some(self.context.clock.monotonic());
        sent
    }

    async fn send_batch(&mut self, events: &[Event], to: i64) -> Result<(), Stopped> {
        let ids: BTreeSet<SessionId> = events.iter().filter_map(session_of).collect();
        let ids: Vec<SessionId> = ids.into_iter().collect();
        let sessions = self.beating(self.context.store.sessions_by_ids(&ids).await?).await?;
        let by_id: BTreeMap<&str, &Session> = sessions.iter().map(|s| (s.session_id.as_str(), s)).collect();
        let mut changes = Vec::new();
        for event in events {
            let session = event.session_id.as_deref().and_then(|id| by_id.get(id));
            if let (Some(session), Some(status)) = (session, change_of(event)) {
                changes.push((event, as_it_was(session, event, status)));
            }
        }
        let mut last = self.last_changes(&changes).await?;
        let Places { cursor, era, .. } = self.places;
        let token = format!("{}-{era}-{cursor}-{to}", self.instance_id);
        let version = self.places.reserve(self.context, Some(to)).await?;
        let mut history = String::new();
        for (event, then) in &changes {
            let at = last.entry(then.session_id.as_str().to_owned()).or_insert(i64::MIN);
            *at = event.timestamp.as_millisecond().max(at.saturating_add(1));
            line(&mut history, &history_row(then, event, *at, version));
        }
        if !changes.is_empty() {
            let columns = format!("{STATE_COLUMNS}, {HISTORY_COLUMNS}");
            self.clickhouse.insert("session_history", &columns, history, Some(&token)).await?;
            self.context.metrics.clickhouse.sent("session_history", changes.len());
        }
        self.insert_states(&sessions, version).await?;
        self.places.arrived(self.context).await?;
        Ok(())
    }

    /// When each of these sessions last changed, as far as it is told over there: the next change is later, whatever
    /// the clocks say.
    async fn last_changes(&self, changes: &[(&Event, Session)]) -> Result<BTreeMap<String, i64>, Trouble> {
        let ids: BTreeSet<&str> = changes.iter().map(|(_, then)| then.session_id.as_str()).collect();
        let ids: Vec<&str> = ids.into_iter().collect();
        let mut last = BTreeMap::new();
        for some in ids.chunks(IDS_AT_ONCE) {
            let query = format!(
                "SELECT session_id, toUnixTimestamp64Milli(max(updated_at)) FROM session_history \
                 WHERE session_id IN ('{}') GROUP BY session_id FORMAT TabSeparated",
                some.join("','")
            );
            for line in self.clickhouse.ask(&query).await?.lines() {
                if let Some((id, at)) = line.split_once('\t')
                    && let Ok(at) = at.parse()
                {
                    last.insert(id.to_owned(), at);
                }
            }
        }
        Ok(last)
    }

    /// A page of all sessions, if they are wanted.
    async fn send_missing(&mut self) -> Result<(), Stopped> {
        let Some(after) = &self.missing else { return Ok(()) };
        let page = self.page_size();
        let sessions = self.context.store.sessions_page(after, page).await?;
        let done = (sessions.len() as i64) < page;
        if let Some(last) = sessions.last().map(|last| last.session_id.as_str().to_owned()) {
            self.send_states(sessions).await?;
            self.missing = Some(last);
        }
        if done {
            self.missing = None;
            self.places.set_whole(self.context, true).await?;
        }
        Ok(())
    }

    /// The sign of life of those that live, when it is due.
    async fn send_beats(&mut self) -> Result<(), Stopped> {
        let now = self.context.clock.monotonic();
        if now < self.beats_at {
            return Ok(());
        }
        let (page, mut after) = (self.page_size(), (String::new(), String::new()));
        loop {
            let sessions = self.context.store.sessions_beating((&after.0, &after.1), page).await?;
            let Some(last) = sessions.last() else { break };
            after = (last.owner_id.clone().unwrap_or_default(), last.session_id.as_str().to_owned());
            let done = (sessions.len() as i64) < page;
            self.send_states(sessions).await?;
            if done {
                break;
            }
        }
        self.beats_at = now + Duration::from_secs(self.clickhouse.config.heartbeat_seconds);
        Ok(())
    }

    fn page_size(&self) -> i64 {
        i64::try_from(self.clickhouse.config.batch_rows).unwrap_or(i64::MAX)
    }

    async fn send_states(&mut self, sessions: Vec<Session>) -> Result<(), Stopped> {
        let sessions = self.beating(sessions).await?;
        let version = self.places.reserve(self.context, None).await?;
        self.insert_states(&sessions, version).await
    }

    /// With the sign of life of their owners.
    async fn beating(&self, mut sessions: Vec<Session>) -> Result<Vec<Session>, Stopped> {
        let leases = self.context.store.owner_leases().await?;
        for session in &mut sessions {
            let lease = session.owner_id.as_ref().and_then(|owner| leases.get(owner));
            session.heartbeat_at = heartbeat(session, lease.copied());
        }
        Ok(sessions)
    }

    async fn insert_states(&mut self, sessions: &[Session], version: i64) -> Result<(), Stopped> {
        if sessions.is_empty() {
            return Ok(());
        }
        let mut rows = String::new();
        for session in sessions {
            line(&mut rows, &state_row(session, version));
        }
        self.clickhouse.insert("session_state", STATE_COLUMNS, rows, None).await?;
        self.context.metrics.clickhouse.sent("session_state", sessions.len());
        Ok(())
    }
}

fn session_of(event: &Event) -> Option<SessionId> {
    // Containers may carry a session's name that was never one of ours.
    event.session_id.clone().and_then(|id| SessionId::try_from(id).ok())
}

fn line(rows: &mut String, row: &impl Serialize) {
    // Text and numbers alone: it cannot fail.
    if let Ok(text) = serde_json::to_string(row) {
        rows.push_str(&text);
        rows.push('\n');
    }
}
