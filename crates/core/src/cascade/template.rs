//! Values in cascades: templates and expressions over what is known when a phase begins (or, for its outputs, ends).
//! Nothing here reaches a shell: what comes out is an argument, a variable or a value. Unknown names are mistakes, never
//! empty text, and both the work that a template may do and what it may give are bounded.

use std::io::{self, Write};
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Enumerator, Object, Serde, ValueKind};
use minijinja::{Environment, ErrorKind, UndefinedBehavior, Value as Known};
use serde_json::{Map, Value};
use thiserror::Error;

use super::mistake::{brief, did_you_mean, some_of};

/// Steps that one template may take.
const FUEL: u64 = 100_000;
/// What one template may give.
pub const MOST_BYTES: usize = 1 << 20;
/// The statements that a template may use. None of them can double a value again and again; a `set` phase computes.
const STATEMENTS: &[&str] = &["for", "endfor", "if", "elif", "else", "endif", "raw", "endraw"];

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{shown}': {reason}")]
pub struct TemplateError {
    pub shown: String,
    pub reason: String,
}

/// What templates can name: `inputs`, `outputs`, `session`, and what a phase adds. To copy one costs next to nothing.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    names: Vec<(Arc<str>, Named)>,
}

#[derive(Debug, Clone)]
enum Named {
    /// Brought over only as far as it is asked for: a session may have the outputs of thousands of phases.
    Map(Arc<Map<String, Value>>),
    Plain(Known),
}

/// A mapping, to a template.
#[derive(Debug)]
struct Lazy(Arc<Map<String, Value>>);

impl Object for Lazy {
    fn get_value(self: &Arc<Self>, key: &Known) -> Option<Known> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Known> {
        self.0.get(key).map(brought)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.keys().map(|key| Known::from(key.as_str())).collect())
    }
}

fn brought(value: &Value) -> Known {
    Known::from(Serde(value))
}

impl Object for Scope {
    fn get_value(self: &Arc<Self>, key: &Known) -> Option<Known> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Known> {
        self.names.iter().find(|(name, _)| **name == *key).map(|(_, named)| match named {
            Named::Map(map) => Known::from_object(Lazy(map.clone())),
            Named::Plain(value) => value.clone(),
        })
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.names.iter().map(|(name, _)| Known::from(name.as_ref())).collect())
    }
}

impl Scope {
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Self {
        let named = match value {
            Value::Object(map) => Named::Map(Arc::new(map)),
            other => Named::Plain(brought(&other)),
        };
        match self.names.iter_mut().find(|(known, _)| **known == *name) {
            Some((_, there)) => *there = named,
            None => self.names.push((name.into(), named)),
        }
        self
    }

    /// One more value in a mapping that is here; nothing else of it is touched.
    pub fn note(&mut self, name: &str, key: &str, value: Value) {
        if let Some((_, Named::Map(map))) = self.names.iter_mut().find(|(known, _)| **known == *name) {
            Arc::make_mut(map).insert(key.to_owned(), value);
        }
    }

    fn root(&self) -> Known {
        Known::from_object(self.clone())
    }

    /// Which part of `inputs.a.b` is not there, and what is in its stead.
    fn missing(&self, dotted: &str) -> Option<String> {
        let mut at = self.root();
        let mut way = String::new();
        for part in dotted.split('.') {
            let next = at.get_attr(part).ok().filter(|value| !value.is_undefined());
            let Some(next) = next else {
                let there: Vec<String> = match at.kind() {
                    ValueKind::Map => at.try_iter().ok()?.map(|key| key.to_string()).collect(),
                    _ => Vec::new(),
                };
                let whole = if way.is_empty() { part.to_owned() } else { format!("{way}.{part}") };
                let others = match (way.as_str(), there.as_slice()) {
                    ("", there) => format!("there is {}", some_of(there.iter().map(String::as_str))),
                    (_, []) => format!("{way} has nothing in it"),
                    (_, there) => format!("{way} has {}", some_of(there.iter().map(String::as_str))),
                };
                let like = did_you_mean(part, there.iter().map(String::as_str))
                    .map(|like| format!("; {like}"))
                    .unwrap_or_default();
                return Some(format!("there is no {}; {others}{like}", brief(&whole)));
            };
            if !way.is_empty() {
                way.push('.');
            }
            way.push_str(part);
            at = next;
        }
        None
    }
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    // What was written comes out as it was written.
    if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
        environment.set_syntax(syntax);
    }
    // Both make as much text as a number says.
    environment.remove_filter("indent");
    environment.remove_filter("format");
    environment.add_filter("tojson", |value: Known| as_json(&value).map(|json| json.to_string()));
    environment.add_filter("fromjson", |text: &str| {
        serde_json::from_str::<Value>(text)
            .map(|value| brought(&value))
            .map_err(|error| minijinja::Error::new(ErrorKind::InvalidOperation, format!("not JSON: {error}")))
    });
    // In the middle of text a value is shown as JSON, unless it is text.
    environment.set_formatter(|out, _, value| match value.kind() {
        ValueKind::Undefined => Err(ErrorKind::UndefinedError.into()),
        ValueKind::String => {
            out.write_str(value.as_str().unwrap_or_default()).map_err(minijinja::Error::from)
        }
        _ => write!(out, "{}", as_json(value)?).map_err(minijinja::Error::from),
    });
    environment
}

thread_local! {
    static ENVIRONMENT: Environment<'static> = environment();
}

fn as_json(value: &Known) -> Result<Value, minijinja::Error> {
    serde_json::to_value(value)
        .map_err(|error| minijinja::Error::new(ErrorKind::BadSerialization, error.to_string()))
}

fn problem(template: &str, reason: impl Into<String>) -> TemplateError {
    TemplateError { shown: brief(template.trim()), reason: reason.into() }
}

fn too_much(template: &str) -> TemplateError {
    problem(template, format!("gives more than {} KiB", MOST_BYTES >> 10))
}

fn failed(
    template: &str,
    error: &minijinja::Error,
    names: &[String],
    scope: Option<&Scope>,
) -> TemplateError {
    let kind = error.kind();
    if kind == ErrorKind::UndefinedError
        && let Some(scope) = scope
        && let Some(missing) = names.iter().find_map(|name| scope.missing(name))
    {
        return problem(template, missing);
    }
    let reason = match (kind, error.detail()) {
        (ErrorKind::OutOfFuel, _) => "does too much; a template may take 100,000 steps".to_owned(),
        (ErrorKind::SyntaxError, Some(detail)) => format!("is not a template: {detail}"),
        (_, Some(detail)) => format!("{kind}: {detail}"),
        (_, None) => kind.to_string(),
    };
    problem(template, reason)
}

/// The expression of a template that is nothing else: its value keeps its type.
fn alone(template: &str) -> Option<&str> {
    let inner = template.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let inner = inner.strip_prefix('-').unwrap_or(inner);
    let inner = inner.strip_suffix('-').unwrap_or(inner);
    (!inner.contains("{{") && !inner.contains("}}")).then_some(inner)
}

pub fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("{%") || text.contains("{#")
}

/// Refuses statements that a template has no use for.
fn statements(template: &str) -> Result<(), TemplateError> {
    for after in template.split("{%").skip(1) {
        let word = after.trim_start_matches(['-', '+']).trim_start();
        let word = word.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
        if !STATEMENTS.contains(&word) {
            let reason = format!("'{}' cannot be used here; there is {}", brief(word), STATEMENTS.join(", "));
            return Err(problem(template, reason));
        }
    }
    Ok(())
}

fn sorted(names: std::collections::HashSet<String>) -> Vec<String> {
    let mut names: Vec<String> = names.into_iter().collect();
    names.sort_unstable();
    names
}

/// Whatever a template refers to, as `inputs.a`; an error is that it does not parse.
pub fn names(template: &str) -> Result<Vec<String>, TemplateError> {
    if let Some(inner) = alone(template) {
        return names_of_expression(inner);
    }
    statements(template)?;
    ENVIRONMENT.with(|environment| {
        let compiled =
            environment.template_from_str(template).map_err(|e| failed(template, &e, &[], None))?;
        Ok(sorted(compiled.undeclared_variables(true)))
    })
}

/// Of a `when`, with or without its braces.
pub fn names_of_condition(condition: &str) -> Result<Vec<String>, TemplateError> {
    names_of_expression(alone(condition).unwrap_or(condition))
}

fn names_of_expression(text: &str) -> Result<Vec<String>, TemplateError> {
    ENVIRONMENT.with(|environment| {
        let compiled = environment.compile_expression(text).map_err(|e| failed(text, &e, &[], None))?;
        Ok(sorted(compiled.undeclared_variables(true)))
    })
}

fn evaluated(text: &str, scope: &Scope) -> Result<Known, TemplateError> {
    ENVIRONMENT.with(|environment| {
        let compiled = environment.compile_expression(text).map_err(|e| failed(text, &e, &[], None))?;
        let names = || sorted(compiled.undeclared_variables(true));
        let found = compiled.eval(scope.root()).map_err(|e| failed(text, &e, &names(), Some(scope)))?;
        if found.is_undefined() {
            let error = ErrorKind::UndefinedError.into();
            return Err(failed(text, &error, &names(), Some(scope)));
        }
        Ok(found)
    })
}

fn expression(text: &str, scope: &Scope) -> Result<Value, TemplateError> {
    let found = evaluated(text, scope)?;
    if found.as_str().is_some_and(|text| text.len() > MOST_BYTES) {
        return Err(too_much(text));
    }
    let value = as_json(&found).map_err(|e| failed(text, &e, &[], None))?;
    let mut room = Room { text: Vec::new(), most: MOST_BYTES, keeps: false, used: 0 };
    serde_json::to_writer(&mut room, &value).map_err(|_| too_much(text))?;
    Ok(value)
}

/// Takes so much, and no more.
struct Room {
    text: Vec<u8>,
    most: usize,
    keeps: bool,
    used: usize,
}

impl Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.used = self.used.saturating_add(bytes.len());
        if self.used > self.most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if self.keeps {
            self.text.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Text with its templates filled in.
pub fn text(template: &str, scope: &Scope) -> Result<String, TemplateError> {
    if !is_template(template) {
        return Ok(template.to_owned());
    }
    statements(template)?;
    ENVIRONMENT.with(|environment| {
        let compiled =
            environment.template_from_str(template).map_err(|e| failed(template, &e, &[], None))?;
        let mut room = Room { text: Vec::new(), most: MOST_BYTES, keeps: true, used: 0 };
        match compiled.render_captured_to(scope.root(), &mut room) {
            Ok(_) => {}
            Err(_) if room.used > room.most => return Err(too_much(template)),
            Err(e) => {
                return Err(failed(template, &e, &sorted(compiled.undeclared_variables(true)), Some(scope)));
            }
        }
        String::from_utf8(room.text).map_err(|_| problem(template, "gives what is not text"))
    })
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
    evaluated(alone(condition).unwrap_or(condition), scope).map(|found| found.is_true())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test the panic is the message")]
mod tests {
    use super::*;
    use serde_json::json;

    fn scope() -> Scope {
        Scope::default()
            .with("inputs", json!({ "n": 3, "name": "a'b; rm -rf /", "list": [1, 2], "flag": false }))
            .with("outputs", json!({ "build": { "version": "1.2", "none": null } }))
    }

    fn reason(template: &str) -> String {
        value(&json!(template), &scope()).unwrap_err().to_string()
    }

    #[test]
    fn a_template_alone_keeps_its_type_and_others_become_text() {
        assert_eq!(value(&json!("{{ inputs.n }}"), &scope()).unwrap(), json!(3));
        assert_eq!(
            value(&json!("{{ outputs.build }}"), &scope()).unwrap(),
            json!({"version": "1.2", "none": null})
        );
        assert_eq!(value(&json!({"a": ["{{ inputs.list }}"]}), &scope()).unwrap(), json!({"a": [[1, 2]]}));
        assert_eq!(text("v{{ outputs.build.version }}!\n", &scope()).unwrap(), "v1.2!\n");
        assert_eq!(text("{{ inputs.name }}", &scope()).unwrap(), "a'b; rm -rf /");
        assert_eq!(
            text(
                "{{ inputs.list }} {{ inputs.flag }} {{ outputs.build.none }} {{ outputs.build }}",
                &scope()
            )
            .unwrap(),
            r#"[1,2] false null {"none":null,"version":"1.2"}"#
        );
        assert_eq!(value(&json!("{{ '[1]' | fromjson }}"), &scope()).unwrap(), json!([1]));
        assert_eq!(value(&json!("{{ inputs.list | tojson }}"), &scope()).unwrap(), json!("[1,2]"));
        assert_eq!(text("{% for x in inputs.list %}{{ x }};{% endfor %}", &scope()).unwrap(), "1;2;");
    }

    #[test]
    fn what_is_not_there_is_a_mistake_that_names_what_is() {
        for wrong in ["{{ inputs.nope }}", "{{ nope }}", "{{ inputs.n", "x {{ outputs.build.nope }}"] {
            assert!(value(&json!(wrong), &scope()).is_err(), "{wrong}");
        }
        assert!(holds("inputs.nope", &scope()).is_err());
        assert_eq!(
            reason("x {{ outputs.build.versoin }}"),
            "'x {{ outputs.build.versoin }}': there is no outputs.build.versoin; outputs.build has none, version; \
             did you mean 'version'?"
        );
        assert_eq!(
            reason("{{ inputs.nope }}"),
            "'inputs.nope': there is no inputs.nope; inputs has flag, list, n, name"
        );
        assert_eq!(
            reason("{{ input.n }}"),
            "'input.n': there is no input; there is inputs, outputs; did you mean 'inputs'?"
        );
    }

    #[test]
    fn conditions_are_expressions() {
        assert!(holds("inputs.n > 2 and outputs.build.version == '1.2'", &scope()).unwrap());
        assert!(!holds("{{ inputs.n == 4 }}", &scope()).unwrap());
        assert!(holds("inputs.n >", &scope()).is_err());
    }

    #[test]
    fn a_template_that_never_ends_or_gives_too_much_is_stopped() {
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
        assert!(text(endless, &scope()).is_err());
        let large = Scope::default().with("x", json!("y".repeat(MOST_BYTES + 1)));
        for template in ["{{ x }}", "{{ x }}!", "{{ [x] }}"] {
            let error = value(&json!(template), &large).unwrap_err();
            assert_eq!(error.reason, "gives more than 1024 KiB", "{template}");
        }
        let doubling = "{% set a = 'xxxxxxxx' %}".to_owned() + &"{% set a = a ~ a %}".repeat(60) + "{{ a }}";
        assert!(reason(&doubling).contains("'set' cannot be used here"));
        assert!(value(&json!("{{ 'x' * 99999999999 }}"), &scope()).is_err());
    }

    #[test]
    fn names_are_known_before_anything_is_run() {
        assert_eq!(
            names("a {{ inputs.x }} {% if outputs.b.c %}{{ range(3) }}{% endif %}").unwrap(),
            ["inputs.x", "outputs.b.c", "range"]
        );
        assert_eq!(names_of_condition("{{ inputs.x and y.z }}").unwrap(), ["inputs.x", "y.z"]);
        assert!(names("{{ a").is_err());
        assert!(names_of_condition("a b").is_err());
    }
}
