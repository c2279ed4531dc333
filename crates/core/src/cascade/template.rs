//! Values in cascades: templates and expressions over what is known when a phase begins (or, for its outputs, ends).
//! Nothing here reaches a shell: what comes out is an argument, a variable or a value. Unknown names are mistakes, never
//! empty text, and the work that a template may do is bounded.

use minijinja::{Environment, UndefinedBehavior};
use serde_json::{Map, Value};
use thiserror::Error;

/// Steps that one template may take.
const FUEL: u64 = 100_000;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{shown}': {reason}")]
pub struct TemplateError {
    pub shown: String,
    pub reason: String,
}

/// What templates can name: `inputs`, `outputs`, `session`, and what a phase adds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scope {
    pub values: Map<String, Value>,
}

impl Scope {
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.values.insert(name.to_owned(), value);
        self
    }
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment
}

fn failed(template: &str, error: &minijinja::Error) -> TemplateError {
    let mut shown: String = template.chars().take(80).collect();
    if shown.len() < template.len() {
        shown.push('…');
    }
    let reason = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    TemplateError { shown, reason }
}

/// The expression of a template that is nothing else: its value keeps its type.
fn alone(template: &str) -> Option<&str> {
    let inner = template.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    (!inner.contains("{{") && !inner.contains("}}")).then_some(inner)
}

pub fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("{%")
}

fn expression(text: &str, scope: &Scope) -> Result<Value, TemplateError> {
    let environment = environment();
    let compiled = environment.compile_expression(text).map_err(|e| failed(text, &e))?;
    let found = compiled.eval(&scope.values).map_err(|e| failed(text, &e))?;
    if found.is_undefined() {
        return Err(TemplateError {
            shown: text.trim().chars().take(80).collect(),
            reason: "there is no such value".to_owned(),
        });
    }
    serde_json::to_value(&found).map_err(|e| TemplateError { shown: text.to_owned(), reason: e.to_string() })
}

/// Text with its templates filled in.
pub fn text(template: &str, scope: &Scope) -> Result<String, TemplateError> {
    if !is_template(template) {
        return Ok(template.to_owned());
    }
    environment().render_str(template, &scope.values).map_err(|e| failed(template, &e))
}

/// Any value, with every template in it filled in.
pub fn value(template: &Value, scope: &Scope) -> Result<Value, TemplateError> {
    Ok(match template {
        Value::String(given) if is_template(given) => match alone(given) {
            Some(inner) => expression(inner, scope)?,
            None => Value::String(text(given, scope)?),
        },
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| value(item, scope)).collect::<Result<_, _>>()?)
        }
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(k, v)| Ok((k.clone(), value(v, scope)?)))
                .collect::<Result<_, TemplateError>>()?,
        ),
        plain => plain.clone(),
    })
}

/// Whether a `when` holds: an expression, with or without its braces.
pub fn holds(condition: &str, scope: &Scope) -> Result<bool, TemplateError> {
    let inner = alone(condition).unwrap_or(condition);
    let environment = environment();
    let compiled = environment.compile_expression(inner).map_err(|e| failed(condition, &e))?;
    Ok(compiled.eval(&scope.values).map_err(|e| failed(condition, &e))?.is_true())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test the panic is the message")]
mod tests {
    use super::*;
    use serde_json::json;

    fn scope() -> Scope {
        Scope::default()
            .with("inputs", json!({ "n": 3, "name": "a'b; rm -rf /", "list": [1, 2] }))
            .with("outputs", json!({ "build": { "version": "1.2" } }))
    }

    #[test]
    fn a_template_alone_keeps_its_type_and_others_become_text() {
        assert_eq!(value(&json!("{{ inputs.n }}"), &scope()).unwrap(), json!(3));
        assert_eq!(value(&json!({"a": ["{{ inputs.list }}"]}), &scope()).unwrap(), json!({"a": [[1, 2]]}));
        assert_eq!(text("v{{ outputs.build.version }}!", &scope()).unwrap(), "v1.2!");
        assert_eq!(text("{{ inputs.name }}", &scope()).unwrap(), "a'b; rm -rf /");
    }

    #[test]
    fn what_is_not_there_is_a_mistake() {
        for wrong in ["{{ inputs.nope }}", "{{ nope }}", "{{ inputs.n", "x {{ outputs.build.nope }}"] {
            assert!(value(&json!(wrong), &scope()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn conditions_are_expressions() {
        assert!(holds("inputs.n > 2 and outputs.build.version == '1.2'", &scope()).unwrap());
        assert!(!holds("{{ inputs.n == 4 }}", &scope()).unwrap());
        assert!(holds("inputs.n >", &scope()).is_err());
    }

    #[test]
    fn a_template_that_never_ends_is_stopped() {
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
        assert!(text(endless, &scope()).is_err());
    }
}
