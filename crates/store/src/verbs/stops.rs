//! Ending a container: the request of a person or a policy, and the receipts of contract 12. Everybody may
//! ask; only the reconciler stops, and only its observation says that it has stopped.

use jiff::Timestamp;
use parhelia_core::event::NewEvent;
use parhelia_core::ids::ContainerId;
use parhelia_core::state::ContainerState;

use super::{changed, first_text, text_of};
use crate::error::Result;
use crate::script::{Script, Value, params};
use crate::types::{DesireOutcome, Fence, Silence, Wish};
use crate::{Store, sql};

impl Store {
    /// Wants a container gone. The first request is recorded with its event; a later one can only shorten
    /// the grace, and tells no second event. A terminated one is left as it is.
    /// A loop gives its fence; a person has none.
    pub async fn desire_termination(
        &self,
        fence: Option<&Fence>,
        id: &ContainerId,
        wish: Wish<'_>,
        now: Timestamp,
    ) -> Result<DesireOutcome> {
        let script = match fence {
            Some(fence) => Script::fenced("desire_termination", fence),
            None => Script::new("desire_termination"),
        };
        self.desire(script, id, wish, now).await
    }

    /// The same for a silence: `Conflict` when it is no longer the one that was known to whoever decided.
    pub async fn desire_end_of_silent(
        &self,
        fence: &Fence,
        id: &ContainerId,
        known: Silence,
        wish: Wish<'_>,
        now: Timestamp,
    ) -> Result<DesireOutcome> {
        let mut script = Script::fenced("desire_end_of_silent", fence);
        let heard = known.heard.map_or(Value::Word(""), Value::from);
        script.one(&sql::STILL_SILENT, vec![id.into(), heard, known.health.into()]);
        self.desire(script, id, wish, now).await
    }

    async fn desire(
        &self,
        mut script: Script,
        id: &ContainerId,
        wish: Wish<'_>,
        now: Timestamp,
    ) -> Result<DesireOutcome> {
        let Wish { by, reason, grace_seconds, event } = wish;
        let now = text_of(now);
        let before = script.step(&sql::WANT, params![id]);
        let set = script.step(&sql::DESIRE_TERMINATION, params![id, &now, by, reason, grace_seconds]);
        script.event_if(set, event, &now);
        let hastened = script.step(&sql::HASTEN_TERMINATION, params![id, grace_seconds, &now]);
        let done = self.write(script).await?;
        Ok(match first_text(&done, before) {
            None => DesireOutcome::NotFound,
            Some(state) if state == ContainerState::Terminated.as_str() => DesireOutcome::AlreadyTerminated,
            Some(_) if changed(&done, set) || changed(&done, hastened) => DesireOutcome::Set,
            Some(_) => DesireOutcome::AlreadyWanted,
        })
    }

    /// Claims stop attempt number `attempt` (1 is the first) before the provider is asked. The first one is
    /// the receipt `seen`, told by `event_on_first`. `Conflict` when another pass has claimed it.
    pub async fn stop_seen(
        &self,
        fence: &Fence,
        id: &ContainerId,
        attempt: i64,
        now: Timestamp,
        event_on_first: Option<NewEvent>,
    ) -> Result<()> {
        let now = text_of(now);
        let mut script = Script::fenced("stop_seen", fence);
        let first = script.step(&sql::STOP_FIRST_SEEN, params![id, &now]);
        if let Some(event) = event_on_first {
            script.event_if(first, event, &now);
        }
        script.one(&sql::STOP_ATTEMPT, params![id, attempt, &now]);
        self.write(script).await.map(drop)
    }

    /// What the provider answered to attempt number `attempt`: taken, or the error.
    pub async fn stop_result(
        &self,
        fence: &Fence,
        id: &ContainerId,
        attempt: i64,
        result: Result<(), String>,
        now: Timestamp,
        event: Option<NewEvent>,
    ) -> Result<()> {
        let now = text_of(now);
        let mut script = Script::fenced("stop_result", fence);
        match result {
            Ok(()) => script.one(&sql::STOP_SENT, params![id, attempt, &now]),
            Err(error) => script.one(&sql::STOP_FAILED, params![id, attempt, &now, error]),
        };
        if let Some(event) = event {
            script.event(event, &now);
        }
        self.write(script).await.map(drop)
    }

    /// That its long silence has been told, so that it is told once.
    pub async fn alert_silent(
        &self,
        fence: &Fence,
        id: &ContainerId,
        now: Timestamp,
        event: NewEvent,
    ) -> Result<()> {
        let now = text_of(now);
        let mut script = Script::fenced("alert_silent", fence);
        script.one(&sql::ALERT_SILENT, params![id, &now]);
        script.event(event, &now);
        self.write(script).await.map(drop)
    }
}
