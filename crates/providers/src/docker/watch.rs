//! Listens to what the engine tells of containers with our label. An event decides nothing: it makes the next
//! look come at once, and drops what was remembered of that container.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bollard::query_parameters::EventsOptionsBuilder;
use futures::StreamExt;
use parhelia_core::sandbox::TAG_CONTAINER;
use parhelia_core::time::seconds_between;

use super::{Inner, locked};

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A stream that fails does so at once.
const SETTLED_AFTER: Duration = Duration::from_millis(200);
/// From elsewhere even the end of a connection may not arrive: one over which nothing came for this long is made anew.
const QUIET_ELSEWHERE: Duration = Duration::from_secs(300);
/// What happened this long before we listen is told again: the engine's clock need not be ours.
const OVERLAP_SECONDS: i64 = 60;
/// Commands that are run inside, attaching and the like change nothing that we show.
const TELLING: [&str; 12] = [
    "create", "start", "restart", "die", "oom", "kill", "stop", "pause", "unpause", "destroy", "rename",
    "update",
];

pub(super) async fn keep(inner: Arc<Inner>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let began = inner.config.clock.monotonic();
        listen(&inner).await;
        let heard_before = inner.forget_everything();
        if heard_before {
            // The engine has gone, or left us: look, and say so.
            inner.hint.notify_one();
        }
        let lasted = inner.config.clock.monotonic().saturating_sub(began);
        pause = if lasted > LONGEST_PAUSE { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        tokio::time::sleep(pause).await;
    }
}

/// Until the stream ends.
async fn listen(inner: &Inner) {
    let Ok(docker) = inner.engine.client().await else { return };
    let filters = HashMap::from([
        ("type".to_owned(), vec!["container".to_owned()]),
        ("label".to_owned(), vec![TAG_CONTAINER.to_owned()]),
        ("event".to_owned(), TELLING.map(str::to_owned).to_vec()),
    ]);
    let since = inner.config.clock.now().as_second() - OVERLAP_SECONDS;
    let options = EventsOptionsBuilder::default().since(&since.to_string()).filters(&filters).build();
    let mut events = std::pin::pin!(docker.events(Some(options)));
    let mut told = false;
    loop {
        let patience = match (told, inner.engine.address.is_local()) {
            (false, _) => SETTLED_AFTER,
            (true, true) => Duration::MAX,
            (true, false) => QUIET_ELSEWHERE,
        };
        let next = tokio::time::timeout(patience, events.next());
        let event = match next.await {
            Ok(Some(Ok(event))) => event,
            Ok(Some(Err(error))) => {
                inner.engine.failed(&error).await;
                return;
            }
            Ok(None) => return,
            Err(_) if told => return,
            Err(_) => {
                told = true;
                inner.begin_to_remember();
                inner.hint.notify_one();
                continue;
            }
        };
        inner.heard(event.actor.and_then(|actor| actor.id).as_deref());
        let at = event.time.and_then(|at| jiff::Timestamp::from_second(at).ok());
        let age = at.map(|at| seconds_between(at, inner.config.clock.now()));
        tracing::debug!(action = event.action.as_deref(), ?age, "the engine tells of a change");
        inner.hint.notify_one();
    }
}

impl Inner {
    fn begin_to_remember(&self) {
        let mut memory = locked(&self.memory);
        memory.listening = true;
        memory.epoch += 1;
        memory.known.clear();
    }

    fn heard(&self, id: Option<&str>) {
        let mut memory = locked(&self.memory);
        memory.epoch += 1;
        match id {
            Some(id) => drop(memory.known.remove(id)),
            None => memory.known.clear(),
        }
    }

    /// True when it had listened.
    fn forget_everything(&self) -> bool {
        let mut memory = locked(&self.memory);
        memory.epoch += 1;
        memory.known.clear();
        std::mem::take(&mut memory.listening)
    }
}
