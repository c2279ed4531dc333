//! A container's output by absolute offset, standard output and error as they came. The engine numbers no bytes
//! and knows only times, so for each container some places are remembered as "so many entries after this
//! second"; reading goes on from the nearest one instead of from the beginning.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bollard::errors::Error;
use bollard::query_parameters::LogsOptionsBuilder;
use futures::StreamExt;
use jiff::Timestamp;
use parhelia_core::sandbox::Phase;

use super::engine::status;
use super::{Inner, locked, observe};
use crate::{LogChunk, ProviderError, SandboxRef};

/// Two writers stamp and append without a common lock: entries may stand this much out of order.
const DISORDER_SECONDS: i64 = 2;
/// Places are remembered this far apart.
const APART_BYTES: u64 = 1 << 20;
const CONTAINERS_REMEMBERED: usize = 512;
const READ_MAX_BYTES: usize = 16 << 20;

pub(crate) type Positions = HashMap<String, Vec<Place>>;

/// Between two entries of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    offset: u64,
    /// Entries from this second on are asked for…
    since: i64,
    /// …and so many of them stand before this place.
    skip: u64,
    newest: i64,
}

const BEGINNING: Place = Place { offset: 0, since: 0, skip: 0, newest: 0 };

/// Where a reader is, and what it needs to say how to come back.
#[derive(Debug)]
struct Reader {
    offset: u64,
    newest: i64,
    /// How many entries each of the last seconds had.
    recent: BTreeMap<i64, u64>,
    /// An entry was older than any disorder explains (the clock was set back): no place can be trusted.
    disordered: bool,
}

impl Reader {
    fn at(place: Place) -> Self {
        Self { offset: place.offset, newest: place.newest, recent: BTreeMap::new(), disordered: false }
    }

    fn pass(&mut self, second: i64, bytes: u64) {
        self.count(second);
        self.offset += bytes;
    }

    fn count(&mut self, second: i64) {
        self.disordered |= second < self.newest - DISORDER_SECONDS;
        self.newest = self.newest.max(second);
        *self.recent.entry(second).or_default() += 1;
        let oldest = self.newest - DISORDER_SECONDS;
        while self.recent.first_key_value().is_some_and(|(second, _)| *second < oldest) {
            self.recent.pop_first();
        }
    }

    fn place(&self) -> Option<Place> {
        let since = self.newest - DISORDER_SECONDS;
        let skip = self.recent.range(since..).map(|(_, count)| count).sum();
        let usable = !self.disordered && since > 0 && i32::try_from(since).is_ok();
        usable.then_some(Place { offset: self.offset, since, skip, newest: self.newest })
    }
}

pub(crate) async fn read(
    inner: &Arc<Inner>,
    sandbox: &SandboxRef,
    offset: u64,
    max_bytes: usize,
) -> Result<LogChunk, ProviderError> {
    let max_bytes = max_bytes.min(READ_MAX_BYTES);
    let Some((id, found)) = observe::find(inner, sandbox).await? else {
        return Err(ProviderError::Rejected(format!(
            "the engine has no container {}; it was never made here, or it was removed with its output",
            sandbox.container_id
        )));
    };
    // Before the output: what ends after this look is read at the next call.
    let ended = matches!(found.state.as_ref().map(observe::phase), Some(Phase::Exited(_)));
    let terminal = found.config.as_ref().and_then(|config| config.tty) == Some(true);
    let docker = inner.engine.client().await?;
    let start = if terminal { BEGINNING } else { nearest(inner, &id, offset) };
    let options = LogsOptionsBuilder::default()
        .stdout(true)
        .stderr(true)
        .timestamps(!terminal)
        .since(i32::try_from(start.since).unwrap_or(0))
        .tail("all")
        .build();
    let mut output = std::pin::pin!(docker.logs(&id, Some(options)));
    let mut reader = Reader::at(start);
    let mut skip = start.skip;
    let mut bytes = Vec::new();
    let mut whole = true;
    loop {
        // Nothing is waited for: an engine that stops in the middle has stopped.
        let entry = match tokio::time::timeout(inner.config.timeout, output.next()).await {
            Ok(Some(entry)) => entry,
            Ok(None) => break,
            Err(_) => return Err(inner.engine.failed(&Error::RequestTimeoutError).await),
        };
        let entry = match entry {
            Ok(entry) => entry.into_bytes(),
            Err(error) if status(&error) == Some(404) => break,
            Err(error) => return Err(inner.engine.failed(&error).await),
        };
        let (second, text) = if terminal { (0, &entry[..]) } else { stamped(&entry) };
        if skip > 0 {
            skip -= 1;
            reader.count(second);
            continue;
        }
        let end = reader.offset + text.len() as u64;
        if end > offset && bytes.len() < max_bytes {
            let from = offset.saturating_sub(reader.offset) as usize;
            let room = max_bytes - bytes.len();
            bytes.extend(text[from..].iter().take(room));
            if text.len() - from > room {
                whole = false;
                break;
            }
        }
        reader.pass(second, text.len() as u64);
        if bytes.len() >= max_bytes {
            whole = false;
            break;
        }
    }
    if let (false, Some(place)) = (terminal, reader.place()) {
        remember(inner, id, place);
    }
    let offset = if bytes.is_empty() { offset.min(reader.offset) } else { offset };
    let next_offset = offset + bytes.len() as u64;
    Ok(LogChunk { offset, bytes, next_offset, finished: ended && whole })
}

/// An entry begins with its time and a space.
fn stamped(entry: &[u8]) -> (i64, &[u8]) {
    let parsed = entry.iter().position(|byte| *byte == b' ').and_then(|at| {
        let time: Timestamp = std::str::from_utf8(&entry[..at]).ok()?.parse().ok()?;
        Some((time.as_second(), &entry[at + 1..]))
    });
    parsed.unwrap_or((0, entry))
}

fn nearest(inner: &Inner, id: &str, offset: u64) -> Place {
    let mut positions = locked(&inner.positions);
    let Some(places) = positions.get_mut(id) else { return BEGINNING };
    // The clock was set back: new entries would be older than what we would ask for.
    let now = inner.config.clock.now().as_second();
    if places.iter().any(|place| place.newest > now + DISORDER_SECONDS) {
        places.clear();
    }
    places.iter().rev().find(|place| place.offset <= offset).copied().unwrap_or(BEGINNING)
}

fn remember(inner: &Inner, id: String, place: Place) {
    let mut positions = locked(&inner.positions);
    if positions.len() >= CONTAINERS_REMEMBERED && !positions.contains_key(&id) {
        positions.clear();
    }
    keep(positions.entry(id).or_default(), place);
}

/// In the order of their offsets. The last one is where most go on; the others stay far enough apart to be few, and near
/// enough to be useful to somebody who reads from elsewhere.
fn keep(places: &mut Vec<Place>, place: Place) {
    let at = places.partition_point(|known| known.offset < place.offset);
    let far = |other: Option<&Place>| other.is_none_or(|it| it.offset.abs_diff(place.offset) >= APART_BYTES);
    if at < places.len() {
        if far(places.get(at)) && far(at.checked_sub(1).and_then(|before| places.get(before))) {
            places.insert(at, place);
        }
        return;
    }
    if let [.., before, last] = places[..]
        && last.offset - before.offset < APART_BYTES
    {
        places.pop();
    }
    places.push(place);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_the_entries_from_its_second_on() {
        let mut reader = Reader::at(BEGINNING);
        assert_eq!(reader.place(), None, "nothing read, nothing to come back to");
        for (second, bytes) in [(100, 5), (100, 5), (101, 10), (104, 1), (103, 2)] {
            reader.pass(second, bytes);
        }
        assert_eq!(reader.place(), Some(Place { offset: 23, since: 102, skip: 2, newest: 104 }));
        reader.pass(50, 1);
        assert_eq!(reader.place(), None, "the clock was set back");
    }

    #[test]
    fn places_are_kept_in_order_wherever_somebody_reads() {
        let at = |offset| Place { offset, ..BEGINNING };
        let offsets = |places: &[Place]| places.iter().map(|place| place.offset).collect::<Vec<_>>();
        let (mut places, far) = (Vec::new(), APART_BYTES);
        // Somebody looked at the end first.
        for offset in [10 * far, far, far + 1, 2 * far, 10 * far] {
            keep(&mut places, at(offset));
        }
        assert_eq!(offsets(&places), [far, 2 * far, 10 * far]);
        // It grows: the last place goes along.
        keep(&mut places, at(10 * far + 1));
        keep(&mut places, at(10 * far + 2));
        assert_eq!(offsets(&places), [far, 2 * far, 10 * far, 10 * far + 2]);
    }

    #[test]
    fn the_time_is_taken_off_and_the_rest_is_left_as_it_is() {
        let (second, text) = stamped(b"2026-01-01T00:00:01.000000005Z  two  spaces\n");
        assert_eq!((second, text), (1_767_225_601, &b" two  spaces\n"[..]));
        assert_eq!(stamped(b"nothing"), (0, &b"nothing"[..]));
    }
}
