//! The command's standard streams: pipes, or a pseudo-terminal when the job asks for one. Our ends never block.
//! The terminal's other end stays open here too: what closes it meanwhile must not look like the end of the output.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use parhelia_core::job::{JobAsk, Terminal};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{InputModes, OptionalActions, Winsize, tcgetattr, tcgetpgrp, tcsetattr, tcsetwinsize};

use super::locked;
use crate::process::procs;

/// What a terminal takes for the end of the input.
const END_OF_TEXT: &[u8] = &[4];

/// Our ends.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) output: OwnedFd,
    input: Input,
}

#[derive(Debug)]
enum Input {
    Nothing,
    /// `None` after the end of the input.
    Pipe(Mutex<Option<Arc<OwnedFd>>>),
    Terminal {
        controller: Arc<OwnedFd>,
        device: OwnedFd,
    },
}

/// The command's ends.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) is_terminal: bool,
}

pub(super) fn open(ask: Option<&JobAsk>) -> io::Result<(Streams, Ends)> {
    match ask.and_then(|ask| ask.terminal) {
        Some(size) => open_terminal(size),
        None => open_pipes(ask.is_some_and(|ask| ask.stdin)),
    }
}

fn open_pipes(with_input: bool) -> io::Result<(Streams, Ends)> {
    let (output, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    set_nonblocking(&output)?;
    let (stdin, input) = if with_input {
        let (stdin, input) = pipe_with(PipeFlags::CLOEXEC)?;
        set_nonblocking(&input)?;
        (stdin, Input::Pipe(Mutex::new(Some(Arc::new(input)))))
    } else {
        (File::open("/dev/null")?.into(), Input::Nothing)
    };
    let ends = Ends { stdin, stderr: stdout.try_clone()?, stdout, is_terminal: false };
    Ok((Streams { output, input }, ends))
}

fn open_terminal(size: Terminal) -> io::Result<(Streams, Ends)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let controller = openpt(flags)?;
    grantpt(&controller)?;
    unlockpt(&controller)?;
    let device = ioctl_tiocgptpeer(&controller, flags)?;
    let mut modes = tcgetattr(&device)?;
    modes.input_modes |= InputModes::IUTF8;
    tcsetattr(&device, OptionalActions::Now, &modes)?;
    set_nonblocking(&controller)?;
    let ends = Ends {
        stdin: device.try_clone()?,
        stdout: device.try_clone()?,
        stderr: device.try_clone()?,
        is_terminal: true,
    };
    let output = controller.try_clone()?;
    let streams = Streams { output, input: Input::Terminal { controller: Arc::new(controller), device } };
    streams.resize(size);
    Ok((streams, ends))
}

fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?)
}

impl Streams {
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self.input, Input::Terminal { .. })
    }

    /// Where input goes; `None` when there is none or it has ended.
    pub(super) fn input(&self) -> Option<Arc<OwnedFd>> {
        match &self.input {
            Input::Nothing => None,
            Input::Pipe(pipe) => locked(pipe).clone(),
            Input::Terminal { controller, .. } => Some(controller.clone()),
        }
    }

    /// Nobody reads it any more, or somebody said that there will be no more.
    pub(super) fn close_input(&self) {
        if let Input::Pipe(pipe) = &self.input {
            locked(pipe).take();
        }
    }

    /// How the end of the input is said: with a pipe by closing it, with a terminal by a byte.
    pub(super) fn end_of_input(&self) -> &'static [u8] {
        if self.is_terminal() { END_OF_TEXT } else { &[] }
    }

    /// True when that was its size already, so that its programs hear nothing of it.
    pub(super) fn resize(&self, size: Terminal) -> bool {
        let Input::Terminal { controller, .. } = &self.input else { return false };
        if size.rows == 0 || size.cols == 0 {
            return false;
        }
        let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
        let before = rustix::termios::tcgetwinsize(controller.as_fd());
        let _ = tcsetwinsize(controller.as_fd(), size);
        before.is_ok_and(|before| (before.ws_row, before.ws_col) == (size.ws_row, size.ws_col))
    }

    /// The processes that the terminal's keys would reach; `None` without a terminal.
    pub(super) fn signal_foreground(&self, signal: Signal, tree: &[procs::Proc]) -> Option<()> {
        let Input::Terminal { controller, device } = &self.input else { return None };
        let group = tcgetpgrp(controller.as_fd()).or_else(|_| tcgetpgrp(device)).ok()?.as_raw_nonzero().get();
        for seen in tree.iter().filter(|seen| seen.group == group) {
            let _ = procs::signal(seen, signal);
        }
        Some(())
    }
}
