//! Reading a cascade file, and every mistake in it with its place.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Cascade;

pub fn resolve_inputs(
    _cascade: &Cascade,
    given: &BTreeMap<String, Value>,
    _texts: &BTreeMap<String, String>,
) -> Result<Map<String, Value>, Vec<String>> {
    Ok(given.clone().into_iter().collect())
}

#[derive(Debug)]
pub struct Mistake(String);

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

pub fn read(text: &str) -> Result<Cascade, Vec<Mistake>> {
    serde_json::from_str(text).map_err(|e| vec![Mistake(e.to_string())])
}
