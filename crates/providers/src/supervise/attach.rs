//! Whoever is attached to the job, one thread each. What they see comes from the log, and from a bounded memory of its
//! newest bytes; who falls behind that reads the log again, so there is neither a gap nor a repeat. Nobody waits for
//! them: a slow or dead client holds up neither the command nor the others.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use parhelia_core::job::Terminal;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::Signal;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Place, Shared, clear_event, locked, log, poke_event, thread};
use crate::process::attach::{FRAME_MAX_BYTES, Frames, FromJob, ToJob};
use crate::process::logs;

const CLIENTS_MAX: usize = 8;
/// The newest output, in memory while somebody is attached.
const RECENT_BYTES: usize = 256 * 1024;
/// In one frame, so also what waits for one client.
const PIECE_BYTES: usize = 32 * 1024;
/// Input of one client that the command has not taken yet. More is left in the socket.
const INPUT_MAX_BYTES: usize = 64 * 1024;
/// When the log is not where it should be yet (its disk refuses).
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// At the end; whoever is slower finds the rest in the log.
const FAREWELL: Duration = Duration::from_secs(1);

/// The request that makes a connection an attachment.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Ask {
    /// Where to begin.
    offset: Option<u64>,
    /// Instead: this far before the end, at the beginning of a line.
    tail: Option<u64>,
    rows: Option<u16>,
    cols: Option<u16>,
}

#[derive(Debug, Default)]
pub(super) struct Attached {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How each is woken.
    clients: Vec<Arc<OwnedFd>>,
    recent: VecDeque<u8>,
    /// Where `recent` begins in the log.
    recent_start: u64,
    /// The content of `result.json`.
    end: Option<Arc<Vec<u8>>>,
}

/// What there is for a client at its offset.
#[derive(Debug, PartialEq)]
enum Next {
    Bytes(Vec<u8>),
    /// Only the log has it; the memory begins here.
    InLog {
        memory_starts: u64,
    },
    /// It has everything. The end, if this was all.
    Nothing(Option<Arc<Vec<u8>>>),
}

impl State {
    fn tell(&mut self, bytes: &[u8]) {
        if self.clients.is_empty() {
            self.recent_start += (self.recent.len() + bytes.len()) as u64;
            self.recent = VecDeque::new();
            return;
        }
        self.recent.extend(bytes);
        let over = self.recent.len().saturating_sub(RECENT_BYTES);
        self.recent.drain(..over);
        self.recent_start += over as u64;
        self.wake();
    }

    fn wake(&self) {
        self.clients.iter().for_each(|client| poke_event(client));
    }

    fn log_end(&self) -> u64 {
        self.recent_start + self.recent.len() as u64
    }

    fn next(&self, offset: u64) -> Next {
        if offset >= self.log_end() {
            return Next::Nothing(self.end.clone());
        }
        match offset.checked_sub(self.recent_start) {
            None => Next::InLog { memory_starts: self.recent_start },
            Some(skip) => {
                Next::Bytes(self.recent.iter().skip(skip as usize).take(PIECE_BYTES).copied().collect())
            }
        }
    }
}

impl Attached {
    /// These bytes are in the log now, or will be before anything else is.
    pub(super) fn tell(&self, bytes: &[u8]) {
        locked(&self.state).tell(bytes);
    }

    fn next(&self, offset: u64) -> Next {
        locked(&self.state).next(offset)
    }

    fn enter(&self) -> Result<Arc<OwnedFd>, String> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| format!("no event descriptor: {error}"))?;
        let wake = Arc::new(wake);
        let mut state = locked(&self.state);
        if state.clients.len() >= CLIENTS_MAX {
            return Err(format!("at most {CLIENTS_MAX} can be attached at once; detach one"));
        }
        state.clients.push(wake.clone());
        Ok(wake)
    }

    fn leave(&self, wake: &Arc<OwnedFd>) {
        locked(&self.state).clients.retain(|other| !Arc::ptr_eq(other, wake));
        self.left.notify_all();
    }
}

/// The result is on the disk: everybody gets the rest of the output and the end, if they take it soon.
pub(super) fn tell_end(shared: &Shared, result: &[u8]) {
    let mut state = locked(&shared.attached.state);
    state.end = Some(Arc::new(result.to_vec()));
    state.wake();
    let waited = shared.attached.left.wait_timeout_while(state, FAREWELL, |state| !state.clients.is_empty());
    drop(waited.unwrap_or_else(PoisonError::into_inner));
}

/// Makes the connection an attachment, or says why it cannot be one.
pub(super) fn begin(
    shared: &Arc<Shared>,
    stream: &UnixStream,
    kept: Vec<u8>,
    ask: &Ask,
) -> Result<(), String> {
    if shared.place == Place::Container {
        return Err("the engine keeps this job's output; follow its logs instead".to_owned());
    }
    let stream = stream.try_clone().map_err(|error| error.to_string())?;
    let seat = Seat { wake: shared.attached.enter()?, shared: shared.clone() };
    let frames = Frames::new(kept);
    let mut client =
        Client { seat, stream, frames, input: Vec::new(), input_ends: false, output: Vec::new(), offset: 0 };
    let answer = client.open(ask);
    client.output.extend_from_slice(format!("{answer}\n").as_bytes());
    thread("attached", move || match client.serve() {
        Err(error) if error.kind() == ErrorKind::InvalidData => log(&format!("attached: {error}; let go")),
        _ => {}
    })
    .map(drop)
}

/// A place among the attached, given back however its thread ends.
#[derive(Debug)]
struct Seat {
    wake: Arc<OwnedFd>,
    shared: Arc<Shared>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.attached.leave(&self.wake);
    }
}

#[derive(Debug)]
struct Client {
    seat: Seat,
    /// Never blocks.
    stream: UnixStream,
    frames: Frames,
    /// Not taken by the command yet.
    input: Vec<u8>,
    /// After that, its input ends.
    input_ends: bool,
    /// Not taken by the client yet.
    output: Vec<u8>,
    /// What it was given of the log, or will be with `output`.
    offset: u64,
}

/// Whether there may be more at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Again,
    /// Until something happens, or for this long.
    Wait(Option<Duration>),
    Over,
}

impl Client {
    fn open(&mut self, ask: &Ask) -> Value {
        let shared = &self.seat.shared;
        let end = locked(&shared.attached.state).log_end();
        self.offset = match (ask.offset, ask.tail) {
            (Some(offset), _) => offset.min(end),
            (None, Some(tail)) => line_start(shared, end.saturating_sub(tail)),
            (None, None) => 0,
        };
        if let (Some(rows), Some(cols)) = (ask.rows, ask.cols) {
            self.resize(Terminal { rows, cols }, self.offset > 0);
        }
        json!({
            "ok": true,
            "offset": self.offset,
            "end": end,
            "terminal": shared.streams.is_terminal(),
            "input": shared.streams.input().is_some(),
        })
    }

    /// The last one who says a size decides. A program draws its screen again, for somebody who has not seen it
    /// from the beginning, only if it hears of a change.
    fn resize(&self, size: Terminal, draw_again: bool) {
        let same = self.seat.shared.streams.resize(size);
        if same && draw_again {
            self.seat.shared.pass_on(Signal::WINCH);
        }
    }

    /// Until it detaches, goes away, talks nonsense (`InvalidData`), or has been told of the end.
    fn serve(mut self) -> io::Result<()> {
        loop {
            self.hear()?;
            // Until there is no frame, or no room for what it brings: only then there is something to wait for.
            loop {
                self.give_input();
                match self.next_frame()? {
                    None => break,
                    Some(ToJob::Detach) => return Ok(()),
                    Some(frame) => self.obey(frame),
                }
            }
            match self.give_output()? {
                Turn::Over => return Ok(()),
                Turn::Again => {}
                Turn::Wait(at_most) => self.wait(at_most)?,
            }
        }
    }

    fn hear(&mut self) -> io::Result<()> {
        if !self.may_hear() {
            return Ok(());
        }
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(got) => {
                self.frames.feed(&chunk[..got]);
                Ok(())
            }
            Err(error) if is_later(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn may_hear(&self) -> bool {
        self.input.len() < INPUT_MAX_BYTES && self.frames.waiting_bytes() < 2 * FRAME_MAX_BYTES
    }

    fn next_frame(&mut self) -> io::Result<Option<ToJob>> {
        if self.input.len() >= INPUT_MAX_BYTES {
            return Ok(None);
        }
        self.frames.to_job().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    fn obey(&mut self, frame: ToJob) {
        match frame {
            ToJob::Input(bytes) => {
                self.seat.shared.note_answer();
                self.input.extend_from_slice(&bytes);
            }
            ToJob::EndOfInput => {
                self.input.extend_from_slice(self.seat.shared.streams.end_of_input());
                self.input_ends = true;
            }
            ToJob::Resize(size) => self.resize(size, false),
            ToJob::Detach => {}
        }
    }

    fn give_input(&mut self) {
        let streams = &self.seat.shared.streams;
        while !self.input.is_empty() {
            let Some(to) = streams.input() else {
                // It has no input, or no more: what is typed goes nowhere.
                self.input.clear();
                break;
            };
            match rustix::io::write(&*to, &self.input) {
                Ok(wrote) => drop(self.input.drain(..wrote)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => {
                    streams.close_input();
                    self.input.clear();
                }
            }
        }
        if std::mem::take(&mut self.input_ends) {
            streams.close_input();
        }
    }

    fn give_output(&mut self) -> io::Result<Turn> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(wrote) => drop(self.output.drain(..wrote)),
                Err(error) if is_later(&error) => return Ok(Turn::Wait(None)),
                Err(error) => return Err(error),
            }
        }
        // Before the look: what comes after it wakes us.
        clear_event(&self.seat.wake);
        let piece = match self.seat.shared.attached.next(self.offset) {
            Next::Bytes(bytes) => bytes,
            Next::Nothing(None) => return Ok(Turn::Wait(None)),
            Next::Nothing(Some(end)) => return self.say_end(&end),
            Next::InLog { memory_starts } => match self.read_log(memory_starts) {
                Some(bytes) => bytes,
                None => return Ok(Turn::Wait(Some(LOOK_AGAIN))),
            },
        };
        self.output = FromJob::output(self.offset, &piece);
        self.offset += piece.len() as u64;
        Ok(Turn::Again)
    }

    /// What the log has at our offset; moves the offset past what it no longer has.
    fn read_log(&mut self, memory_starts: u64) -> Option<Vec<u8>> {
        let shared = &self.seat.shared;
        // Looked at first: what is not in the log after the end never will be.
        let ended = locked(&shared.attached.state).end.is_some();
        match logs::read(&shared.dir, self.offset, PIECE_BYTES) {
            Ok(chunk) if !chunk.bytes.is_empty() => {
                self.offset = chunk.offset;
                Some(chunk.bytes)
            }
            _ if ended => {
                self.offset = memory_starts;
                Some(Vec::new())
            }
            _ => None,
        }
    }

    fn say_end(&mut self, result: &[u8]) -> io::Result<Turn> {
        // The last words; whoever does not take them finds the result in its file.
        self.stream.set_nonblocking(false)?;
        self.stream.set_write_timeout(Some(FAREWELL))?;
        self.stream.write_all(&FromJob::end(result))?;
        Ok(Turn::Over)
    }

    fn wait(&self, at_most: Option<Duration>) -> io::Result<()> {
        let to = (!self.input.is_empty()).then(|| self.seat.shared.streams.input()).flatten();
        let mut socket = PollFlags::empty();
        socket.set(PollFlags::IN, self.may_hear());
        socket.set(PollFlags::OUT, !self.output.is_empty());
        let mut watched = vec![PollFd::new(&self.stream, socket)];
        // Who still has something to read needs no news of more.
        if self.output.is_empty() {
            watched.push(PollFd::new(&*self.seat.wake, PollFlags::IN));
        }
        if let Some(to) = &to {
            watched.push(PollFd::new(&**to, PollFlags::OUT));
        }
        let at_most = at_most.map(|wait| Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) });
        let _ = poll(&mut watched, at_most.as_ref());
        // Gone, and not to be found out by reading because the command has not taken its input yet.
        if !self.may_hear() && watched[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
            return Err(ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// The first beginning of a line at or after `offset`, if there is one nearby.
fn line_start(shared: &Shared, offset: u64) -> u64 {
    if offset == 0 {
        return 0;
    }
    let Ok(chunk) = logs::read(&shared.dir, offset, PIECE_BYTES) else { return offset };
    let line = chunk.bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    chunk.offset + line as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_bounded_and_says_what_only_the_log_has() {
        let attached = Attached::default();
        attached.tell(b"before anybody came");
        let seat = attached.enter().unwrap();
        assert_eq!(attached.next(0), Next::InLog { memory_starts: 19 });
        assert_eq!(attached.next(19), Next::Nothing(None));
        attached.tell(b"hello");
        assert_eq!(attached.next(21), Next::Bytes(b"llo".to_vec()));
        attached.tell(&vec![b'x'; RECENT_BYTES]);
        assert_eq!(attached.next(21), Next::InLog { memory_starts: 24 });
        assert!(matches!(attached.next(24), Next::Bytes(bytes) if bytes.len() == PIECE_BYTES));
        for _ in 1..CLIENTS_MAX {
            attached.enter().unwrap();
        }
        assert!(attached.enter().unwrap_err().contains("detach one"));
        attached.leave(&seat);
        attached.enter().unwrap();
    }
}
