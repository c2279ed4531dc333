//! Which ended sandboxes a provider may forget. An ended one keeps its output and costs nothing, so it goes
//! only when its end is recorded: removed earlier, its absence would be all that anybody ever learns.

use std::collections::HashMap;

use jiff::Timestamp;

use super::Tracked;
use crate::sandbox::{Listing, Phase, Sandbox};
use crate::state::{ContainerState, TerminationReason};
use crate::time::due_at;

/// What may go now, and when the next one may.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Removals<'a> {
    pub now: Vec<&'a Sandbox>,
    pub next_at: Option<Timestamp>,
}

/// `rows` must be those of the listing's ended sandboxes, read after the listing was acted upon. What
/// `cleanup` ended goes at once; the others stay `keep_seconds` for their output. Without a row of ours that
/// is about this very sandbox, nothing goes.
pub fn removals<'a>(
    listing: &'a Listing,
    rows: &[Tracked],
    keep_seconds: u64,
    now: Timestamp,
) -> Removals<'a> {
    let by_sandbox: HashMap<&str, &Tracked> =
        rows.iter().filter_map(|row| Some((row.sandbox_id.as_deref()?, row))).collect();
    let mut due = Removals::default();
    for sandbox in listing.sandboxes.iter().filter(|s| matches!(s.phase, Phase::Exited(_))) {
        let Some(row) = by_sandbox.get(sandbox.sandbox_id.as_str()) else { continue };
        let same = row.provider_identity.as_ref().is_none_or(|identity| *identity == listing.identity);
        let (true, ContainerState::Terminated, Some(ended_at)) = (same, row.state, row.terminated_at) else {
            continue;
        };
        let cleaned = matches!(
            row.termination_reason,
            Some(TerminationReason::OrphanCleanup | TerminationReason::DeadCleanup)
        );
        let keep = if cleaned { 0 } else { i64::try_from(keep_seconds).unwrap_or(i64::MAX) };
        let at = due_at(ended_at, keep, now);
        if at <= now {
            due.now.push(sandbox);
        } else {
            due.next_at = Some(due.next_at.map_or(at, |next| next.min(at)));
        }
    }
    due
}
