//! The words between a supervisor and whoever is attached to its job, after the line `{"op":"attach"…}` on the control
//! socket: frames of a type byte, a length (32 bits, big-endian) and that many bytes. Both sides read them from here;
//! whatever is no frame costs the connection.

use std::io;
use std::time::Duration;

use parhelia_core::job::Terminal;
use serde_json::json;
use thiserror::Error;

use super::host::{Host, local_filesystem};
use super::jobdir::{JobDir, JobResult};
use super::lock::{LockState, query};
use super::{control, logs};
use crate::{LogChunk, ProviderError};

/// The longest payload that either side sends or takes.
pub const FRAME_MAX_BYTES: usize = 64 * 1024;
const HEAD_BYTES: usize = 5;

const INPUT: u8 = b'i';
const END_OF_INPUT: u8 = b'e';
const RESIZE: u8 = b'r';
const DETACH: u8 = b'd';
const OUTPUT: u8 = b'o';
const END: u8 = b'x';

/// What an attached client sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToJob {
    Input(Vec<u8>),
    EndOfInput,
    Resize(Terminal),
    Detach,
}

/// What the supervisor sends.
#[derive(Debug, Clone, PartialEq)]
pub enum FromJob {
    /// A piece of the output, and where in the whole it begins.
    Output { offset: u64, bytes: Vec<u8> },
    /// The job is over, with the content of its `result.json`; nothing follows.
    End(Box<JobResult>),
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("a frame of {0} bytes; at most {FRAME_MAX_BYTES} are taken")]
    TooLong(usize),
    #[error("a frame of the unknown type {0:#04x}")]
    UnknownType(u8),
    #[error("a frame of type '{kind}' with a content that it cannot have: {why}", kind = char::from(*.kind))]
    Content { kind: u8, why: String },
}

impl ToJob {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Input(bytes) => frame(INPUT, &[bytes]),
            Self::EndOfInput => frame(END_OF_INPUT, &[]),
            Self::Resize(size) => frame(RESIZE, &[&size.rows.to_be_bytes(), &size.cols.to_be_bytes()]),
            Self::Detach => frame(DETACH, &[]),
        }
    }

    fn decode(kind: u8, content: &[u8]) -> Result<Self, FrameError> {
        let wrong = |why: &str| FrameError::Content { kind, why: why.to_owned() };
        match kind {
            INPUT => Ok(Self::Input(content.to_vec())),
            END_OF_INPUT => Ok(Self::EndOfInput),
            RESIZE => match content {
                [a, b, c, d] => {
                    let (rows, cols) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
                    Ok(Self::Resize(Terminal { rows, cols }))
                }
                _ => Err(wrong("rows and columns have two bytes each")),
            },
            DETACH => Ok(Self::Detach),
            other => Err(FrameError::UnknownType(other)),
        }
    }
}

impl FromJob {
    pub fn output(offset: u64, bytes: &[u8]) -> Vec<u8> {
        frame(OUTPUT, &[&offset.to_be_bytes(), bytes])
    }

    /// `result`: what stands in `result.json`.
    pub fn end(result: &[u8]) -> Vec<u8> {
        frame(END, &[result])
    }

    fn decode(kind: u8, content: &[u8]) -> Result<Self, FrameError> {
        let wrong = |why: String| FrameError::Content { kind, why };
        match kind {
            OUTPUT => match content.split_first_chunk::<8>() {
                Some((offset, bytes)) => {
                    Ok(Self::Output { offset: u64::from_be_bytes(*offset), bytes: bytes.to_vec() })
                }
                None => Err(wrong("the offset has eight bytes".to_owned())),
            },
            END => {
                let result = serde_json::from_slice(content).map_err(|error| wrong(error.to_string()))?;
                Ok(Self::End(Box::new(result)))
            }
            other => Err(FrameError::UnknownType(other)),
        }
    }
}

fn frame(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut frame = Vec::with_capacity(HEAD_BYTES + length);
    frame.push(kind);
    frame.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    parts.iter().for_each(|part| frame.extend_from_slice(part));
    frame
}

/// Puts frames together from whatever pieces they come in.
#[derive(Debug, Default)]
pub struct Frames {
    kept: Vec<u8>,
}

impl Frames {
    pub fn new(kept: Vec<u8>) -> Self {
        Self { kept }
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
    }

    /// How much has come that was not taken yet.
    pub fn waiting_bytes(&self) -> usize {
        self.kept.len()
    }

    pub fn to_job(&mut self) -> Result<Option<ToJob>, FrameError> {
        self.next(ToJob::decode)
    }

    pub fn from_job(&mut self) -> Result<Option<FromJob>, FrameError> {
        self.next(FromJob::decode)
    }

    fn next<T>(
        &mut self,
        decode: impl FnOnce(u8, &[u8]) -> Result<T, FrameError>,
    ) -> Result<Option<T>, FrameError> {
        let Some(&[kind, a, b, c, d]) = self.kept.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > FRAME_MAX_BYTES {
            return Err(FrameError::TooLong(length));
        }
        let Some(content) = self.kept.get(HEAD_BYTES..HEAD_BYTES + length) else { return Ok(None) };
        let frame = decode(kind, content)?;
        self.kept.drain(..HEAD_BYTES + length);
        Ok(Some(frame))
    }
}

/// Has the supervisor pass a signal (`INT`, `TERM`, …) on. On a connection of its own: it must not wait behind input
/// that the command does not take.
pub fn send_signal(dir: &JobDir, name: &str) -> io::Result<()> {
    let request = json!({"op": "signal", "name": name});
    let answer = control::ask(&dir.control_socket(), &request, Duration::from_secs(5))?;
    match answer.get("error").and_then(serde_json::Value::as_str) {
        Some(why) => Err(io::Error::other(why.to_owned())),
        None => Ok(()),
    }
}

/// A piece of the output from `offset` on, as the log has it.
pub fn read_output(dir: &JobDir, offset: u64, max_bytes: usize) -> Result<LogChunk, ProviderError> {
    logs::read(dir, offset, max_bytes)
}

/// True when the lock proves that the supervisor is gone.
pub fn is_gone(dir: &JobDir) -> io::Result<bool> {
    let state = query(dir, &Host::this()?, &local_filesystem(dir.path())?)?;
    Ok(matches!(state, LockState::Free { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parhelia_fuzz::{Verdict, fuzz, says_something};

    #[test]
    fn frames_survive_being_cut_into_pieces() {
        let said = [
            ToJob::Input(b"hello\n".to_vec()),
            ToJob::Resize(Terminal { rows: 24, cols: 300 }),
            ToJob::EndOfInput,
            ToJob::Detach,
        ];
        let bytes: Vec<u8> = said.iter().flat_map(ToJob::encode).collect();
        for size in 1..bytes.len() {
            let mut frames = Frames::default();
            let mut heard = Vec::new();
            for piece in bytes.chunks(size) {
                frames.feed(piece);
                while let Some(frame) = frames.to_job().unwrap() {
                    heard.push(frame);
                }
            }
            assert_eq!(heard, said, "in pieces of {size}");
        }
        let mut frames = Frames::new(FromJob::output(1 << 40, b"text"));
        let output = FromJob::Output { offset: 1 << 40, bytes: b"text".to_vec() };
        assert_eq!(frames.from_job().unwrap(), Some(output));
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let refused = |bytes: &[u8]| Frames::new(bytes.to_vec()).to_job().unwrap_err().to_string();
        assert!(refused(b"i\xff\xff\xff\xff").contains("at most 65536"));
        assert!(refused(b"?\0\0\0\0").contains("unknown type 0x3f"));
        assert!(refused(b"r\0\0\0\x01x").contains("two bytes each"));
    }

    #[test]
    fn any_bytes_are_frames_or_an_error() {
        let seeds = ["i\0\0\0\x05hello", "r\0\0\0\x04\0\x18\0\x50", "o\0\0\0\x09\0\0\0\0\0\0\0\0x"];
        fuzz(&seeds, &["i", "e", "\0\0\0\0"], |input| {
            let mut frames = Frames::new(input.to_vec());
            let mut other = Frames::new(input.to_vec());
            match (frames.to_job(), other.from_job()) {
                (Ok(_), _) | (_, Ok(_)) => Verdict::Accepted,
                (Err(error), Err(_)) => says_something(&error),
            }
        });
    }
}
