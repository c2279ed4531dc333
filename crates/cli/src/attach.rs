//! Attached to a job of this machine, straight at its supervisor: the server may come and go meanwhile. Output comes
//! from the supervisor while there is one, and from the job's own files otherwise, each byte once; the exit code is the
//! job's.

use std::io;
use std::path::Path;
use std::time::Duration;

use parhelia_core::job::Terminal;
use parhelia_providers::process::attach::{Frames, FromJob, ToJob, is_gone, read_output, send_signal};
use parhelia_providers::process::jobdir::{JobDir, JobResult, read_json};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::context::Context;
use crate::error::{CliError, Result};
use crate::terminal::{self, DetachKeys, Modes, Raw, Typed, Typing};

/// What somebody who comes back is shown of what was said before.
const TAIL_BYTES: u64 = 16 * 1024;
const PIECE_BYTES: usize = 32 * 1024;
/// Between two looks at a job that cannot be talked to.
const LOOK: Duration = Duration::from_millis(5);
const LOOK_LATER: Duration = Duration::from_millis(100);
/// For what is on its way when somebody detaches.
const FAREWELL: Duration = Duration::from_secs(1);
/// A supervisor answers at once.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Options {
    /// For messages, and to come back to.
    pub(crate) job: String,
    /// Everything from the beginning; otherwise the last of it.
    pub(crate) from_start: bool,
    pub(crate) stdin: bool,
    pub(crate) detach_keys: DetachKeys,
    /// We are the command's foreground: what ends us is meant for it. Otherwise it only makes us leave.
    pub(crate) in_foreground: bool,
}

/// The first line of the supervisor's answer.
#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    end: u64,
    #[serde(default)]
    terminal: bool,
    #[serde(default)]
    input: bool,
}

/// How one connection to a supervisor ended.
#[derive(Debug)]
enum Left {
    /// The job is over.
    Over(Box<JobResult>),
    Detached,
    /// We were told to end, by this signal.
    Told(i32),
    /// The connection broke: the job's files say why.
    Broken,
}

/// Until the job is over or its person leaves. Gives the exit code for this program.
pub(crate) async fn run(ctx: &Context, dir: &Path, options: &Options) -> Result<i32> {
    let dir = JobDir::at(dir);
    ctx.pass_signals_on();
    let mut session = Session::new(options)?;
    let mut look = LOOK;
    loop {
        if let Some(result) = result(&dir)? {
            session.say_rest(&dir).await?;
            return Ok(over(ctx, &result));
        }
        match UnixStream::connect(dir.control_socket()).await {
            Ok(stream) => match session.stay(&dir, stream).await? {
                Left::Over(result) => return Ok(over(ctx, &result)),
                Left::Detached => {
                    ctx.out.note(&format!("detached; 'parhelia jobs attach {}' comes back", options.job));
                    return Ok(0);
                }
                Left::Told(signal) => {
                    ctx.out.note(&format!(
                        "left; the job goes on: 'parhelia jobs attach {}' comes back",
                        options.job
                    ));
                    return Ok(128 + signal);
                }
                Left::Broken => {}
            },
            // A moment before its end, or after its death.
            Err(_) => {
                let gone = is_gone(&dir).map_err(|e| {
                    CliError::io(format!("cannot tell whether job {} lives", options.job), &e)
                })?;
                if gone && result(&dir)?.is_none() {
                    session.say_rest(&dir).await?;
                    return Err(lost(options));
                }
            }
        }
        tokio::time::sleep(look).await;
        look = (look * 2).min(LOOK_LATER);
    }
}

fn result(dir: &JobDir) -> Result<Option<JobResult>> {
    read_json(&dir.result()).map_err(|error| CliError::failure("result", error.to_string()))
}

fn over(ctx: &Context, result: &JobResult) -> i32 {
    // What it did not say itself: that it could not be started, that its time was over, who ended it.
    if let Some(message) = &result.message {
        ctx.out.note(message);
    }
    result.shell_code()
}

fn lost(options: &Options) -> CliError {
    let job = &options.job;
    CliError::failure(
        "supervisor_lost",
        format!(
            "the supervisor of job {job} was killed, and everything of the job with it; there is no result"
        ),
    )
    .fix(format!("see 'parhelia jobs show {job}'; 'parhelia jobs resume {job}' starts it again"))
}

/// What outlives a broken connection.
struct Session<'a> {
    options: &'a Options,
    signals: Signals,
    /// Where the output goes; `None` when nobody takes it any more.
    output: Option<mpsc::Sender<Vec<u8>>>,
    printer: Option<tokio::task::JoinHandle<io::Result<()>>>,
    /// Where to go on; `None` before the first connection.
    offset: Option<u64>,
    modes: Modes,
    typed: Typed,
    typing: Option<mpsc::Receiver<Vec<u8>>>,
    input_ended: bool,
    raw: Option<Raw>,
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    quit: Signal,
    resized: Signal,
}

impl<'a> Session<'a> {
    fn new(options: &'a Options) -> Result<Self> {
        let listen = |kind| signal(kind).map_err(|e| CliError::io("cannot listen for signals", &e));
        let signals = Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
            quit: listen(SignalKind::quit())?,
            resized: listen(SignalKind::window_change())?,
        };
        let (output, printer) = print();
        Ok(Self {
            options,
            signals,
            output: Some(output),
            printer: Some(printer),
            offset: options.from_start.then_some(0),
            modes: Modes::default(),
            typed: Typed::new(&options.detach_keys),
            typing: None,
            input_ended: false,
            raw: None,
        })
    }

    /// One connection, from its beginning to its end.
    async fn stay(&mut self, dir: &JobDir, stream: UnixStream) -> Result<Left> {
        let (reading, mut writing) = stream.into_split();
        let mut reading = BufReader::new(reading);
        let hands = tokio::time::timeout(PATIENCE, self.shake_hands(&mut reading, &mut writing)).await;
        let answer = match hands {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => return Ok(Left::Broken),
            Err(_) => {
                let message = format!("the supervisor of job {} does not answer", self.options.job);
                return Err(CliError::timeout(message));
            }
        };
        if let Some(why) = answer.error {
            let job = &self.options.job;
            return Err(CliError::failure("cannot_attach", format!("cannot attach to job {job}: {why}"))
                .fix(format!("'parhelia jobs logs -f {job}' follows its output")));
        }
        let interactive = answer.terminal && self.options.stdin && terminal::is_interactive();
        if interactive && self.raw.is_none() {
            let raw = Raw::begin().map_err(|e| CliError::io("cannot prepare the terminal", &e))?;
            self.raw = Some(raw);
        }
        self.offset = Some(answer.offset);
        let left = self.follow(dir, reading, writing, &answer, interactive).await?;
        if !matches!(left, Left::Broken) {
            self.finish_printing().await?;
            self.leave_terminal();
        }
        Ok(left)
    }

    async fn shake_hands(
        &self,
        reading: &mut BufReader<OwnedReadHalf>,
        writing: &mut OwnedWriteHalf,
    ) -> io::Result<Answer> {
        let mut line = String::new();
        reading.read_line(&mut line).await?;
        let size = if terminal::is_interactive() { terminal::size() } else { None };
        let ask = json!({
            "op": "attach",
            "offset": self.offset,
            "tail": TAIL_BYTES,
            "rows": size.map(|size| size.rows),
            "cols": size.map(|size| size.cols),
        });
        writing.write_all(format!("{ask}\n").as_bytes()).await?;
        line.clear();
        reading.read_line(&mut line).await?;
        serde_json::from_str(&line).map_err(io::Error::other)
    }

    async fn follow(
        &mut self,
        dir: &JobDir,
        mut reading: BufReader<OwnedReadHalf>,
        writing: OwnedWriteHalf,
        answer: &Answer,
        interactive: bool,
    ) -> Result<Left> {
        let (to_job, sender) = send(writing);
        let mut frames = Frames::default();
        let mut chunk = vec![0; PIECE_BYTES];
        let mut unprinted = None;
        // A terminal answers questions that are only repeated to it; those answers are for nobody.
        let mut caught_up = !interactive || self.options.from_start;
        loop {
            if !caught_up && self.offset.is_some_and(|at| at >= answer.end) {
                terminal::forget_typed();
                caught_up = true;
            }
            let listens = self.options.stdin && answer.input && caught_up && !self.input_ended;
            if listens && self.typing.is_none() {
                self.typing = Some(read_typing());
            }
            // Nothing more is taken from the job before this is on its way.
            while unprinted.is_none()
                && let Some(frame) = frames.from_job().map_err(nonsense)?
            {
                match frame {
                    FromJob::Output { offset, bytes } => unprinted = self.accept(offset, bytes),
                    FromJob::End(result) => return Ok(Left::Over(result)),
                }
            }
            tokio::select! {
                room = room(self.output.clone()), if unprinted.is_some() => {
                    match (room, unprinted.take()) {
                        (Some(room), Some(bytes)) => drop(room.send(bytes)),
                        _ => self.reader_gone(dir).await?,
                    }
                }
                got = reading.read(&mut chunk), if unprinted.is_none() => match got {
                    Ok(0) | Err(_) => return Ok(Left::Broken),
                    Ok(got) => frames.feed(&chunk[..got]),
                },
                // Only as much is read as the job takes.
                typed = next_typed(&mut self.typing, to_job.clone()), if listens => {
                    match typed {
                        Some((bytes, room)) => if self.pass_typed(&bytes, room, interactive) {
                            // What was typed before the keys is still for the job.
                            drop(to_job);
                            let _ = tokio::time::timeout(FAREWELL, sender).await;
                            return Ok(Left::Detached);
                        },
                        None => {
                            self.input_ended = true;
                            let _ = to_job.send(ToJob::EndOfInput.encode()).await;
                        }
                    }
                }
                _ = self.signals.resized.recv() => if let Some(size) = terminal::size() {
                    let _ = to_job.try_send(ToJob::Resize(Terminal { rows: size.rows, cols: size.cols }).encode());
                },
                _ = self.signals.interrupt.recv() => if let Some(left) = self.told(dir, "INT", 2, interactive) {
                    return Ok(left);
                },
                _ = self.signals.terminate.recv() => if let Some(left) = self.told(dir, "TERM", 15, interactive) {
                    return Ok(left);
                },
                _ = self.signals.hangup.recv() => if let Some(left) = self.told(dir, "HUP", 1, interactive) {
                    return Ok(left);
                },
                _ = self.signals.quit.recv() => if let Some(left) = self.told(dir, "QUIT", 3, interactive) {
                    return Ok(left);
                },
            }
        }
    }

    /// True when the keys to detach were among it.
    fn pass_typed(&mut self, bytes: &[u8], to_job: mpsc::OwnedPermit<Vec<u8>>, interactive: bool) -> bool {
        if !interactive {
            to_job.send(ToJob::Input(bytes.to_vec()).encode());
            return false;
        }
        let (bytes, detaches) = match self.typed.take(bytes) {
            Typing::ForJob(bytes) => (bytes, false),
            Typing::Detach(bytes) => (bytes, true),
        };
        if !bytes.is_empty() {
            to_job.send(ToJob::Input(bytes).encode());
        }
        detaches
    }

    /// A signal to this program: for the job if we stand for it, else for us, terminal or not. With a terminal the keys
    /// go to the job by themselves, and what comes here is the end of the terminal.
    fn told(&self, dir: &JobDir, name: &'static str, number: i32, interactive: bool) -> Option<Left> {
        if interactive || !self.options.in_foreground {
            return Some(Left::Told(number));
        }
        pass_on(dir, name);
        None
    }

    /// What of it is to be printed.
    fn accept(&mut self, offset: u64, bytes: Vec<u8>) -> Option<Vec<u8>> {
        self.offset = Some(offset + bytes.len() as u64);
        self.modes.watch(&bytes);
        self.output.is_some().then_some(bytes)
    }

    /// Nobody reads us: the job would have been told so by this signal, had it been here.
    async fn reader_gone(&mut self, dir: &JobDir) -> Result<()> {
        if self.output.is_some() && self.options.in_foreground {
            pass_on(dir, "PIPE");
        }
        self.finish_printing().await
    }

    /// Waits until all is printed. A reader that is gone is no error.
    async fn finish_printing(&mut self) -> Result<()> {
        self.output = None;
        if let Some(printer) = self.printer.take()
            && let Ok(Err(error)) = printer.await
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            return Err(CliError::output(error));
        }
        Ok(())
    }

    /// What is in the log after all that was printed.
    async fn say_rest(&mut self, dir: &JobDir) -> Result<()> {
        let mut offset = match self.offset {
            Some(offset) => offset,
            None => tail_of(dir)?,
        };
        loop {
            let chunk = read_output(dir, offset, PIECE_BYTES)
                .map_err(|error| CliError::failure("output", error.to_string()))?;
            let finished = chunk.bytes.is_empty();
            offset = chunk.next_offset;
            if finished {
                break;
            }
            if let (Some(bytes), Some(output)) = (self.accept(chunk.offset, chunk.bytes), &self.output)
                && output.send(bytes).await.is_err()
            {
                break;
            }
        }
        self.finish_printing().await?;
        self.leave_terminal();
        Ok(())
    }

    /// As it was before, also when the program is left in the middle or was killed.
    fn leave_terminal(&mut self) {
        if self.raw.take().is_some() {
            self.modes.undo();
        }
    }
}

/// Where the last of the output of a job that is over begins.
fn tail_of(dir: &JobDir) -> Result<u64> {
    let end =
        read_output(dir, u64::MAX, 1).map_err(|error| CliError::failure("output", error.to_string()))?;
    Ok(end.next_offset.saturating_sub(TAIL_BYTES))
}

fn nonsense(error: parhelia_providers::process::attach::FrameError) -> CliError {
    CliError::failure("unexpected_answer", format!("the supervisor said something unexpected: {error}"))
}

/// On a thread of its own: a supervisor that hangs must not hold us.
fn pass_on(dir: &JobDir, name: &'static str) {
    let dir = dir.clone();
    // Nothing can be done if the job has just ended.
    tokio::task::spawn_blocking(move || drop(send_signal(&dir, name)));
}

/// Writes to standard output, a few pieces behind at most.
fn print() -> (mpsc::Sender<Vec<u8>>, tokio::task::JoinHandle<io::Result<()>>) {
    let (sender, mut pieces) = mpsc::channel::<Vec<u8>>(4);
    let printer = tokio::spawn(async move {
        let mut out = tokio::io::stdout();
        while let Some(piece) = pieces.recv().await {
            out.write_all(&piece).await?;
            out.flush().await?;
        }
        Ok(())
    });
    (sender, printer)
}

/// Writes to the supervisor, a few frames behind at most. Ends when it is gone.
fn send(mut writing: OwnedWriteHalf) -> (mpsc::Sender<Vec<u8>>, tokio::task::JoinHandle<()>) {
    let (to_job, mut frames) = mpsc::channel::<Vec<u8>>(4);
    let sender = tokio::spawn(async move {
        while let Some(frame) = frames.recv().await {
            if writing.write_all(&frame).await.is_err() {
                return;
            }
        }
    });
    (to_job, sender)
}

/// `None` when nobody takes it any more.
async fn room(output: Option<mpsc::Sender<Vec<u8>>>) -> Option<mpsc::OwnedPermit<Vec<u8>>> {
    output?.reserve_owned().await.ok()
}

/// What is typed next, once there is room for it. `None` at the end of the input.
async fn next_typed(
    typing: &mut Option<mpsc::Receiver<Vec<u8>>>,
    to_job: mpsc::Sender<Vec<u8>>,
) -> Option<(Vec<u8>, mpsc::OwnedPermit<Vec<u8>>)> {
    let Ok(permit) = to_job.reserve_owned().await else {
        // The connection is ending; its reader will say so.
        return std::future::pending().await;
    };
    let bytes = typing.as_mut()?.recv().await?;
    Some((bytes, permit))
}

/// Standard input, read by a thread that is left behind at the end: nothing can call it back from a read.
fn read_typing() -> mpsc::Receiver<Vec<u8>> {
    let (sender, typing) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut chunk = vec![0; PIECE_BYTES];
        loop {
            match rustix::io::read(rustix::stdio::stdin(), &mut chunk) {
                Ok(0) | Err(_) => return,
                Ok(got) if sender.blocking_send(chunk[..got].to_vec()).is_err() => return,
                Ok(_) => {}
            }
        }
    });
    typing
}
