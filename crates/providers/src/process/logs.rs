//! Reads a job's output by absolute offset, across the segments that its supervisor sets aside meanwhile.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;

use super::jobdir::{JobDir, exists};
use crate::{LogChunk, ProviderError};

const READ_MAX_BYTES: usize = 16 * 1024 * 1024;
/// A rotation during the look makes it start again; nobody rotates this often.
const ATTEMPTS: u32 = 50;

/// One piece of the output, its file open: a later rename or removal takes nothing away.
#[derive(Debug)]
struct Segment {
    start: u64,
    end: u64,
    file: File,
}

pub(crate) fn read(dir: &JobDir, offset: u64, max_bytes: usize) -> Result<LogChunk, ProviderError> {
    let failed = |error: io::Error| {
        ProviderError::Unreachable(format!(
            "the output in {} could not be read: {error}",
            dir.path().display()
        ))
    };
    if !exists(dir.path()).map_err(failed)? {
        return Err(ProviderError::Rejected(format!(
            "there is no {}; the job was never started here, or its directory was removed",
            dir.path().display()
        )));
    }
    // Before the segments: what ends after this look is read at the next call.
    let ended = exists(&dir.result()).map_err(failed)?;
    let segments = segments(dir).map_err(failed)?;
    let begin = segments.first().map_or(0, |segment| segment.start);
    let total = segments.last().map_or(0, |segment| segment.end);
    // Beyond the end there is nothing; what was rotated away is skipped, and the answer says so.
    let offset = offset.max(begin).min(total);
    let bytes = collect(segments, offset, max_bytes.min(READ_MAX_BYTES)).map_err(failed)?;
    let next_offset = offset + bytes.len() as u64;
    Ok(LogChunk { offset, bytes, next_offset, finished: ended && next_offset >= total })
}

fn collect(segments: Vec<Segment>, offset: u64, max_bytes: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for mut segment in segments {
        let at = offset + bytes.len() as u64;
        if at < segment.start || at >= segment.end || bytes.len() >= max_bytes {
            continue;
        }
        segment.file.seek(SeekFrom::Start(at - segment.start))?;
        let want = (segment.end - at).min((max_bytes - bytes.len()) as u64);
        segment.file.take(want).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// All segments of one moment, oldest first, without holes.
fn segments(dir: &JobDir) -> io::Result<Vec<Segment>> {
    for _ in 0..ATTEMPTS {
        if let Some(found) = look(dir)? {
            return Ok(found);
        }
    }
    Err(io::Error::other("it was rotated during every look"))
}

/// `None` when a rotation came between two steps.
fn look(dir: &JobDir) -> io::Result<Option<Vec<Segment>>> {
    let newest = match File::open(dir.output()) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let mut starts: Vec<u64> = fs::read_dir(dir.path())?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("output.log.")?.parse().ok())
        .collect();
    starts.sort_unstable();
    let mut found: Vec<Segment> = Vec::new();
    for start in starts {
        let file = match File::open(dir.output_segment(start)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let end = start + file.metadata()?.len();
        if found.last().is_some_and(|before| before.end != start) {
            return Ok(None);
        }
        found.push(Segment { start, end, file });
    }
    if let Some(file) = newest {
        let meta = file.metadata()?;
        let mut aside = false;
        for segment in &found {
            let other = segment.file.metadata()?;
            aside |= (other.dev(), other.ino()) == (meta.dev(), meta.ino());
        }
        if aside || meta.nlink() == 0 {
            return Ok(None);
        }
        let start = found.last().map_or(0, |before| before.end);
        found.push(Segment { start, end: start + meta.len(), file });
    }
    Ok(Some(found))
}
