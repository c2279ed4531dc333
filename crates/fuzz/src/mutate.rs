//! From a valid document to a damaged one: in its tree where it is JSON, then in its bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;

/// Values at the edges of what a field may hold, as JSON.
const EDGES: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-1",
    "-0.0",
    "0.1",
    "1e308",
    "-1e308",
    "5e-324",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "\"\"",
    "\" \"",
    "\"\\u0000\"",
    "\"\\n\"",
    "\"é漢🦀\"",
    "\"..\"",
    "\"/\"",
    "\"NaN\"",
    "\"2026-01-21T14:30:00Z\"",
    "\"9999-12-31T23:59:59.999Z\"",
    "\"-009999-01-01T00:00:00Z\"",
    "\"2016-12-31T23:59:60Z\"",
    "[]",
    "{}",
    "[null]",
    "[[[[[[[[]]]]]]]]",
    "{\"\": {\"\": 0}}",
];

/// Bytes that mean something to some format.
const MARKS: &[u8] = b"\0\t\n\r \"'#$%&+,-./:;<=>?@[\\]^_`{|}~0129aAzZ\x7f\x80\xc3\xe2\xf0\xff";

#[derive(Debug, Clone)]
enum Damage {
    /// In the tree: another value, or none, in the place of one.
    Replace(Index, String),
    Drop(Index),
    /// In the tree: one value in the place of another.
    Copy(Index, Index),
    /// A member more.
    Member(Index, String, String),
    /// In the bytes.
    Flip(Index, u8),
    Set(Index, u8),
    Insert(Index, String),
    Cut(Index, usize),
    Truncate(Index),
    Repeat(Index, usize, usize),
}

/// Mutations of these documents. `words` are put in at random, into the tree as strings too.
pub fn documents(seeds: &[&str], words: &[&str]) -> BoxedStrategy<Vec<u8>> {
    let seeds: Vec<String> = seeds.iter().map(|&seed| seed.to_owned()).collect();
    // Small changes are more often survived than large ones: reach both sides.
    let few = vec(damage(words), 0..3);
    let many = vec(damage(words), 3..12);
    (select(seeds), prop_oneof![3 => few, 1 => many])
        .prop_map(|(seed, damages)| apply(&seed, &damages))
        .boxed()
}

fn damage(words: &[&str]) -> BoxedStrategy<Damage> {
    let mut words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    words.extend(["", "a", "0", "-", "=", ",", "%00", "\u{feff}", "c-01k9z3q8xw4f7m2a"].map(str::to_owned));
    let word = select(words);
    let edge = select(EDGES).prop_map(str::to_owned);
    let quoted = word.clone().prop_map(|word| Value::String(word).to_string());
    let value = prop_oneof![edge, quoted].boxed();
    let at = any::<Index>;
    prop_oneof![
        4 => (at(), value.clone()).prop_map(|(at, value)| Damage::Replace(at, value)),
        2 => at().prop_map(Damage::Drop),
        1 => (at(), at()).prop_map(|(from, to)| Damage::Copy(from, to)),
        1 => (at(), word.clone(), value).prop_map(|(at, name, value)| Damage::Member(at, name, value)),
        1 => (at(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        2 => (at(), select(MARKS)).prop_map(|(at, byte)| Damage::Set(at, byte)),
        2 => (at(), word).prop_map(|(at, word)| Damage::Insert(at, word)),
        1 => (at(), 1..20_usize).prop_map(|(at, length)| Damage::Cut(at, length)),
        1 => at().prop_map(Damage::Truncate),
        1 => (at(), 1..20_usize, 2..200_usize).prop_map(|(at, length, times)| Damage::Repeat(at, length, times)),
    ]
    .boxed()
}

fn apply(seed: &str, damages: &[Damage]) -> Vec<u8> {
    let mut bytes = match serde_json::from_str::<Value>(seed) {
        Ok(mut tree) if damages.iter().any(Damage::is_of_the_tree) => {
            damages.iter().for_each(|damage| damage.to_tree(&mut tree));
            tree.to_string().into_bytes()
        }
        _ => seed.as_bytes().to_vec(),
    };
    damages.iter().for_each(|damage| damage.to_bytes(&mut bytes));
    bytes
}

impl Damage {
    fn is_of_the_tree(&self) -> bool {
        matches!(self, Self::Replace(..) | Self::Drop(..) | Self::Copy(..) | Self::Member(..))
    }

    fn to_tree(&self, tree: &mut Value) {
        let count = count(tree);
        match self {
            Self::Replace(at, value) => {
                if let (Some(place), Ok(value)) = (node(tree, at.index(count)), serde_json::from_str(value)) {
                    *place = value;
                }
            }
            Self::Drop(at) => drop_member(tree, at),
            Self::Copy(from, to) => {
                let copied = node(tree, from.index(count)).cloned();
                if let (Some(copied), Some(place)) = (copied, node(tree, to.index(count))) {
                    *place = copied;
                }
            }
            Self::Member(at, name, value) => {
                if let (Some(Value::Object(map)), Ok(value)) =
                    (node(tree, at.index(count)), serde_json::from_str(value))
                {
                    map.insert(name.clone(), value);
                }
            }
            _ => {}
        }
    }

    fn to_bytes(&self, bytes: &mut Vec<u8>) {
        let end = bytes.len();
        let place = |at: &Index| at.index(end + 1);
        match self {
            Self::Flip(at, bit) => {
                if let Some(byte) = bytes.get_mut(place(at)) {
                    *byte ^= 1 << bit;
                }
            }
            Self::Set(at, byte) => {
                if let Some(old) = bytes.get_mut(place(at)) {
                    *old = *byte;
                }
            }
            Self::Insert(at, word) => {
                let at = place(at);
                bytes.splice(at..at, word.bytes());
            }
            Self::Cut(at, length) => {
                let at = place(at);
                bytes.drain(at..(at + length).min(end));
            }
            Self::Truncate(at) => bytes.truncate(place(at)),
            Self::Repeat(at, length, times) => {
                let at = place(at);
                let piece = bytes[at..(at + length).min(end)].repeat(*times);
                bytes.splice(at..at, piece);
            }
            _ => {}
        }
    }
}

fn count(tree: &Value) -> usize {
    1 + match tree {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    }
}

/// The `at`th value of the tree, itself the first.
fn node(tree: &mut Value, at: usize) -> Option<&mut Value> {
    fn find<'t>(tree: &'t mut Value, left: &mut usize) -> Option<&'t mut Value> {
        if *left == 0 {
            return Some(tree);
        }
        *left -= 1;
        match tree {
            Value::Array(items) => items.iter_mut().find_map(|item| find(item, left)),
            Value::Object(map) => map.values_mut().find_map(|value| find(value, left)),
            _ => None,
        }
    }
    let mut left = at;
    find(tree, &mut left)
}

/// Takes one member out of an object or array.
fn drop_member(tree: &mut Value, at: &Index) {
    let count = count(tree);
    let start = at.index(count);
    let holder = (0..count).map(|step| (start + step) % count).find(|&place| match node(tree, place) {
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
        _ => false,
    });
    match holder.and_then(|place| node(tree, place)) {
        Some(Value::Array(items)) => drop(items.remove(at.index(items.len()))),
        Some(Value::Object(map)) => {
            if let Some(key) = map.keys().nth(at.index(map.len())).cloned() {
                map.remove(&key);
            }
        }
        _ => {}
    }
}
