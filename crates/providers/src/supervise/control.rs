//! `ctl.sock`, protocol v1: one JSON object per line. A connection is greeted, may ask for a stop, a
//! heartbeat or a sign of life, may become an attachment (`attach`), and learns of the supervisor's end by its end of file. One thread serves
//! all of them without blocking; whatever is too long, too many or nonsense costs that connection only.

use std::fs::DirBuilder;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use parhelia_core::state::TerminationReason;
use rustix::event::{PollFd, PollFlags, poll};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Shared, attach, locked, log, signals};
use crate::process::jobdir::PROTOCOL;

const CLIENTS_MAX: usize = 64;
const LINE_MAX_BYTES: usize = 64 * 1024;
const DEFAULT_GRACE_SECONDS: u64 = 10;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    op: String,
    grace_seconds: Option<u64>,
    reason: Option<String>,
    percent: Option<f64>,
    name: Option<String>,
    #[serde(flatten)]
    attach: attach::Ask,
}

/// Without a socket the job still runs: `.stop` is looked at in any case.
pub(super) fn bind(shared: &Shared) -> Option<UnixListener> {
    let (path, elsewhere) = shared.dir.control_socket_to_make(&shared.spec.home, shared.spec.job_id);
    let listen = || -> io::Result<UnixListener> {
        if elsewhere {
            if let Some(parent) = path.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            }
            std::fs::write(shared.dir.control_path_file(), path.as_os_str().as_encoded_bytes())?;
        }
        // Left by a start that was proven not to have happened: the lock is ours.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    listen()
        .inspect_err(|error| {
            log(&format!("no control socket at {}: {error}; stops come by file", path.display()))
        })
        .ok()
}

pub(super) fn remove(shared: &Shared) {
    let _ = std::fs::remove_file(shared.dir.control_socket());
}

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    kept: Vec<u8>,
}

pub(super) fn serve(listener: &UnixListener, shared: &Arc<Shared>) {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let ready: Vec<bool> = {
            let mut watched = vec![PollFd::new(listener, PollFlags::IN)];
            watched.extend(clients.iter().map(|client| PollFd::new(&client.stream, PollFlags::IN)));
            if poll(&mut watched, None).is_err() {
                continue;
            }
            watched.iter().map(|fd| !fd.revents().is_empty()).collect()
        };
        let mut ready_clients = ready.iter().skip(1);
        clients.retain_mut(|client| match ready_clients.next() {
            Some(true) => matches!(client.answer(shared), Ok(Stays::Here)),
            _ => true,
        });
        if ready.first() == Some(&true) {
            accept(listener, shared, &mut clients);
        }
    }
}

fn accept(listener: &UnixListener, shared: &Shared, clients: &mut Vec<Client>) {
    let stream = match listener.accept() {
        Ok((stream, _)) => stream,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return,
        Err(_) => {
            // Out of descriptors: the connection stays in the backlog, so do not spin on it.
            std::thread::sleep(std::time::Duration::from_millis(200));
            return;
        }
    };
    if stream.set_nonblocking(true).is_err() {
        return;
    }
    let mut client = Client { stream, kept: Vec::new() };
    if clients.len() >= CLIENTS_MAX {
        let _ = client.say(&json!({"error": format!("at most {CLIENTS_MAX} connections; close one")}));
        return;
    }
    let greeting =
        json!({"protocol": PROTOCOL, "jobId": shared.spec.job_id, "version": parhelia_core::VERSION});
    if client.say(&greeting).is_ok() {
        clients.push(client);
        // Whoever connects may be a server that was away.
        shared.beats.poke();
    }
}

/// Whose connection it is after an answer.
enum Stays {
    Here,
    /// It is attached now, and another thread's.
    Elsewhere,
}

impl Client {
    /// An error closes the connection.
    fn answer(&mut self, shared: &Arc<Shared>) -> io::Result<Stays> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(got) => self.kept.extend_from_slice(&chunk[..got]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(Stays::Here);
            }
            Err(error) => return Err(error),
        }
        while let Some(end) = self.kept.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.kept.drain(..=end).collect();
            let request: Request = serde_json::from_slice(&line).map_err(io::Error::other)?;
            if request.op == "attach" {
                // What follows the line is not lines any more.
                let kept = std::mem::take(&mut self.kept);
                match attach::begin(shared, &self.stream, kept, &request.attach) {
                    Ok(()) => return Ok(Stays::Elsewhere),
                    Err(why) => {
                        self.say(&json!({"error": why}))?;
                        return Err(io::Error::other(why));
                    }
                }
            }
            self.say(&obey(request, shared))?;
        }
        if self.kept.len() > LINE_MAX_BYTES {
            return Err(io::Error::other("the line has no end"));
        }
        Ok(Stays::Here)
    }

    /// A client that does not read its answers is let go.
    fn say(&mut self, answer: &Value) -> io::Result<()> {
        self.stream.write_all(format!("{answer}\n").as_bytes())
    }
}

fn obey(request: Request, shared: &Shared) -> Value {
    match request.op.as_str() {
        "stop" => {
            let reason =
                request.reason.and_then(|word| word.parse().ok()).unwrap_or(TerminationReason::Manual);
            let grace_seconds = request.grace_seconds.unwrap_or(DEFAULT_GRACE_SECONDS);
            shared.ask_stop(grace_seconds, reason, "it was asked to stop".to_owned());
            json!({"ok": true})
        }
        "ping" => json!({"ok": true, "protocol": PROTOCOL}),
        "beat" => {
            shared.beats.poke();
            json!({"ok": true})
        }
        "signal" => {
            let name = request.name.unwrap_or_default();
            match signals::that_may_be_passed_on(&name) {
                Some(signal) => {
                    shared.pass_on(signal);
                    json!({"ok": true})
                }
                None => {
                    let shown: String = name.chars().take(60).collect();
                    json!({"error": format!("the signal '{shown}' is not passed on; ask for an end with 'stop'")})
                }
            }
        }
        // Something in the job says how far it is.
        "progress" => {
            *locked(&shared.progress_percent) = request.percent.map(|percent| percent.clamp(0.0, 100.0));
            shared.note_progress();
            shared.note_answer();
            shared.sentinel.poke();
            json!({"ok": true})
        }
        other => {
            let shown: String = other.chars().take(60).collect();
            json!({"error": format!("'{shown}' is not known here; use one of: stop, ping, beat, progress, signal, attach")})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parhelia_fuzz::{Verdict, fuzz, says_something};

    #[test]
    fn whatever_comes_over_the_socket_is_a_request_or_an_error() {
        let seeds = [
            r#"{"op": "stop", "graceSeconds": 10, "reason": "manual"}"#,
            r#"{"op": "ping"}"#,
            r#"{"op": "progress", "percent": 12.5}"#,
        ];
        fuzz(&seeds, &["stop", "ping", "beat", "progress", "oom"], |line| {
            match serde_json::from_slice::<Request>(line) {
                Ok(request) => {
                    let _ = request.reason.and_then(|word| word.parse::<TerminationReason>().ok());
                    assert!(
                        request.percent.is_none_or(|percent| !percent.is_nan()),
                        "a share that is no number"
                    );
                    Verdict::Accepted
                }
                Err(error) => says_something(&error),
            }
        });
    }
}
