//! The client's side of a supervisor's control socket. Every step has a bound: a frozen supervisor, or a
//! full backlog, costs a moment and never a thread.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Connects or fails at once: the standard library's connect waits for ever at a full backlog.
pub(crate) fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Sends one request and waits for its one-line answer.
pub(crate) fn ask(path: &Path, request: &serde_json::Value, wait: Duration) -> io::Result<serde_json::Value> {
    let mut stream = connect_unix(path)?;
    stream.set_read_timeout(Some(wait))?;
    stream.set_write_timeout(Some(wait))?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut lines = Lines { stream, kept: Vec::new() };
    lines.next()?; // the greeting
    lines.next()
}

struct Lines {
    stream: UnixStream,
    kept: Vec<u8>,
}

impl Lines {
    fn next(&mut self) -> io::Result<serde_json::Value> {
        loop {
            if let Some(end) = self.kept.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.kept.drain(..=end).collect();
                return serde_json::from_slice(&line).map_err(io::Error::other);
            }
            if self.kept.len() > 64 * 1024 {
                return Err(io::Error::other("the answer has no end"));
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                got => self.kept.extend_from_slice(&chunk[..got]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parhelia_fuzz::{Verdict, fuzz, says_something};

    #[test]
    fn a_supervisor_may_answer_anything() {
        let seeds = [
            "{\"protocol\": 1, \"jobId\": \"a3bb189e-8bf9-3888-9912-ace4e6543002\", \"version\": \"0.1.0\"}\n{\"ok\": true}\n",
            "{\"protocol\": 1}\n{\"error\": \"'x' is not known here\"}\n",
        ];
        fuzz(&seeds, &["\n", "{}", "{\"ok\": true}"], |input| {
            let (stream, mut other) = UnixStream::pair().unwrap();
            other.write_all(input).unwrap();
            drop(other);
            let mut lines = Lines { stream, kept: Vec::new() };
            match lines.next().and_then(|_greeting| lines.next()) {
                Ok(_) => Verdict::Accepted,
                Err(error) => says_something(&error),
            }
        });
    }
}
