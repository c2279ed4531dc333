//! What is looked at after a step: new events, the rows as they are now, and since when the world is how.

use std::hash::Hash;

use parhelia_core::event::Event;
use parhelia_core::ids::ContainerId;
use parhelia_core::time::Clock;
use parhelia_providers::fake::{Faults, ListFault};
use parhelia_store::{ContainerFilter, EventFilter};

use crate::invariants::Moment;
use crate::memory::Snapshot;
use crate::world::{HOME_ENGINE, Sim};

/// How often in a world the registry is remembered.
const SNAPSHOTS: u32 = 3;

impl Sim {
    /// Since when there is what the invariants ask for.
    pub(crate) fn conditions(&mut self) -> Moment {
        let now = self.now();
        let (faults, home) = {
            let world = self.world.provider.world();
            (world.faults, world.identity == HOME_ENGINE)
        };
        let awake = self.server.as_ref().is_some_and(|server| server.asleep_until.is_none());
        let listable = awake && faults.list == ListFault::None;
        let calm = listable && home && faults == Faults::default() && !self.world.ledger.fails();
        self.listable_since = listable.then(|| self.listable_since.unwrap_or(now));
        self.calm_since = calm.then(|| self.calm_since.unwrap_or(now));
        Moment {
            at: now,
            wall: self.world.clock.now(),
            listable_since: self.listable_since,
            calm_since: self.calm_since,
            up_since: self.up_since,
            left_asleep: self.left_asleep,
            steady_since: self.steady_since,
        }
    }

    /// At a few moments of each world the registry is kept, as everybody would have seen it.
    pub(crate) async fn remember_now(&mut self) -> Result<(), String> {
        let due = self.end / (SNAPSHOTS + 1) * (self.remembered.len() as u32 + 1);
        if self.now() >= due && self.remembered.len() < SNAPSHOTS as usize {
            let rows = self.registry().await?;
            let prices = self.world.config.price_table();
            self.remembered.push(Snapshot::take(&rows, self.heard_until, self.world.clock.now(), &prices));
        }
        Ok(())
    }

    pub(crate) async fn registry(&self) -> Result<Vec<parhelia_core::container::Container>, String> {
        self.store.containers(&ContainerFilter::default()).await.map_err(|e| e.to_string())
    }

    /// The registry at every remembered moment is in the history (contract 9).
    pub(crate) async fn remember(&mut self) -> Result<(), String> {
        let rows = self.registry().await?;
        self.witness.wishes.were_kept(&rows)?;
        let prices = self.world.config.price_table();
        self.outcome.remembered = self.remembered.len() as u64;
        self.remembered.iter().try_for_each(|then| then.compare(&rows, &self.told, &prices))
    }

    pub(crate) async fn check(&mut self) -> Result<(), String> {
        let moment = self.conditions();
        if self.world.ledger.take_changed() {
            self.read(&moment).await?;
        }
        if std::mem::take(&mut self.judged) {
            self.witness.ladder_holds(&moment)?;
        }
        self.witness.check(&self.world.provider.world(), &moment)?;
        self.check_sessions(&moment)
    }

    /// New events, and the rows as they are now. Those that are no longer active are read one last time.
    pub(crate) async fn read(&mut self, moment: &Moment) -> Result<(), String> {
        let tail =
            EventFilter { after_id: Some(self.heard_until), limit: Some(i64::MAX), ..EventFilter::default() };
        let events = self.store.events(&tail).await.map_err(|e| e.to_string())?;
        for event in &events {
            line(event).hash(&mut self.trace);
        }
        self.outcome.events += events.len() as u64;
        self.heard_until = events.last().map_or(self.heard_until, |e| e.id);
        self.told.extend(events.iter().cloned());
        self.remember_now().await?;
        let active = self.store.tracked("fake").await.map_err(|e| e.to_string())?;
        let ended: Vec<ContainerId> = self
            .witness
            .rows()
            .filter(|row| row.state.is_active() && !active.iter().any(|a| a.id == row.id))
            .map(|row| row.id.clone())
            .collect();
        let ended = match ended.is_empty() {
            true => Vec::new(),
            false => self.store.tracked_by_ids("fake", &ended, &[]).await.map_err(|e| e.to_string())?,
        };
        let heard = self.witness.hear(&events, moment);
        self.witness.read(active.into_iter().chain(ended), moment.at);
        heard?;
        self.see_sessions(&events, moment).await
    }

    pub(crate) async fn fail(&mut self, what: String) {
        let mut told = format!("after {:.2}h: {what}\n", self.now().as_secs_f64() / 3600.0);
        told += &format!("{:?}\n", self.world.provider.world().faults);
        told += &match &self.server {
            Some(server) => {
                format!("the server, asleep until {:?}: {:?}\n", server.asleep_until, server.due())
            }
            None => format!("no server until {:?}\n", self.restart_at),
        };
        // Whom it is about, if it names somebody: its whole history.
        let words = || what.split(|c: char| !c.is_alphanumeric() && c != '-');
        let named = |prefix: &str| words().find(|word| word.starts_with(prefix)).map(str::to_owned);
        let (container_id, session_id) = (named("c-"), named("sess-"));
        if container_id.is_some() || session_id.is_some() {
            let filter = EventFilter { container_id, session_id, limit: Some(100), ..EventFilter::default() };
            let events = self.store.events(&filter).await.unwrap_or_default();
            told += &format!("its events:\n{}\n", lines(&events));
        }
        if let Some(id) = named("sess-") {
            told += &format!("{:?}\n{}", self.owners(), self.sessions.describe(&id));
        }
        let filter = EventFilter { limit: Some(25), newest_first: true, ..EventFilter::default() };
        let mut last = self.store.events(&filter).await.unwrap_or_default();
        last.reverse();
        self.outcome.broken = Some(format!("{told}the last events:\n{}", lines(&last)));
    }
}

fn lines(events: &[Event]) -> String {
    events.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn line(event: &Event) -> String {
    format!(
        "  {} {} {} {} -> {} {}",
        event.timestamp,
        event.event_type,
        event.container_id.as_deref().or(event.session_id.as_deref()).unwrap_or("-"),
        event.old_value.as_deref().unwrap_or("-"),
        event.new_value.as_deref().unwrap_or("-"),
        event.message.as_deref().unwrap_or(""),
    )
}
