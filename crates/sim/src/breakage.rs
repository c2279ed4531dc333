//! Contracts broken on purpose, at the edges of the real code: each shows that an invariant can fail, and
//! that the simulation notices when it does.

use clap::ValueEnum;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Breakage {
    /// A failed listing is taken for an empty one, a failed inspection for an absence.
    FailureIsAbsence,
    /// The fence of a write is asked and not heeded.
    Unfenced,
    /// A state is written without its event.
    Untold,
    /// A create that was not answered is simply sent again, whatever the provider makes of it.
    BlindRetry,
    /// The listing is filtered by instance wrongly: sandboxes of others seem to be ours.
    EverythingIsOurs,
    /// The listing leaves out what was started by hand.
    HalfBlind,
    /// A request to stop is taken and forgotten.
    StopIsForgotten,
    /// A stop ends the whole fleet rather than the one that was named.
    StopsTooMuch,
    /// A restarted server goes on with the ages that it had counted before.
    OutageAges,
    /// Heartbeats are acknowledged and not kept.
    HeartbeatsLost,
}
