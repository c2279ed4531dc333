//! The readers of the tail: whatever carries events out of the store to somebody. A reader is a [`Tail`] with a
//! cursor of its own. It decides nothing and writes nothing but that cursor; none can slow a writer or another
//! reader.

mod tail;

pub use tail::{Batch, Lost, Tail};
