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
    let (next_at, grace_seconds) = match (row.stop_attempted_at, row.stopping_at) {
        // Never asked; or the clock was set back since: ask, as politely as the first time.
        (None, _) => (now, grace),
        (Some(tried_at), _) if tried_at > now => (now, grace),
        // Asked, and never taken: refused, or we died in between. It does not know yet that it has to end.
        (Some(tried_at), None) if row.stop_error.is_some() => {
            (plus_seconds(tried_at, pause(row.stop_attempts)), grace)
        }
        (Some(_), None) => (now, grace),
        // Its grace began when the request was taken; a later wish may have shortened it.
        (Some(tried_at), Some(taken_at)) => {
            let patience = plus_seconds(taken_at.min(tried_at), grace + MARGIN_SECONDS);
            let again = plus_seconds(
                tried_at,
                if row.stop_attempts > 1 { pause(row.stop_attempts) } else { MARGIN_SECONDS },
            );
            (patience.max(again), 0)
        }
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

fn pause(attempts: i64) -> i64 {
    (1i64 << attempts.clamp(0, 5)).min(LONGEST_PAUSE_SECONDS)
}
