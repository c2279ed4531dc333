//! The log as JSON, and traces to a collector: a small receiver of our own that keeps what it is sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::harness::{Home, eventually, text};

/// Starts a server with its standard error in a file, waits for it, ends it, and gives the lines.
fn log_of(home: &Home, args: &[&str]) -> Vec<String> {
    let path = home.path().join("stderr.log");
    let file = std::fs::File::create(&path).unwrap();
    let mut server = home.command(args).stdout(Stdio::null()).stderr(file).spawn().unwrap();
    eventually("it is ready", || home.try_http("GET", "/readyz", None).filter(|(status, _)| *status == 200));
    home.start(&[], &["true"]);
    home.ok(&["down"]);
    assert!(server.wait().unwrap().success());
    let said = std::fs::read_to_string(path).unwrap();
    // The command's own remark to people is no line of the log.
    said.lines().filter(|line| !line.starts_with("Stopped.")).map(str::to_owned).collect()
}

#[test]
fn the_log_is_json_where_that_is_asked_for() {
    let home = Home::new();
    let lines = log_of(&home, &["up", "--log-format", "json"]);
    let parsed: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("no JSON ({e}): {line}")))
        .collect();
    for line in &parsed {
        text(line, "timestamp").parse::<jiff::Timestamp>().unwrap();
        assert!(["INFO", "WARN"].contains(&text(line, "level")), "{line}");
        assert!(text(line, "target").starts_with("parhelia"), "{line}");
        assert!(line["fields"]["message"].is_string(), "{line}");
    }
    let serving = parsed.iter().find(|line| line["fields"]["message"] == "serving").unwrap();
    assert_eq!(serving["fields"]["home"], home.path().display().to_string());
    let token = std::fs::read_to_string(home.path().join("admin.token")).unwrap();
    assert!(!lines.concat().contains(token.trim()), "a secret is in the log");

    home.configure("[log]\nformat = 'json'\nlevel = 'debug'\n");
    let more = log_of(&home, &["up"]);
    assert!(more.iter().any(|line| line.contains("\"level\":\"DEBUG\"")), "{more:?}");
    home.configure("[log]\nlevel = 'error'\n");
    assert_eq!(log_of(&home, &["up"]), [""; 0]);
}

/// What a collector was sent: heads and bodies.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<Message>>>);

type Message = (String, Vec<u8>);

impl Received {
    fn listen(&self, listener: TcpListener) {
        let received = self.0.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let mut reader = BufReader::new(stream);
                loop {
                    let (mut head, mut line) = (String::new(), String::new());
                    while reader.read_line(&mut line).unwrap_or(0) > 2 {
                        head.push_str(&std::mem::take(&mut line).to_ascii_lowercase());
                    }
                    if head.is_empty() {
                        break;
                    }
                    let length = head.lines().find_map(|l| l.strip_prefix("content-length: "));
                    let mut body = vec![0; length.unwrap().trim().parse().unwrap()];
                    reader.read_exact(&mut body).unwrap();
                    received.lock().unwrap().push((head, body));
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                    if reader.get_mut().write_all(answer).is_err() {
                        break;
                    }
                }
            }
        });
    }

    /// Whether a text stands somewhere in the messages: names are plain text in the protocol's encoding.
    fn has(&self, words: &str) -> bool {
        let all = self.0.lock().unwrap();
        all.iter().any(|(_, body)| body.windows(words.len()).any(|window| window == words.as_bytes()))
    }
}

#[test]
fn spans_go_to_the_collector_and_a_dead_one_hurts_nobody() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let received = Received::default();
    received.listen(listener);
    let headers = home.path().join("otlp.headers");
    std::fs::write(&headers, "x-collector-key: s3cret\n").unwrap();
    home.configure(&format!(
        "[otlp]\nendpoint = 'http://{address}'\nheaders_file = '{}'\n",
        headers.display()
    ));
    let server = home.up(&[]);
    let id = home.start(&[], &["sleep", "600"]);
    home.seen(&id);
    for span in [
        "service.name",
        "parhelia",
        "GET /api/v1/containers/{id}",
        "reconcile",
        "provider",
        "store.write",
        "claim_create",
    ] {
        eventually(&format!("'{span}' arrives"), || received.has(span).then_some(()));
    }
    let (head, _) = received.0.lock().unwrap()[0].clone();
    assert!(head.starts_with("post /v1/traces ") && head.contains("x-collector-key: s3cret"), "{head}");
    home.ok(&["down"]);
    assert_eq!(server.wait(), 0);
    assert!(!home.log().contains("s3cret"));

    // Nobody listens there.
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    home.configure(&format!("[otlp]\nendpoint = 'http://{dead}'\n"));
    let server = home.up(&[]);
    assert_eq!(home.seen(&id)["state"], "running");
    let other = home.start(&[], &["true"]);
    home.until_seen(&other, "state", "terminated");
    home.ok(&["down"]);
    assert_eq!(server.wait(), 0);

    home.configure("[otlp]\nendpoint = 'collector:4318'\n");
    let said = home.run(&["up"]);
    assert!(said.code == 2 && said.err.contains("http://host:4318"), "{said:?}");
}
