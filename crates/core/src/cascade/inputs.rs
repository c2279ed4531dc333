//! What whoever starts a session gives it: defaults, types and options. Every mistake is named, with what exists.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::mistake::{brief, did_you_mean, some_of};
use super::{Cascade, Input, InputKind};

/// The inputs of a session: what was given as a value, what was given as text, and the defaults of the rest.
pub fn resolve_inputs(
    cascade: &Cascade,
    given: &BTreeMap<String, Value>,
    texts: &BTreeMap<String, String>,
) -> Result<Map<String, Value>, Vec<String>> {
    let mut wrong = Vec::new();
    let mut inputs = Map::new();
    for name in given.keys().chain(texts.keys()) {
        if !cascade.inputs.contains_key(name) {
            let known = cascade.inputs.keys().map(String::as_str);
            let like = did_you_mean(name, known.clone()).map(|like| format!("; {like}")).unwrap_or_default();
            let there = match cascade.inputs.is_empty() {
                true => "it has none".to_owned(),
                false => format!("it has {}", some_of(known)),
            };
            let cascade = brief(&cascade.cascade_id);
            wrong.push(format!("'{}' is no input of {cascade}; {there}{like}", brief(name)));
        }
    }
    for (name, input) in &cascade.inputs {
        let read = match (given.get(name), texts.get(name)) {
            (Some(_), Some(_)) => Err("is given twice".to_owned()),
            (Some(value), None) => fits(input, value).map(|()| Some(value.clone())),
            (None, Some(text)) => {
                read(input.kind, text).and_then(|value| fits(input, &value).map(|()| Some(value)))
            }
            (None, None) => Ok(input.default.clone()),
        };
        match read {
            Ok(Some(value)) => {
                inputs.insert(name.clone(), value);
            }
            Ok(None) => {
                let about =
                    input.description.as_deref().map(|d| format!(" ({})", brief(d))).unwrap_or_default();
                wrong.push(format!("the input '{name}' is missing{about}: {}; -i {name}=…", input.kind));
            }
            Err(reason) => wrong.push(format!("the input '{name}' {reason}")),
        }
    }
    if wrong.is_empty() { Ok(inputs) } else { Err(wrong) }
}

/// `-i key=value` as what the cascade says it is.
fn read(kind: InputKind, text: &str) -> Result<Value, String> {
    let must = |what: &str| format!("must be {what}, not '{}'", brief(text));
    match kind {
        InputKind::String => Ok(Value::String(text.to_owned())),
        InputKind::Number => {
            serde_json::from_str(text.trim()).ok().filter(Value::is_number).ok_or_else(|| must("a number"))
        }
        InputKind::Boolean => match text.trim() {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => Err(must("true or false")),
        },
        InputKind::Json => serde_json::from_str(text).map_err(|error| format!("must be JSON: {error}")),
    }
}

/// Whether this value may be that input.
pub(super) fn fits(input: &Input, value: &Value) -> Result<(), String> {
    let (fits, what) = match input.kind {
        InputKind::String => (value.is_string(), "text"),
        InputKind::Number => (value.is_number(), "a number"),
        InputKind::Boolean => (value.is_boolean(), "true or false"),
        InputKind::Json => (true, "JSON"),
    };
    if !fits {
        return Err(format!("must be {what}, not {}", brief(&value.to_string())));
    }
    let same = |option: &Value| match (option.as_f64(), value.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => option == value,
    };
    if !input.options.is_empty() && !input.options.iter().any(same) {
        let options: Vec<String> = input.options.iter().map(|option| brief(&option.to_string())).collect();
        let options = some_of(options.iter().map(String::as_str));
        return Err(format!("must be one of {options}, not {}", brief(&value.to_string())));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test the panic is the message")]
mod tests {
    use super::*;
    use crate::cascade::parse;
    use serde_json::json;

    fn cascade() -> Cascade {
        parse::read(
            "cascade_id: c\ninputs:\n  who: {description: whom to greet}\n  n: {type: number, default: 2}\n  \
             loud: {type: boolean, default: false}\n  any: {type: json, default: [1]}\n  \
             where: {options: [here, there], default: here}\nphases: [{name: a, run: 'true'}]\n",
        )
        .unwrap()
    }

    fn resolve(given: Value, texts: &[(&str, &str)]) -> Result<Value, Vec<String>> {
        let given = given.as_object().unwrap().clone().into_iter().collect();
        let texts = texts.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        resolve_inputs(&cascade(), &given, &texts).map(Value::Object)
    }

    #[test]
    fn defaults_and_texts_become_values() {
        assert_eq!(
            resolve(json!({}), &[("who", "7"), ("n", "3.5"), ("loud", "true"), ("any", "{\"a\": 1}")]),
            Ok(json!({"who": "7", "n": 3.5, "loud": true, "any": {"a": 1}, "where": "here"}))
        );
        assert_eq!(
            resolve(json!({"who": "you", "where": "there"}), &[]),
            Ok(json!({"who": "you", "n": 2, "loud": false, "any": [1], "where": "there"}))
        );
    }

    #[test]
    fn every_mistake_is_named() {
        let wrong = resolve(
            json!({"n": "three", "where": "nowhere", "any": 1}),
            &[("whom", "x"), ("loud", "yes"), ("any", "2")],
        )
        .unwrap_err();
        assert_eq!(
            wrong,
            [
                "'whom' is no input of c; it has any, loud, n, where, who; did you mean 'who'?",
                "the input 'any' is given twice",
                "the input 'loud' must be true or false, not 'yes'",
                "the input 'n' must be a number, not \"three\"",
                "the input 'where' must be one of \"here\", \"there\", not \"nowhere\"",
                "the input 'who' is missing (whom to greet): string; -i who=…",
            ]
        );
    }
}
