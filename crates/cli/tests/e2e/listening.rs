//! A client of the live events that is written from the specification alone: it reads the wire, block by block,
//! and can break off anywhere.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use serde_json::Value;

use crate::harness::{Home, PATIENCE};

/// One block of a stream: what stands between two empty lines.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Block {
    pub(crate) id: Option<i64>,
    pub(crate) event: String,
    pub(crate) data: String,
    pub(crate) comment: String,
    pub(crate) retry: Option<u64>,
}

impl Block {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|e| panic!("no JSON ({e}): {self:?}"))
    }

    /// An event of the history, and not a word about the stream itself.
    pub(crate) fn is_event(&self) -> bool {
        !self.data.is_empty() && !matches!(self.event.as_str(), "snapshot" | "reset" | "resume")
    }
}

pub(crate) trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

pub(crate) struct Listener {
    wire: BufReader<Box<dyn Wire>>,
    pub(crate) status: u16,
    pub(crate) head: String,
    /// What is left of the chunk that is being read.
    chunk: usize,
    chunked: bool,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Home {
    /// Listens over the home's socket. `query` is what stands behind the question mark.
    pub(crate) fn listen(&self, query: &str, last_event_id: Option<i64>) -> Listener {
        let header = last_event_id.map(|id| format!("Last-Event-ID: {id}"));
        self.listen_with(query, &header.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub(crate) fn listen_with(&self, query: &str, headers: &[&str]) -> Listener {
        let wire = UnixStream::connect(self.path().join("parhelia.sock")).unwrap();
        wire.set_read_timeout(Some(PATIENCE)).unwrap();
        Listener::open(Box::new(wire), query, headers)
    }

    /// The same over TCP with a token.
    pub(crate) fn listen_tcp(&self, address: &str, token: &str) -> Listener {
        let wire = TcpStream::connect(address).unwrap();
        wire.set_read_timeout(Some(PATIENCE)).unwrap();
        Listener::open(Box::new(wire), "", &[&format!("Authorization: Bearer {token}")])
    }
}

impl Listener {
    fn open(mut wire: Box<dyn Wire>, query: &str, headers: &[&str]) -> Self {
        let headers: String = headers.iter().map(|h| format!("{h}\r\n")).collect();
        let (method, path) = ("GET", "/api/v1/events/stream");
        let asked = format!("{method} {path}?{query} HTTP/1.1\r\nhost: test\r\n{headers}\r\n");
        // Who is turned away is answered before it has asked.
        let _ = wire.write_all(asked.as_bytes());
        let mut wire = BufReader::new(wire);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(wire.read_line(&mut head).unwrap() > 0, "no answer: {head}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let head = head.to_ascii_lowercase();
        let chunked = head.contains("transfer-encoding: chunked");
        Self { wire, status, head, chunk: 0, chunked }
    }

    /// The whole answer, where it is no stream.
    pub(crate) fn problem(mut self) -> (u16, Value) {
        let length = self.head.split("content-length: ").nth(1).and_then(|l| l.lines().next()).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.wire.read_exact(&mut body).unwrap();
        (self.status, serde_json::from_slice(&body).unwrap())
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        if self.chunked && self.chunk == 0 {
            let mut size = String::new();
            while size.trim().is_empty() {
                size.clear();
                if self.wire.read_line(&mut size).ok()? == 0 {
                    return None;
                }
            }
            self.chunk = usize::from_str_radix(size.trim(), 16).unwrap();
            if self.chunk == 0 {
                return None;
            }
        }
        let mut one = [0];
        self.wire.read_exact(&mut one).ok()?;
        self.chunk = self.chunk.saturating_sub(1);
        Some(one[0])
    }

    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        loop {
            match self.byte()? {
                b'\n' => return Some(String::from_utf8(line).unwrap()),
                byte => line.push(byte),
            }
        }
    }

    /// The next whole block; `None` when the stream has ended.
    pub(crate) fn next(&mut self) -> Option<Block> {
        assert_eq!(self.status, 200, "{}", self.head);
        let mut block = Block::default();
        loop {
            let line = self.line()?;
            match line.split_once(':') {
                None if line.is_empty() => return Some(block),
                Some(("", comment)) => block.comment = comment.trim().to_owned(),
                Some((field, value)) => {
                    let value = value.strip_prefix(' ').unwrap_or(value);
                    match field {
                        "id" => block.id = Some(value.parse().unwrap()),
                        "event" => block.event = value.to_owned(),
                        "data" => block.data.push_str(value),
                        "retry" => block.retry = Some(value.parse().unwrap()),
                        _ => panic!("an unknown field: {line}"),
                    }
                }
                None => panic!("neither field nor comment: {line}"),
            }
        }
    }

    /// Reads until one fits.
    pub(crate) fn until(&mut self, what: &str, fits: impl Fn(&Block) -> bool) -> Block {
        loop {
            match self.next() {
                Some(block) if fits(&block) => return block,
                Some(_) => {}
                None => panic!("the stream ended before {what}"),
            }
        }
    }

    /// Everything up to the end of the stream.
    pub(crate) fn rest(&mut self) -> Vec<Block> {
        std::iter::from_fn(|| self.next()).collect()
    }
}
