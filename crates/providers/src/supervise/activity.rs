//! What the job is doing, in the words of its sentinel: whether it needs a person, what for, and in which session
//! its agent is.

use std::sync::Mutex;
use std::time::Duration;

use parhelia_core::time::Clock;

use super::said::Said;
use super::{Shared, locked};

/// Output that comes within this time still belongs to the request for a person.
const SAME_BREATH: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Activity {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Option<Waiting>,
    last_reason: Option<String>,
    session: Option<String>,
}

#[derive(Debug)]
struct Waiting {
    reason: String,
    /// On the monotonic clock.
    since: Duration,
}

impl Activity {
    pub(super) fn new(session: Option<String>) -> Self {
        Self { state: Mutex::new(State { session, ..State::default() }) }
    }

    /// What it needs a person for, while it does.
    pub(super) fn waiting_reason(&self) -> Option<String> {
        locked(&self.state).waiting.as_ref().map(|waiting| waiting.reason.clone())
    }

    /// What it last needed a person for.
    pub(super) fn last_reason(&self) -> Option<String> {
        locked(&self.state).last_reason.clone()
    }

    pub(super) fn session(&self) -> Option<String> {
        locked(&self.state).session.clone()
    }

    /// True when something is different from before.
    fn output(&self, now: Duration, said: Vec<Said>) -> bool {
        let mut state = locked(&self.state);
        let mut changed = false;
        let asks = said.iter().any(|said| matches!(said, Said::NeedsHuman(_)));
        if !asks && state.waiting.as_ref().is_some_and(|w| now.saturating_sub(w.since) > SAME_BREATH) {
            state.waiting = None;
            changed = true;
        }
        for said in said {
            match said {
                Said::NeedsHuman(reason) => {
                    changed |= state.waiting.as_ref().is_none_or(|waiting| waiting.reason != reason);
                    state.last_reason = Some(reason.clone());
                    state.waiting = Some(Waiting { reason, since: now });
                }
                Said::Session(session) => {
                    state.session = Some(session);
                    changed = true;
                }
            }
        }
        changed
    }

    /// Somebody answered it, or it says itself that it goes on. True when it was waiting.
    fn goes_on(&self) -> bool {
        locked(&self.state).waiting.take().is_some()
    }
}

impl Shared {
    /// Some output has passed, and this was said in it.
    pub(super) fn note_output(&self, said: Vec<Said>) {
        if self.activity.output(self.clock.monotonic(), said) {
            self.tell_activity();
        }
    }

    pub(super) fn note_answer(&self) {
        if self.activity.goes_on() {
            self.tell_activity();
        }
    }

    /// Written and sent by their own threads: whoever noticed the change goes on at once.
    fn tell_activity(&self) {
        self.sentinel.poke();
        self.beats.poke();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_until_somebody_answers_or_it_speaks_again() {
        let activity = Activity::default();
        let at = Duration::from_millis;
        let asks = || vec![Said::NeedsHuman("why".into())];
        assert!(!activity.output(at(0), vec![]));
        assert!(activity.output(at(10), asks()));
        assert!(!activity.output(at(20), asks()), "the same again is no change");
        assert!(!activity.output(at(900), vec![]), "a prompt that belongs to it");
        assert_eq!(activity.waiting_reason().as_deref(), Some("why"));
        assert!(activity.output(at(1100), vec![]));
        assert_eq!(activity.waiting_reason(), None);
        assert_eq!(activity.last_reason().as_deref(), Some("why"));

        activity.output(at(2000), asks());
        assert!(activity.goes_on());
        assert!(!activity.goes_on());
        assert!(activity.output(at(2100), vec![Said::Session("s".into())]));
        assert_eq!(activity.session().as_deref(), Some("s"));
    }
}
