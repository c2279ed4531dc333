//! What the command says about itself in its output: that it needs a person, and which session it is in. Lines are
//! looked at as they pass; only those that begin like a JSON object and hold one of a few words are parsed.

use serde_json::Value;

const LINE_MAX_BYTES: usize = 64 * 1024;
const TEXT_MAX_CHARS: usize = 500;
const SESSION_MAX_BYTES: usize = 200;
const SESSION_FIELDS: [&str; 3] = ["session_id", "sessionId", "thread_id"];
const NO_REASON: &str = "it needs a person and gave no reason";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    NeedsHuman(String),
    Session(String),
}

/// Puts lines together across reads. A line that is too long to be one of ours is passed over.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    line: Vec<u8>,
    /// The rest of this line is of no interest.
    skipping: bool,
    /// Only the first session counts.
    session_known: bool,
}

impl Scanner {
    pub(super) fn new(session_known: bool) -> Self {
        Self { session_known, ..Self::default() }
    }

    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Vec<Said> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let (part, rest) = match end {
                Some(end) => (&bytes[..end], &bytes[end + 1..]),
                None => (bytes, &[][..]),
            };
            self.take(part);
            if end.is_some() {
                self.look(&mut found);
                self.line.clear();
                self.skipping = false;
            }
            bytes = rest;
        }
        found
    }

    fn take(&mut self, part: &[u8]) {
        if self.skipping {
            return;
        }
        let part = if self.line.is_empty() { part.trim_ascii_start() } else { part };
        let Some(first) = self.line.first().or(part.first()) else { return };
        if *first != b'{' || self.line.len() + part.len() > LINE_MAX_BYTES {
            self.line.clear();
            self.skipping = true;
        } else {
            self.line.extend_from_slice(part);
        }
    }

    fn look(&mut self, found: &mut Vec<Said>) {
        let holds = |word: &str| self.line.windows(word.len()).any(|part| part == word.as_bytes());
        let session = !self.session_known && SESSION_FIELDS.into_iter().any(holds);
        if self.line.is_empty() || !(session || holds("needs_human")) {
            return;
        }
        let Ok(Value::Object(object)) = serde_json::from_slice(&self.line) else { return };
        if object.get("type").and_then(Value::as_str) == Some("needs_human") {
            let reason = object.get("reason").and_then(Value::as_str).map(one_line).unwrap_or_default();
            let reason = if reason.is_empty() { NO_REASON.to_owned() } else { reason };
            found.push(Said::NeedsHuman(reason));
        }
        if self.session_known {
            return;
        }
        let named = SESSION_FIELDS.into_iter().find_map(|field| object.get(field)?.as_str());
        if let Some(session) = named.filter(|session| is_session(session)) {
            self.session_known = true;
            found.push(Said::Session(session.to_owned()));
        }
    }
}

fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.trim().chars().take(TEXT_MAX_CHARS).map(plain).collect()
}

/// It becomes an argument of a command: nothing that could be taken for an option or a second word.
fn is_session(text: &str) -> bool {
    let odd = |c: char| c.is_control() || c.is_whitespace();
    !text.is_empty() && text.len() <= SESSION_MAX_BYTES && !text.starts_with('-') && !text.contains(odd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parhelia_fuzz::{Verdict, fuzz};

    fn needs(reason: &str) -> Said {
        Said::NeedsHuman(reason.to_owned())
    }

    #[test]
    fn a_line_of_its_own_is_found_however_it_comes_in_pieces() {
        let text =
            b"hello\r\n  {\"type\":\"needs_human\",\"reason\":\"which branch?\"}\r\n{\"type\": \"other\"}\n";
        for size in 1..text.len() {
            let mut scanner = Scanner::new(true);
            let found: Vec<Said> = text.chunks(size).flat_map(|piece| scanner.feed(piece)).collect();
            assert_eq!(found, [needs("which branch?")], "in pieces of {size}");
        }
    }

    #[test]
    fn what_only_looks_like_it_is_not_it() {
        let mut scanner = Scanner::new(true);
        for text in [
            "say {\"type\":\"needs_human\",\"reason\":\"no\"}\n",
            "{\"kind\":\"needs_human\"}\n",
            "{\"type\":\"needs_human\",\n",
            "{\"note\":{\"type\":\"needs_human\"}}\n",
            "[{\"type\":\"needs_human\"}]\n",
        ] {
            assert_eq!(scanner.feed(text.as_bytes()), [], "{text}");
        }
        let long = format!("{{\"type\":\"needs_human\",\"reason\":\"{}\"}}\n", "x".repeat(LINE_MAX_BYTES));
        assert_eq!(scanner.feed(long.as_bytes()), []);
        assert!(scanner.line.capacity() <= 2 * LINE_MAX_BYTES, "the buffer is bounded");
        let after = "{\"type\":\"needs_human\"}\n{\"type\":\"needs_human\",\"reason\":\"a\\nb\"}\n";
        assert_eq!(scanner.feed(after.as_bytes()), [needs(NO_REASON), needs("a b")]);
    }

    #[test]
    fn the_first_session_counts_unless_one_was_given() {
        let text = b"{\"type\":\"init\",\"session_id\":\"--bad\"}\n{\"thread_id\":\"t-1\"}\n{\"sessionId\":\"t-2\"}\n";
        assert_eq!(Scanner::new(false).feed(text), [Said::Session("t-1".into())]);
        assert_eq!(Scanner::new(true).feed(text), []);
    }

    #[test]
    fn any_output_is_survived() {
        let seeds = ["{\"type\":\"needs_human\",\"reason\":\"x\"}\n", "{\"session_id\":\"abc\"}\r\ntext\n"];
        fuzz(&seeds, &["needs_human", "session_id", "\n", "{"], |input| {
            let mut scanner = Scanner::new(false);
            let found = scanner.feed(input);
            assert!(scanner.line.len() <= LINE_MAX_BYTES);
            for said in &found {
                match said {
                    Said::NeedsHuman(reason) => {
                        assert!(!reason.contains(char::is_control) && !reason.is_empty())
                    }
                    Said::Session(session) => assert!(is_session(session)),
                }
            }
            if found.is_empty() { Verdict::Refused } else { Verdict::Accepted }
        });
    }
}
