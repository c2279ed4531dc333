//! A text as a tree of values that know their places. YAML 1.2 with its core schema, of which JSON is a part; aliases are
//! followed, within bounds. What a cascade has no use for (several documents, tags, merge keys) is refused by name.

use std::collections::HashMap;

use granit_parser::{Event, Marker, Parser, ScalarStyle};
use serde_json::{Number, Value};

use super::mistake::{Finding, Place, Step, brief};

/// How deep collections may nest. With sub-cascades at their deepest a definition is still JSON that every reader takes.
const DEEPEST: usize = 56;
/// What aliases may add, in bytes: a text of a page must not become one of gigabytes.
const MOST_COPIED_BYTES: usize = 32 << 20;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) at: Place,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    /// And as it was written: `1.0` stays `1.0` where text is wanted.
    Number(Number, String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_at: Place,
    pub(super) value: Node,
}

impl Node {
    pub(super) fn is(&self) -> &'static str {
        match self.kind {
            Kind::Null => "nothing",
            Kind::Bool(_) => "true or false",
            Kind::Number(..) => "a number",
            Kind::Text(_) => "text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a mapping",
        }
    }

    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.kind {
            Kind::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    pub(super) fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Number(number, _) => Value::Number(number.clone()),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::List(items) => Value::Array(items.iter().map(Node::to_value).collect()),
            Kind::Map(entries) => {
                Value::Object(entries.iter().map(|e| (e.key.clone(), e.value.to_value())).collect())
            }
        }
    }

    pub(super) fn of_value(value: &Value) -> Node {
        let kind = match value {
            Value::Null => Kind::Null,
            Value::Bool(value) => Kind::Bool(*value),
            Value::Number(number) => Kind::Number(number.clone(), number.to_string()),
            Value::String(text) => Kind::Text(text.clone()),
            Value::Array(items) => Kind::List(items.iter().map(Node::of_value).collect()),
            Value::Object(map) => Kind::Map(
                map.iter()
                    .map(|(key, value)| Entry {
                        key: key.clone(),
                        key_at: Place::default(),
                        value: Node::of_value(value),
                    })
                    .collect(),
            ),
        };
        Node { at: Place::default(), kind }
    }

    /// Where these steps lead, or as far as they lead.
    pub(super) fn place(&self, steps: &[Step], of_key: bool) -> Place {
        let mut here = self;
        let mut at = self.at;
        for (n, step) in steps.iter().enumerate() {
            let last = n + 1 == steps.len();
            match step {
                Step::Key(key) => match here.entry(key) {
                    Some(entry) => {
                        at = if last && of_key { entry.key_at } else { entry.value.at };
                        here = &entry.value;
                    }
                    None => break,
                },
                Step::Index(index) => match &here.kind {
                    Kind::List(items) if items.get(*index).is_some() => {
                        here = &items[*index];
                        at = here.at;
                    }
                    _ => break,
                },
            }
        }
        at
    }

    fn depth(&self) -> usize {
        match &self.kind {
            Kind::List(items) => 1 + items.iter().map(Node::depth).max().unwrap_or(0),
            Kind::Map(entries) => 1 + entries.iter().map(|e| e.value.depth()).max().unwrap_or(0),
            _ => 0,
        }
    }

    fn copied_bytes(&self) -> usize {
        std::mem::size_of::<Node>()
            + match &self.kind {
                Kind::Null | Kind::Bool(_) => 0,
                Kind::Number(_, text) | Kind::Text(text) => text.len(),
                Kind::List(items) => items.iter().map(Node::copied_bytes).sum(),
                Kind::Map(entries) => entries.iter().map(|e| e.key.len() + e.value.copied_bytes()).sum(),
            }
    }
}

fn place(marker: Marker) -> Place {
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Place { line: small(marker.line().max(1)), column: small(marker.col().saturating_add(1)) }
}

fn finding(place: Place, message: impl Into<String>, suggestion: Option<&str>) -> Finding {
    Finding {
        steps: Vec::new(),
        of_key: false,
        place,
        message: message.into(),
        suggestion: suggestion.map(str::to_owned),
    }
}

/// The tree of a text, and what is odd about it. Without a tree nothing more can be said.
pub(super) fn grow(text: &str) -> (Option<Node>, Vec<Finding>) {
    match of_yaml(text) {
        Ok((root, odd)) => (root, odd),
        Err(error) => {
            // YAML is nearly, not wholly, a superset of JSON.
            if text.trim_start().starts_with('{') {
                return match serde_json::from_str::<Value>(text) {
                    Ok(value) => (Some(Node::of_value(&value)), Vec::new()),
                    Err(_) => (None, vec![error]),
                };
            }
            (None, vec![error])
        }
    }
}

/// A collection that is not closed yet.
enum Open {
    List {
        node: Vec<Node>,
        at: Place,
        anchor: usize,
    },
    Map {
        entries: Vec<Entry>,
        seen: HashMap<String, u32>,
        key: Option<(String, Place)>,
        at: Place,
        anchor: usize,
    },
}

struct Grower {
    open: Vec<Open>,
    root: Option<Node>,
    /// What an alias stands for, with its size in bytes.
    anchors: HashMap<usize, (Node, usize)>,
    copied_bytes: usize,
    odd: Vec<Finding>,
}

fn of_yaml(text: &str) -> Result<(Option<Node>, Vec<Finding>), Finding> {
    let options = granit_parser::options! { flow_nesting_limit: DEEPEST, block_nesting_limit: DEEPEST, emit_comments: false };
    let mut grower =
        Grower { open: Vec::new(), root: None, anchors: HashMap::new(), copied_bytes: 0, odd: Vec::new() };
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|error| {
            finding(place(*error.marker()), format!("this is not YAML: {}", error.info()), None)
        })?;
        let at = place(span.start);
        match event {
            Event::DocumentStart(..) if grower.root.is_some() => {
                let message = "a second document begins here; a cascade is one";
                grower.odd.push(finding(at, message, None));
                break;
            }
            Event::Scalar(text, style, anchor, tag) => {
                let forced = tag.as_ref().and_then(|tag| tag.core_suffix()) == Some("str");
                if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema()) {
                    grower.odd.push(finding(
                        at,
                        format!("the tag {} means nothing here", brief(&tag.original())),
                        None,
                    ));
                }
                let kind = if style == ScalarStyle::Plain && !forced {
                    plain(&text)
                } else {
                    Kind::Text(text.into_owned())
                };
                grower.put(Node { at, kind }, anchor)?;
            }
            Event::SequenceStart(_, anchor, _) => {
                grower.may_open(at)?;
                grower.open.push(Open::List { node: Vec::new(), at, anchor });
            }
            Event::MappingStart(_, anchor, _) => {
                grower.may_open(at)?;
                grower.open.push(Open::Map {
                    entries: Vec::new(),
                    seen: HashMap::new(),
                    key: None,
                    at,
                    anchor,
                });
            }
            Event::SequenceEnd | Event::MappingEnd => grower.close()?,
            Event::Alias(anchor) => grower.alias(anchor, at)?,
            _ => {}
        }
    }
    Ok((grower.root, grower.odd))
}

impl Grower {
    /// A collection cannot be a key, and has its place among not too many others.
    fn may_open(&self, at: Place) -> Result<(), Finding> {
        if self.open.len() >= DEEPEST {
            return Err(finding(at, format!("lists and mappings go deeper than {DEEPEST}"), None));
        }
        match self.open.last() {
            Some(Open::Map { key: None, .. }) => Err(finding(
                at,
                "a key must be text",
                Some("put quotes around a value that begins with { or ["),
            )),
            _ => Ok(()),
        }
    }

    fn put(&mut self, node: Node, anchor: usize) -> Result<(), Finding> {
        if anchor != 0 {
            let bytes = node.copied_bytes();
            self.anchors.insert(anchor, (node.clone(), bytes));
            self.copy(bytes, node.at)?;
        }
        match self.open.last_mut() {
            None => {
                if self.root.is_none() {
                    self.root = Some(node);
                }
            }
            Some(Open::List { node: items, .. }) => items.push(node),
            Some(Open::Map { entries, seen, key, .. }) => match key.take() {
                None => {
                    let name = match node.kind {
                        Kind::Text(text) | Kind::Number(_, text) => text,
                        Kind::Bool(value) => value.to_string(),
                        Kind::Null => "null".to_owned(),
                        Kind::List(_) | Kind::Map(_) => {
                            return Err(finding(node.at, "a key must be text", None));
                        }
                    };
                    if name == "<<" {
                        self.odd.push(finding(
                            node.at,
                            "merge keys are not known here",
                            Some("write the keys themselves, or an alias for the whole value"),
                        ));
                    }
                    *key = Some((name, node.at));
                }
                Some((name, key_at)) => {
                    if let Some(line) = seen.insert(name.clone(), key_at.line) {
                        let message =
                            format!("'{}' is here twice; it is in line {line} already", brief(&name));
                        self.odd.push(finding(key_at, message, None));
                    } else {
                        entries.push(Entry { key: name, key_at, value: node });
                    }
                }
            },
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Finding> {
        match self.open.pop() {
            Some(Open::List { node, at, anchor }) => self.put(Node { at, kind: Kind::List(node) }, anchor),
            Some(Open::Map { entries, at, anchor, .. }) => {
                self.put(Node { at, kind: Kind::Map(entries) }, anchor)
            }
            None => Ok(()),
        }
    }

    fn alias(&mut self, anchor: usize, at: Place) -> Result<(), Finding> {
        self.may_open(at)?;
        let Some((node, bytes)) = self.anchors.get(&anchor).map(|(node, bytes)| (node.clone(), *bytes))
        else {
            return Err(finding(at, "this alias stands inside of what it names", None));
        };
        self.copy(bytes, at)?;
        if self.open.len() + node.depth() > DEEPEST {
            return Err(finding(at, format!("with this, lists and mappings go deeper than {DEEPEST}"), None));
        }
        self.put(node, 0)
    }

    fn copy(&mut self, bytes: usize, at: Place) -> Result<(), Finding> {
        self.copied_bytes = self.copied_bytes.saturating_add(bytes);
        if self.copied_bytes > MOST_COPIED_BYTES {
            return Err(finding(
                at,
                "anchors and aliases make this too large",
                Some("write less of it by alias"),
            ));
        }
        Ok(())
    }
}

/// A scalar without quotes, by YAML's core schema.
fn plain(text: &str) -> Kind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
        "true" | "True" | "TRUE" => return Kind::Bool(true),
        "false" | "False" | "FALSE" => return Kind::Bool(false),
        _ => {}
    }
    match number(text) {
        Some(number) => Kind::Number(number, text.to_owned()),
        None => Kind::Text(text.to_owned()),
    }
}

fn number(text: &str) -> Option<Number> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if let Some(octal) = text.strip_prefix("0o") {
        return u64::from_str_radix(octal, 8).ok().filter(|_| !octal.starts_with('+')).map(Number::from);
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().filter(|_| !hex.starts_with('+')).map(Number::from);
    }
    // A number as Rust reads it is one of YAML's, but for these words and forms.
    let first = digits.bytes().next()?;
    if !(first.is_ascii_digit() || first == b'.')
        || !digits.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b))
    {
        return None;
    }
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        let plain = text.strip_prefix('+').unwrap_or(text);
        if let Ok(whole) = plain.parse::<i64>() {
            return Some(whole.into());
        }
        if let Ok(whole) = plain.parse::<u64>() {
            return Some(whole.into());
        }
    }
    text.parse::<f64>().ok().and_then(Number::from_f64)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test the panic is the message")]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(text: &str) -> Value {
        let (root, odd) = grow(text);
        assert!(odd.is_empty(), "{odd:?}");
        root.unwrap().to_value()
    }

    #[test]
    fn scalars_are_those_of_yaml_1_2() {
        assert_eq!(
            value(
                "[1, -2, +3, 0x1f, 0o17, 1.50, 1e3, .5, yes, on, 007, 1.2.3, 2026-01-01, ~, null, true, 'true', .inf, 0x, '-', 12e, 18446744073709551615]"
            ),
            json!([
                1,
                -2,
                3,
                31,
                15,
                1.5,
                1000.0,
                0.5,
                "yes",
                "on",
                7,
                "1.2.3",
                "2026-01-01",
                null,
                null,
                true,
                "true",
                ".inf",
                "0x",
                "-",
                "12e",
                18446744073709551615u64
            ])
        );
    }

    #[test]
    fn json_is_read_too_with_places() {
        let (root, _) = grow("{\"a\": [1,\n  {\"b\": \"\\ud83d\\ude00\\/\"}]}");
        let root = root.unwrap();
        assert_eq!(root.to_value(), json!({"a": [1, {"b": "😀/"}]}));
        let steps = [Step::Key("a".into()), Step::Index(1), Step::Key("b".into())];
        assert_eq!(root.place(&steps, false), Place { line: 2, column: 9 });
        assert_eq!(root.place(&steps, true), Place { line: 2, column: 4 });
    }

    #[test]
    fn aliases_are_followed_and_bounded() {
        assert_eq!(value("a: &x {k: 1}\nb: *x\n"), json!({"a": {"k": 1}, "b": {"k": 1}}));
        let mut laughs = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
        for n in 1..10 {
            let many = vec![format!("*a{}", n - 1); 10].join(", ");
            laughs.push_str(&format!("a{n}: &a{n} [{many}]\n"));
        }
        let (root, odd) = grow(&laughs);
        assert!(root.is_none() && odd[0].message.contains("too large"), "{odd:?}");
        // An alias adds its own depth to that of its place.
        let mut deep = "a0: &a0 {k: 1}\n".to_owned();
        for n in 1..70 {
            deep.push_str(&format!("a{n}: &a{n} {{k: *a{}}}\n", n - 1));
        }
        let (root, odd) = grow(&deep);
        assert!(root.is_none() && odd[0].message.contains("deeper than"), "{odd:?}");
        let (root, odd) = grow(&"[".repeat(200));
        assert!(root.is_none() && odd.len() == 1, "{odd:?}");
        let (root, odd) = grow("a: &x [*x]");
        assert!(root.is_none() && odd[0].message.contains("inside"), "{odd:?}");
    }

    #[test]
    fn what_a_cascade_has_no_use_for_is_named() {
        for (text, word, line) in [
            ("a: 1\na: 2\n", "twice", 2),
            ("a: 1\n---\nb: 1\n", "second document", 2),
            ("<<: {a: 1}\n", "merge", 1),
            ("a: !mine 1\n", "tag", 1),
        ] {
            let (_, odd) = grow(text);
            assert!(odd[0].message.contains(word), "{odd:?}");
            assert_eq!(odd[0].place.line, line, "{odd:?}");
        }
        let (root, odd) = grow("a: [1\nb: }\n");
        assert!(root.is_none() && odd.len() == 1 && odd[0].place.line > 0, "{odd:?}");
    }
}
