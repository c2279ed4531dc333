//! Heartbeats to the server: measured, sent over the home's socket, and kept (a bounded number of them)
//! while nobody answers. Also the watch for idleness, because it needs the same measurements.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parhelia_core::heartbeat::Sample;
use parhelia_core::state::TerminationReason;
use parhelia_core::time::Clock;
use serde_json::json;

use super::usage::Meter;
use super::{Place, SECRET_FILE, Shared};
use crate::process::control::connect_unix;

/// An hour of beats; then the oldest go.
const KEPT_SAMPLES: usize = 120;
const SERVER_WAIT: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_secs(10);
const IDLE_GRACE_SECONDS: u64 = 10;
/// However often it is poked.
const LEAST_PAUSE: Duration = Duration::from_millis(100);

/// Beats, and watches for idleness, until the process ends.
pub(super) fn keep(shared: &Shared) {
    let mut meter = Meter::new(shared);
    let secret = match shared.place {
        Place::Container => fs::read_to_string(SECRET_FILE).ok().map(|text| text.trim().to_owned()),
        // The home's own socket asks nobody: its file mode does.
        Place::Host => None,
    };
    let mut outbox = Outbox::new(shared.spec.home.join("parhelia.sock"), secret);
    let idle_after = shared.spec.sandbox.idle_timeout_seconds.map(Duration::from_secs);
    let look = idle_after.map_or(LOOK, |idle| (idle / 4).clamp(Duration::from_millis(250), LOOK));
    let mut beat_at = Duration::ZERO;
    let mut beaten_at = Duration::ZERO;
    loop {
        meter.look(shared);
        let now = shared.clock.monotonic();
        if let Some(idle) = idle_after.filter(|idle| shared.since_progress() >= *idle) {
            let message = format!("no output and no CPU use for {} s (its idle timeout)", idle.as_secs());
            shared.ask_stop(IDLE_GRACE_SECONDS, TerminationReason::IdleTimeout, message);
        }
        if now >= beat_at {
            outbox.add(now, meter.sample(shared));
            outbox.send(now);
            beat_at = now + shared.heartbeat_interval();
            beaten_at = now;
        }
        let until_beat = beat_at.saturating_sub(shared.clock.monotonic());
        if shared.beats.wait(until_beat.min(look)) {
            beat_at = beaten_at + LEAST_PAUSE;
        }
    }
}

/// Samples that the server has not acknowledged, oldest first, with when they were taken.
struct Outbox {
    socket: PathBuf,
    secret: Option<String>,
    kept: VecDeque<(Duration, Sample)>,
}

impl Outbox {
    fn new(socket: PathBuf, secret: Option<String>) -> Self {
        Self { socket, secret, kept: VecDeque::new() }
    }

    fn add(&mut self, now: Duration, sample: Sample) {
        if self.kept.len() == KEPT_SAMPLES {
            self.kept.pop_front();
        }
        self.kept.push_back((now, sample));
    }

    fn send(&mut self, now: Duration) {
        let beats: Vec<Sample> =
            self.kept.iter().map(|(taken, sample)| delayed(sample, *taken, now)).collect();
        if let Ok(status) = post(&self.socket, self.secret.as_deref(), &json!({"heartbeats": beats})) {
            self.settle(status);
        }
    }

    fn settle(&mut self, status: u16) {
        match status {
            200 | 202 => self.kept.clear(),
            // It knows the container not, or not yet: old samples of it will never be wanted.
            404 | 422 => drop(self.kept.drain(..self.kept.len().saturating_sub(1))),
            _ => {}
        }
    }
}

/// Its age by our own monotonic clock, so that sender and receiver need no common time.
fn delayed(sample: &Sample, taken: Duration, now: Duration) -> Sample {
    let seconds = now.saturating_sub(taken).as_secs_f64();
    Sample { delayed_seconds: (seconds >= 0.5).then_some(seconds), ..sample.clone() }
}

/// One request on one connection; the status of its answer.
fn post(socket: &Path, secret: Option<&str>, body: &serde_json::Value) -> io::Result<u16> {
    let mut stream = connect_unix(socket)?;
    stream.set_read_timeout(Some(SERVER_WAIT))?;
    stream.set_write_timeout(Some(SERVER_WAIT))?;
    let body = body.to_string();
    let proof = secret.map(|secret| format!("Authorization: Bearer {secret}\r\n")).unwrap_or_default();
    let head = format!(
        "POST /api/v1/heartbeats HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         {proof}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = Vec::new();
    let mut chunk = [0; 512];
    while !answer.contains(&b'\n') && answer.len() < 4096 {
        match stream.read(&mut chunk)? {
            0 => break,
            got => answer.extend_from_slice(&chunk[..got]),
        }
    }
    status(&answer).ok_or_else(|| io::Error::other("the server's answer is not HTTP"))
}

fn status(answer: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(answer.split(|byte| *byte == b'\n').next()?).ok()?;
    let mut words = line.split_ascii_whitespace();
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parhelia_core::ids::ContainerId;

    fn outbox(samples: usize) -> Outbox {
        let mut outbox = Outbox::new("/nowhere/parhelia.sock".into(), None);
        for i in 0..samples {
            let id = ContainerId::parse("c-01k9z3q8xw4f7m2a").unwrap();
            outbox.add(Duration::from_secs(30 * i as u64), Sample::bare(id));
        }
        outbox
    }

    #[test]
    fn while_nobody_answers_the_newest_are_kept_with_their_age() {
        let mut outbox = outbox(KEPT_SAMPLES + 5);
        outbox.send(Duration::from_secs(10_000));
        assert_eq!(outbox.kept.len(), KEPT_SAMPLES);
        let (taken, oldest) = &outbox.kept[0];
        assert_eq!(taken.as_secs(), 150);
        let sent = delayed(oldest, *taken, Duration::from_secs(200));
        assert_eq!(sent.delayed_seconds, Some(50.0));
        assert_eq!(sent.timestamp, None);
    }

    #[test]
    fn each_answer_settles_what_it_should() {
        for (status, left) in [(200, 0), (202, 0), (404, 1), (422, 1), (500, 3), (503, 3), (401, 3)] {
            let mut outbox = outbox(3);
            outbox.settle(status);
            assert_eq!(outbox.kept.len(), left, "{status}");
        }
    }

    #[test]
    fn only_http_has_a_status() {
        assert_eq!(status(b"HTTP/1.1 202 Accepted\r\n"), Some(202));
        assert_eq!(status(b"hello 202\r\n"), None);
        assert_eq!(status(b""), None);
    }
}
