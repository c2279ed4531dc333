//! JSON Schema of an answer, made from the same shapes as the OpenAPI document, so that neither can be wrong alone.

use serde_json::{Map, Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::trouble::Failed;

/// The answer, or the error in its place. Its root is an object, as the protocol asks.
pub(super) fn of_answer<T: ToSchema>() -> Value {
    let mut definitions = Map::new();
    let mut choices = Vec::new();
    for (name, schema, below) in [named::<T>(), named::<Failed>()] {
        choices.push(json!({ "$ref": format!("#/$defs/{name}") }));
        definitions.insert(name, value(&schema));
        for (name, schema) in below {
            definitions.insert(name, value(&schema));
        }
    }
    let mut whole = json!({ "type": "object", "anyOf": choices, "$defs": definitions });
    relocate(&mut whole);
    whole
}

type Named = (String, RefOr<Schema>, Vec<(String, RefOr<Schema>)>);

fn named<T: ToSchema>() -> Named {
    let mut below = Vec::new();
    T::schemas(&mut below);
    (T::name().into_owned(), <T as PartialSchema>::schema(), below)
}

fn value(schema: &RefOr<Schema>) -> Value {
    serde_json::to_value(schema).unwrap_or(Value::Bool(true))
}

/// OpenAPI keeps its definitions elsewhere.
fn relocate(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(to)) = map.get_mut("$ref")
                && let Some(name) = to.strip_prefix("#/components/schemas/")
            {
                *to = format!("#/$defs/{name}");
            }
            map.values_mut().for_each(relocate);
        }
        Value::Array(all) => all.iter_mut().for_each(relocate),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use parhelia_core::overview::Overview;

    use super::*;

    fn references(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                into.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|v| references(v, into));
            }
            Value::Array(all) => all.iter().for_each(|v| references(v, into)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let schema = of_answer::<Overview>();
        let mut all = Vec::new();
        references(&schema, &mut all);
        assert!(all.len() > 5, "{schema}");
        for reference in all {
            let name = reference.strip_prefix("#/$defs/").unwrap_or_else(|| panic!("{reference}"));
            assert!(schema["$defs"].get(name).is_some(), "{name} is not defined: {schema}");
        }
    }
}
