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
    // Beyond the end there is nothing.
    let asked = offset.max(begin).min(total);
    let (offset, bytes) = collect(segments, asked, max_bytes.min(READ_MAX_BYTES)).map_err(failed)?;
    let next_offset = offset + bytes.len() as u64;
    Ok(LogChunk { offset, bytes, next_offset, finished: ended && next_offset >= total })
}

/// Bytes without a hole between them, from `offset` on or, where that is not there any more, from the next
/// byte that is; and where they begin.
fn collect(segments: Vec<Segment>, offset: u64, max_bytes: usize) -> io::Result<(u64, Vec<u8>)> {
    let mut begin = offset;
    let mut bytes = Vec::new();
    for mut segment in segments {
        let at = begin + bytes.len() as u64;
        if bytes.len() >= max_bytes {
            break;
        }
        if at >= segment.end && segment.start <= at {
            continue;
        }
        if at < segment.start {
            if !bytes.is_empty() {
                break;
            }
            begin = segment.start;
        }
        let at = begin + bytes.len() as u64;
        segment.file.seek(SeekFrom::Start(at - segment.start))?;
        let want = (segment.end - at).min((max_bytes - bytes.len()) as u64);
        segment.file.take(want).read_to_end(&mut bytes)?;
    }
    Ok((begin, bytes))
}

/// What one look found. Holes in it are real only when the next look finds the same.
#[derive(Debug)]
struct Look {
    segments: Vec<Segment>,
    holes: bool,
}

impl Look {
    /// Which files there are. One that was set aside does not change any more.
    fn shape(&self) -> io::Result<Vec<(u64, u64, u64)>> {
        let mut shape = Vec::new();
        for segment in &self.segments {
            let meta = segment.file.metadata()?;
            shape.push((segment.start, meta.dev(), meta.ino()));
        }
        Ok(shape)
    }
}

/// All segments of one moment, oldest first. A power failure can cost the end of any of them, which leaves a
/// hole for ever; a rotation during the look leaves one for that look.
fn segments(dir: &JobDir) -> io::Result<Vec<Segment>> {
    let mut before = None;
    for _ in 0..ATTEMPTS {
        let Some(look) = look(dir)? else {
            before = None;
            continue;
        };
        if !look.holes {
            return Ok(look.segments);
        }
        let shape = look.shape()?;
        if before.as_ref() == Some(&shape) {
            return Ok(look.segments);
        }
        before = Some(shape);
    }
    Err(io::Error::other("it was rotated during every look"))
}

/// `None` when a rotation came between two steps.
fn look(dir: &JobDir) -> io::Result<Option<Look>> {
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
    let mut holes = false;
    for start in starts {
        let file = match File::open(dir.output_segment(start)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let end = start.saturating_add(file.metadata()?.len());
        if let Some(before) = found.last_mut() {
            holes |= before.end != start;
            // Names are never wrong: what would be there twice counts once.
            before.end = before.end.min(start);
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
        found.push(Segment { start, end: start.saturating_add(meta.len()), file });
    }
    Ok(Some(Look { segments: found, holes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (offset, text, next offset, finished)
    fn at(dir: &JobDir, offset: u64, max: usize) -> (u64, String, u64, bool) {
        let chunk = read(dir, offset, max).unwrap();
        (chunk.offset, String::from_utf8(chunk.bytes).unwrap(), chunk.next_offset, chunk.finished)
    }

    #[test]
    fn what_a_power_failure_took_is_skipped() {
        let kept = tempfile::tempdir().unwrap();
        let dir = JobDir::at(kept.path());
        fs::write(dir.output_segment(10), "abcdefghij").unwrap();
        fs::write(dir.output_segment(20), "klm").unwrap(); // it had ten
        fs::write(dir.output_segment(30), "").unwrap();
        fs::write(dir.output_segment(40), "uvwxyz too long").unwrap(); // into the next
        fs::write(dir.output_segment(50), "0123456789").unwrap();
        fs::write(dir.output(), "end").unwrap();
        assert_eq!(at(&dir, 0, 99), (10, "abcdefghijklm".into(), 23, false));
        assert_eq!(at(&dir, 15, 3), (15, "fgh".into(), 18, false));
        for offset in [23, 27, 30, 39, 40] {
            assert_eq!(at(&dir, offset, 12), (40, "uvwxyz too01".into(), 52, false));
        }
        assert_eq!(at(&dir, 52, 99), (52, "23456789end".into(), 63, false));

        fs::write(dir.result(), "").unwrap();
        assert_eq!(at(&dir, 60, 99), (60, "end".into(), 63, true));
    }

    #[test]
    fn a_hole_before_an_empty_end_still_comes_to_an_end() {
        let kept = tempfile::tempdir().unwrap();
        let dir = JobDir::at(kept.path());
        fs::write(dir.output_segment(0), "abc").unwrap();
        fs::write(dir.output_segment(10), "").unwrap();
        fs::write(dir.output(), "").unwrap();
        fs::write(dir.result(), "").unwrap();
        assert_eq!(at(&dir, 0, 99), (0, "abc".into(), 3, false));
        assert_eq!(at(&dir, 3, 99), (10, String::new(), 10, true));
    }

    #[test]
    fn beyond_the_end_is_the_end() {
        let kept = tempfile::tempdir().unwrap();
        let dir = JobDir::at(kept.path());
        assert_eq!(at(&dir, u64::MAX, 99), (0, String::new(), 0, false));
        fs::write(dir.output_segment(7), "abc").unwrap();
        fs::write(dir.output(), "de").unwrap();
        for offset in [12, 13, u64::MAX] {
            assert_eq!(at(&dir, offset, 99), (12, String::new(), 12, false));
        }
        fs::write(dir.result(), "").unwrap();
        assert_eq!(at(&dir, u64::MAX, 99), (12, String::new(), 12, true));
        // A name that no supervisor gives must not break it.
        fs::write(dir.output_segment(u64::MAX), "x").unwrap();
        read(&dir, 0, 99).unwrap();
    }
}
