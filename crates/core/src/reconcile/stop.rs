//! Ending what must end: asked once politely, then by force, again and again until it is seen to be gone.

use jiff::Timestamp;

use super::{Action, Plan, Tracked};
use crate::state::{ContainerState, Desired};
use crate::time::{plus_seconds, seconds_between};

const DEFAULT_GRACE_SECONDS: i64 = 10;
const LONGEST_PAUSE_SECONDS: i64 = 30;
/// What a provider gets on top of the grace before it is asked again.
const MARGIN_SECONDS: i64 = 2;

pub(super) fn plan(row: &Tracked, now: Timestamp, plan: &mut Plan) {
    plan.busy = true;
    let grace = row.stop_grace_seconds.unwrap_or(DEFAULT_GRACE_SECONDS).max(0);
    let asked_at = row.desired_at.unwrap_or(now);
    let (next_at, grace_seconds) = match (row.stop_attempts, row.stop_attempted_at) {
        (0, _) | (_, None) => (now, grace),
        // The clock was set back since: ask again, as politely as the first time.
        (_, Some(tried_at)) if tried_at > now => (now, grace),
        (n, Some(tried_at)) if row.stop_error.is_some() => {
            (plus_seconds(tried_at, pause(n)), left(asked_at, grace, now))
        }
        // Its grace began when it was told; a later request may have shortened it.
        (1, Some(tried_at)) => (plus_seconds(tried_at, grace + MARGIN_SECONDS), 0),
        (n, Some(tried_at)) => (plus_seconds(tried_at, pause(n)), 0),
    };
    if next_at <= now {
        plan.actions.push(Action::Stop {
            id: row.id.clone(),
            sandbox_id: row.sandbox_id.clone(),
            grace_seconds,
            attempt: row.stop_attempts + 1,
        });
    } else {
        plan.wake(next_at);
        let wait = seconds_between(now, next_at).ceil();
        let why = match &row.stop_error {
            Some(error) => format!("the provider refused to stop it ({error}); asked again in {wait}s"),
            None => format!("told to stop; force in {wait}s if it is still there"),
        };
        plan.wait(&row.id, why);
    }
}

/// A provider that cannot show it may still be able to end it: what must end is asked to end all the same.
pub(super) fn unseen(row: &Tracked, now: Timestamp, out: &mut Plan) {
    let ended = matches!(row.state, ContainerState::Stopped | ContainerState::Terminated);
    if row.desired == Desired::Terminated && !ended && row.sandbox_id.is_some() {
        plan(row, now, out);
    }
}

fn left(asked_at: Timestamp, grace: i64, now: Timestamp) -> i64 {
    (seconds_between(now, plus_seconds(asked_at, grace)).ceil() as i64).clamp(0, grace)
}

fn pause(attempts: i64) -> i64 {
    (1i64 << attempts.clamp(0, 5)).min(LONGEST_PAUSE_SECONDS)
}
