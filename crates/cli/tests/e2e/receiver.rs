//! A receiver of webhooks on loopback: it writes down what it gets and answers as it is told to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::Value;

/// One request, as it came.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Received {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn delivery(&self) -> &str {
        &self.headers["parhelia-delivery"]
    }

    /// The event that it tells of.
    pub(crate) fn event(&self) -> i64 {
        self.json()["id"].as_i64().unwrap()
    }
}

/// What it says to a request; the number counts from 0.
pub(crate) type Manners = dyn Fn(usize, &Received) -> Answer + Send + Sync;

#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Status(u16),
    /// `Location` included.
    Redirect(String),
    /// Nothing, until the receiver is dropped.
    Silence,
}

#[derive(Default)]
struct Book {
    entries: Mutex<Vec<Received>>,
    more: Condvar,
    over: AtomicBool,
    open: AtomicUsize,
    most_open: AtomicUsize,
}

pub(crate) struct Receiver {
    address: SocketAddr,
    book: Arc<Book>,
}

impl Receiver {
    pub(crate) fn polite() -> Self {
        Self::with(|_, _| Answer::Status(200))
    }

    pub(crate) fn with(manners: impl Fn(usize, &Received) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let book = Arc::new(Book::default());
        let (kept, manners): (_, Arc<Manners>) = (book.clone(), Arc::new(manners));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if kept.over.load(Ordering::SeqCst) {
                    return;
                }
                let (book, manners) = (kept.clone(), manners.clone());
                std::thread::spawn(move || {
                    let open = book.open.fetch_add(1, Ordering::SeqCst) + 1;
                    book.most_open.fetch_max(open, Ordering::SeqCst);
                    // One who breaks off has said nothing.
                    let _ = stream.ok().and_then(|stream| serve(stream, &book, manners.as_ref()));
                    book.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, book }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn got(&self) -> Vec<Received> {
        self.book.entries.lock().unwrap().clone()
    }

    /// Returns as soon as there are that many, without a pause in between: what follows comes at once.
    pub(crate) fn wait_for(&self, count: usize) {
        let entries = self.book.entries.lock().unwrap();
        let waited =
            self.book.more.wait_timeout_while(entries, crate::harness::PATIENCE, |all| all.len() < count);
        let (entries, late) = waited.unwrap();
        assert!(!late.timed_out(), "{} of {count} arrived: {entries:?}", entries.len());
    }

    /// The most requests that it had at once.
    pub(crate) fn most_open(&self) -> usize {
        self.book.most_open.load(Ordering::SeqCst)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.book.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(stream: TcpStream, book: &Book, manners: &Manners) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length: usize = headers.get("content-length")?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let received = Received { path, headers, body: String::from_utf8(body).ok()? };
    // Under one lock: whoever has the answer finds the request in the book.
    let mut entries = book.entries.lock().unwrap();
    let answer = manners(entries.len(), &received);
    let reply = match &answer {
        Answer::Status(status) => {
            Some(format!("HTTP/1.1 {status} So\r\ncontent-length: 5\r\nconnection: close\r\n\r\nnoted"))
        }
        Answer::Redirect(to) => Some(format!(
            "HTTP/1.1 307 So\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )),
        Answer::Silence => None,
    };
    if let Some(reply) = reply {
        stream.write_all(reply.as_bytes()).ok()?;
    }
    // Only what was answered is in the book: a test that kills the server then kills it after a success.
    entries.push(received);
    drop(entries);
    book.more.notify_all();
    if matches!(answer, Answer::Silence) {
        // Ends when the other side has had enough.
        let _ = reader.read(&mut [0]);
    }
    Some(())
}
