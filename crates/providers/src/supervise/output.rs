//! The job's output: read always, so that the command never blocks, and appended to `output.log` in
//! segments. Offsets count every byte that was ever logged, so a reader neither repeats nor skips. While
//! the disk refuses, a bounded buffer is kept; what does not fit is counted and marked when it works again.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parhelia_core::job::Sign;
use parhelia_core::time::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::said::Scanner;
use super::{Place, Shared, clear_event, log, poke_event};
use crate::process::jobdir::JobDir;

const BUFFER_BYTES: usize = 1024 * 1024;
const KEPT_SEGMENTS: usize = 4;
const RETRY: Duration = Duration::from_millis(200);

/// What other threads may know of the pump.
#[derive(Debug)]
pub(super) struct Output {
    /// Bytes that the command has written.
    seen_bytes: AtomicU64,
    /// Where the log ends.
    end: AtomicU64,
    lost: AtomicU64,
    finish: AtomicBool,
    wake: OwnedFd,
}

impl Output {
    pub(super) fn new(wake: OwnedFd) -> Self {
        let zero = || AtomicU64::new(0);
        Self { seen_bytes: zero(), end: zero(), lost: zero(), finish: AtomicBool::new(false), wake }
    }

    pub(super) fn seen_bytes(&self) -> u64 {
        self.seen_bytes.load(Ordering::Relaxed)
    }

    /// (where the log ends, bytes lost)
    pub(super) fn written(&self) -> (u64, u64) {
        (self.end.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed))
    }

    /// Nothing of the job lives any more: what is in the pipe now is all that there will be.
    pub(super) fn finish(&self) {
        self.finish.store(true, Ordering::SeqCst);
        poke_event(&self.wake);
    }
}

/// Reads until the end of the job. Returns where the log ends and how much of it was lost.
pub(super) fn pump(shared: &Shared) -> (u64, u64) {
    let output = &shared.output;
    let pipe = &shared.streams.output;
    let mut scanner = Scanner::new(shared.activity.session().is_some());
    let mut segments = Segments::new(shared.dir.clone(), shared.spec.output_rotate_bytes);
    segments.to_stdout = shared.place == Place::Container;
    let mut recorder = Recorder::new(segments);
    let mut chunk = vec![0; 64 * 1024];
    let mut retried_at = Duration::ZERO;
    loop {
        let finishing = output.finish.load(Ordering::SeqCst);
        let mut drained = false;
        // A bounded number of reads between two looks at the rest.
        for _ in 0..64 {
            match rustix::io::read(pipe, &mut chunk) {
                // A terminal that nobody has open any more says EIO.
                Ok(0) | Err(rustix::io::Errno::IO) => {
                    drained = true;
                    break;
                }
                Ok(got) => {
                    output.seen_bytes.fetch_add(got as u64, Ordering::Relaxed);
                    shared.note_sign(Sign::Output);
                    let recorded = recorder.take(&chunk[..got]);
                    shared.attached.tell(&chunk[..recorded]);
                    shared.note_output(scanner.feed(&chunk[..got]));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    drained = finishing;
                    break;
                }
                Err(error) => {
                    log(&format!("the output pipe failed: {error}"));
                    drained = true;
                    break;
                }
            }
        }
        let now = shared.clock.monotonic();
        if recorder.is_stuck() && now.saturating_sub(retried_at) >= RETRY {
            retried_at = now;
            shared.attached.tell(&recorder.retry());
        }
        publish(output, &recorder);
        if drained {
            break;
        }
        wait(pipe, output, recorder.is_stuck());
    }
    let totals = recorder.close();
    output.end.store(totals.0, Ordering::Relaxed);
    output.lost.store(totals.1, Ordering::Relaxed);
    totals
}

fn publish(output: &Output, recorder: &Recorder) {
    output.end.store(recorder.segments.end, Ordering::Relaxed);
    output.lost.store(recorder.lost, Ordering::Relaxed);
}

fn wait(pipe: &OwnedFd, output: &Output, stuck: bool) {
    let mut watched = [PollFd::new(pipe, PollFlags::IN), PollFd::new(&output.wake, PollFlags::IN)];
    let retry = Timespec { tv_sec: 0, tv_nsec: RETRY.as_nanos() as i64 };
    let _ = poll(&mut watched, stuck.then_some(&retry));
    if !watched[1].revents().is_empty() {
        clear_event(&output.wake);
    }
}

/// Puts bytes in order into the segments, or keeps what it may of them.
struct Recorder {
    segments: Segments,
    kept: Vec<u8>,
    /// Lost after `kept` and not yet marked in the log.
    unmarked: u64,
    lost: u64,
    complained: bool,
}

impl Recorder {
    fn new(segments: Segments) -> Self {
        Self { segments, kept: Vec::new(), unmarked: 0, lost: 0, complained: false }
    }

    fn is_stuck(&self) -> bool {
        !self.kept.is_empty() || self.unmarked > 0
    }

    /// How many of them are in the log now, or kept for it.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let rest = if self.is_stuck() { bytes } else { &bytes[self.append(bytes)..] };
        // Once something is lost all that follows is, until the mark is in its place.
        let room = if self.unmarked > 0 { 0 } else { BUFFER_BYTES - self.kept.len() };
        let (kept, dropped) = rest.split_at(rest.len().min(room));
        self.kept.extend_from_slice(kept);
        self.unmarked += dropped.len() as u64;
        self.lost += dropped.len() as u64;
        bytes.len() - dropped.len()
    }

    /// The mark of what was lost, if it was put into the log now.
    fn retry(&mut self) -> Vec<u8> {
        let mut marked = Vec::new();
        let kept = std::mem::take(&mut self.kept);
        let done = self.append(&kept);
        self.kept = kept;
        self.kept.drain(..done);
        if self.kept.is_empty() && self.unmarked > 0 {
            let line = if self.segments.at_line_start { "" } else { "\n" };
            let mark = format!("{line}[{} bytes lost]\n", self.unmarked).into_bytes();
            let done = self.append(&mark);
            if done > 0 {
                // Whatever is left of the mark is ordinary output by now.
                self.kept = mark[done..].to_vec();
                self.unmarked = 0;
                marked = mark;
            }
        }
        if !self.is_stuck() && self.complained {
            self.complained = false;
            log("output.log can be written again");
        }
        marked
    }

    /// How many bytes reached the log.
    fn append(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            match self.segments.write(&bytes[done..]) {
                Ok(wrote) => done += wrote,
                Err(error) => {
                    if !self.complained {
                        self.complained = true;
                        log(&format!(
                            "output.log could not be written: {error}; the command goes on, its output is kept for a while"
                        ));
                    }
                    break;
                }
            }
        }
        done
    }

    /// A last try; what cannot be written now is lost.
    fn close(mut self) -> (u64, u64) {
        self.retry();
        self.retry();
        if let Some(file) = &self.segments.file {
            let _ = file.sync_data();
        }
        (self.segments.end, self.lost + self.kept.len() as u64)
    }
}

/// `output.log` and the parts of it that were set aside.
struct Segments {
    dir: JobDir,
    rotate_bytes: u64,
    file: Option<File>,
    /// The engine keeps it: nothing is written here.
    to_stdout: bool,
    /// Offset of the first byte of `output.log`.
    start: u64,
    end: u64,
    at_line_start: bool,
    set_aside: VecDeque<u64>,
}

impl Segments {
    fn new(dir: JobDir, rotate_bytes: u64) -> Self {
        let rotate_bytes = rotate_bytes.max(1);
        Self {
            dir,
            rotate_bytes,
            file: None,
            to_stdout: false,
            start: 0,
            end: 0,
            at_line_start: true,
            set_aside: VecDeque::new(),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.to_stdout {
            let wrote = rustix::io::write(rustix::stdio::stdout(), bytes)?;
            self.end += wrote as u64;
            self.at_line_start = bytes[..wrote].last() == Some(&b'\n');
            return Ok(wrote);
        }
        if self.end - self.start >= self.rotate_bytes {
            self.rotate()?;
        }
        let file = match &mut self.file {
            Some(file) => file,
            slot => {
                let opened =
                    OpenOptions::new().append(true).create(true).mode(0o600).open(self.dir.output())?;
                slot.insert(opened)
            }
        };
        let room = (self.rotate_bytes - (self.end - self.start)).min(bytes.len() as u64) as usize;
        let wrote = match file.write(&bytes[..room])? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            wrote => wrote,
        };
        self.end += wrote as u64;
        self.at_line_start = bytes[wrote - 1] == b'\n';
        Ok(wrote)
    }

    fn rotate(&mut self) -> io::Result<()> {
        fs::rename(self.dir.output(), self.dir.output_segment(self.start))?;
        self.set_aside.push_back(self.start);
        self.file = None;
        self.start = self.end;
        while self.set_aside.len() > KEPT_SEGMENTS {
            if let Some(oldest) = self.set_aside.pop_front() {
                let _ = fs::remove_file(self.dir.output_segment(oldest));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(rotate_bytes: u64) -> (tempfile::TempDir, Recorder) {
        let dir = tempfile::tempdir().unwrap();
        let segments = Segments::new(JobDir::at(dir.path()), rotate_bytes);
        (dir, Recorder::new(segments))
    }

    #[test]
    fn segments_are_named_by_their_first_byte_and_the_last_four_are_kept() {
        let (dir, mut recorder) = recorder(10);
        recorder.take(b"0123456789abcdefghij0123456789abcdefghij0123456789abcdefghijXYZ");
        let mut names: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["output.log", "output.log.20", "output.log.30", "output.log.40", "output.log.50"]);
        assert_eq!(fs::read(dir.path().join("output.log")).unwrap(), b"XYZ");
        assert_eq!(recorder.close(), (63, 0));
    }

    #[test]
    fn what_does_not_fit_the_buffer_is_counted_and_marked_in_its_place() {
        let (dir, mut recorder) = recorder(1 << 30);
        recorder.take(b"before ");
        // A directory in the way makes every write fail, as a full disk would.
        recorder.segments.file = None;
        fs::rename(dir.path().join("output.log"), dir.path().join("aside")).unwrap();
        fs::create_dir(dir.path().join("output.log")).unwrap();
        recorder.take(&vec![b'k'; BUFFER_BYTES]);
        recorder.take(b"dropped");
        assert!(recorder.is_stuck());
        recorder.retry();
        assert!(recorder.is_stuck());

        fs::remove_dir(dir.path().join("output.log")).unwrap();
        fs::rename(dir.path().join("aside"), dir.path().join("output.log")).unwrap();
        recorder.take(b"also dropped: the mark is not written yet");
        recorder.retry();
        recorder.take(b"after");
        let lost = 7 + 41;
        let text = fs::read_to_string(dir.path().join("output.log")).unwrap();
        assert!(text.starts_with("before kkk"));
        assert!(text.ends_with(&format!("kkk\n[{lost} bytes lost]\nafter")), "{}", &text[text.len() - 60..]);
        assert_eq!(recorder.close(), (text.len() as u64, lost));
    }
}
