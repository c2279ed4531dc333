//! Signals: something that is said to whoever waits for it. Here it is written down; who takes it is written by the
//! sessions that do, each once.

use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::ids::SignalId;
use parhelia_core::session::SignalRow;
use parhelia_core::session::api::{FireSignal, SignalList};
use parhelia_store::{SignalFilter, StoreError};
use serde_json::json;

use super::session_views::page;
use super::{Caller, Service, ServiceError, validate};

const MAX_NAME_BYTES: usize = 200;
/// It goes into the outputs of a phase, which every later step reads.
const MAX_PAYLOAD_BYTES: usize = 256 * 1024;

#[derive(Debug, Clone, Default)]
pub struct SignalQuery {
    pub name: Option<String>,
    /// Id or unique prefix.
    pub session: Option<String>,
    pub pending: bool,
    pub limit: Option<u32>,
    pub before: Option<String>,
}

impl Service {
    pub async fn fire_signal(&self, request: FireSignal, caller: &Caller) -> Result<SignalRow, ServiceError> {
        let FireSignal { name, session, payload } = request;
        validate::words("the name of a signal", &name, MAX_NAME_BYTES)?;
        validate::size("the payload", &payload, MAX_PAYLOAD_BYTES)?;
        let session_id = match &session {
            Some(given) => Some(self.resolve_session(given).await?),
            None => None,
        };
        let now = self.clock.now();
        let signal = SignalRow {
            id: self.entropy.signal_id(now),
            name,
            session_id,
            payload,
            fired_at: now,
            fired_by: caller.subject.clone(),
            deliveries: 0,
            delivered_at: None,
        };
        let message = format!("Signal {} fired by {}", signal.name, caller.subject);
        let mut event = NewEvent::new(EventType::SignalFired, Source::User, message)
            .details(json!({ "by": caller.subject, "name": signal.name, "signal_id": signal.id }));
        if let Some(session) = &signal.session_id {
            event = event.session(session);
        }
        match (self.store.fire_signal(&signal, event).await, &signal.session_id) {
            (Ok(()), _) => Ok(signal),
            (Err(StoreError::Conflict { .. }), Some(session)) => Err(ServiceError::Conflict {
                message: format!("session {session} is over: nothing of it will ever wait for this signal"),
                fix: "fire it without a session for whoever waits for it next; 'parhelia sessions list' shows which sessions are not over",
            }),
            (Err(other), _) => Err(other.into()),
        }
    }

    /// Newest first.
    pub async fn signals(&self, query: SignalQuery) -> Result<SignalList, ServiceError> {
        let limit = page(query.limit)?;
        let session = match &query.session {
            Some(given) => Some(self.resolve_session(given).await?),
            None => None,
        };
        let before = match &query.before {
            Some(id) => {
                let known = SignalId::parse(id).map_err(|_| no_such_page(id))?;
                let found = self.store.signal(&known).await?.ok_or_else(|| no_such_page(id))?;
                Some((found.fired_at, found.id))
            }
            None => None,
        };
        let filter = SignalFilter {
            name: query.name,
            session,
            pending: query.pending,
            before,
            // One more, to know whether there are more.
            limit: Some(i64::from(limit) + 1),
        };
        let mut signals = self.store.signals(&filter).await?;
        let more = signals.len() > limit as usize;
        signals.truncate(limit as usize);
        let next = signals.last().filter(|_| more).map(|signal| signal.id.clone());
        Ok(SignalList { signals, next })
    }
}

fn no_such_page(before: &str) -> ServiceError {
    let shown: String = before.chars().take(64).collect();
    ServiceError::invalid(
        format!("before: there is no signal '{shown}'"),
        "give the 'next' of the page before, as it was answered",
    )
}
