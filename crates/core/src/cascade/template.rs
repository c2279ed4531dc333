//! Values in cascades: templates and expressions over what is known when a phase begins (or, for its outputs, ends).
//! Nothing here reaches a shell: what comes out is an argument, a variable or a value. Unknown names are mistakes, never
//! empty text, and both the work that a template may do and what it may give are bounded.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Enumerator, Object, Serde, ValueKind};
use minijinja::{Environment, ErrorKind, UndefinedBehavior, Value as Known};
use serde_json::{Map, Value};
use thiserror::Error;

use super::bounds;
use super::mistake::{brief, did_you_mean, some_of};

/// Steps that one template may take.
const FUEL: u64 = 100_000;
/// What one template may give.
pub const MOST_BYTES: usize = 1 << 20;
/// How deep what a template gives may go: what is kept is read again, and that has a bound.
const DEEPEST_VALUE: usize = 64;
/// The least that can be written, `0,`, takes so many times its text as a value.
const JSON_GROWS: usize = 12;
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
    Map(Arc<Lazy>),
    Plain(Known),
}

/// A mapping, to a template. What was brought over once is not copied again.
#[derive(Debug, Default)]
struct Lazy {
    map: Map<String, Value>,
    brought: Mutex<HashMap<String, Known>>,
}

impl Clone for Lazy {
    fn clone(&self) -> Self {
        Self { map: self.map.clone(), brought: Mutex::default() }
    }
}

impl Object for Lazy {
    fn get_value(self: &Arc<Self>, key: &Known) -> Option<Known> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Known> {
        let mut known = self.brought.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = known.get(key) {
            return Some(value.clone());
        }
        let value = self.map.get(key).map(brought)?;
        known.insert(key.to_owned(), value.clone());
        Some(value)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.map.keys().map(|key| Known::from(key.as_str())).collect())
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
            Named::Map(map) => Known::from_dyn_object(map.clone()),
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
            Value::Object(map) => Named::Map(Arc::new(Lazy { map, ..Lazy::default() })),
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
            let there = Arc::make_mut(map);
            there.map.insert(key.to_owned(), value);
            there.brought.get_mut().unwrap_or_else(PoisonError::into_inner).remove(key);
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
    environment.set_syntax(syntax());
    bounds::set(&mut environment);
    environment.add_filter("tojson", |value: Known| json_text(&value));
    environment.add_filter("fromjson", |text: &str| {
        bounds::spend(text.len().saturating_mul(JSON_GROWS))?;
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
        _ => out.write_str(&json_text(value)?).map_err(minijinja::Error::from),
    });
    environment
}

/// What was written comes out as it was written.
fn syntax() -> SyntaxConfig {
    SyntaxConfig::builder().keep_trailing_newline(true).build().unwrap_or_default()
}

thread_local! {
    static ENVIRONMENT: Environment<'static> = environment();
}

/// As JSON, unless it is too much: nothing is made before it is known how much it is.
fn json_text(value: &Known) -> Result<String, minijinja::Error> {
    let mut room = Room::new(true);
    written(value, &mut room)?;
    bounds::spend(room.used)?;
    String::from_utf8(room.text)
        .map_err(|error| minijinja::Error::new(ErrorKind::BadSerialization, error.to_string()))
}

fn written(value: &Known, room: &mut Room) -> Result<(), minijinja::Error> {
    serde_json::to_writer(&mut *room, value).map_err(|error| match room.used > MOST_BYTES {
        true => minijinja::Error::new(ErrorKind::WriteFailure, gives_too_much()),
        false => minijinja::Error::new(ErrorKind::BadSerialization, error.to_string()),
    })
}

fn gives_too_much() -> String {
    format!("gives more than {} KiB", MOST_BYTES >> 10)
}

fn problem(template: &str, reason: impl Into<String>) -> TemplateError {
    TemplateError { shown: brief(template.trim()), reason: reason.into() }
}

fn too_much(template: &str) -> TemplateError {
    problem(template, gives_too_much())
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
        (ErrorKind::WriteFailure, Some(detail)) => detail.to_owned(),
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

fn guarded(template: &str, is_expression: bool) -> Result<std::borrow::Cow<'_, str>, TemplateError> {
    bounds::guarded(template, is_expression, &syntax()).map_err(|e| failed(template, &e, &[], None))
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
    let guarded = guarded(template, false)?;
    ENVIRONMENT.with(|environment| {
        let compiled =
            environment.template_from_str(&guarded).map_err(|e| failed(template, &e, &[], None))?;
        Ok(sorted(compiled.undeclared_variables(true)))
    })
}

/// Of a `when`, with or without its braces.
pub fn names_of_condition(condition: &str) -> Result<Vec<String>, TemplateError> {
    names_of_expression(alone(condition).unwrap_or(condition))
}

fn names_of_expression(text: &str) -> Result<Vec<String>, TemplateError> {
    let guarded = guarded(text, true)?;
    ENVIRONMENT.with(|environment| {
        let compiled = environment.compile_expression(&guarded).map_err(|e| failed(text, &e, &[], None))?;
        Ok(sorted(compiled.undeclared_variables(true)))
    })
}

fn evaluated(text: &str, scope: &Scope) -> Result<Known, TemplateError> {
    let guarded = guarded(text, true)?;
    ENVIRONMENT.with(|environment| {
        let compiled = environment.compile_expression(&guarded).map_err(|e| failed(text, &e, &[], None))?;
        bounds::begin();
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
    written(&found, &mut Room::new(false)).map_err(|e| failed(text, &e, &[], None))?;
    let value = serde_json::to_value(&found).map_err(|e| problem(text, e.to_string()))?;
    if deeper(&value, DEEPEST_VALUE) {
        return Err(problem(text, format!("goes more than {DEEPEST_VALUE} deep")));
    }
    Ok(value)
}

fn deeper(value: &Value, than: usize) -> bool {
    let Some(than) = than.checked_sub(1) else { return true };
    match value {
        Value::Array(items) => items.iter().any(|item| deeper(item, than)),
        Value::Object(map) => map.values().any(|item| deeper(item, than)),
        _ => false,
    }
}

/// Takes so much, and no more.
struct Room {
    text: Vec<u8>,
    keeps: bool,
    used: usize,
}

impl Room {
    fn new(keeps: bool) -> Self {
        Self { text: Vec::new(), keeps, used: 0 }
    }
}

impl Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.used = self.used.saturating_add(bytes.len());
        if self.used > MOST_BYTES {
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
    let guarded = guarded(template, false)?;
    ENVIRONMENT.with(|environment| {
        let compiled =
            environment.template_from_str(&guarded).map_err(|e| failed(template, &e, &[], None))?;
        bounds::begin();
        let mut room = Room::new(true);
        match compiled.render_captured_to(scope.root(), &mut room) {
            Ok(_) => {}
            Err(_) if room.used > MOST_BYTES => return Err(too_much(template)),
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

    /// Each of these would take gigabytes, or hours.
    #[test]
    fn no_number_and_no_combination_makes_a_template_take_more_than_its_bounds() {
        let scope = Scope::default().with(
            "inputs",
            json!({ "n": 95_000_000, "big": "y".repeat(1 << 20), "one": "x", "list": vec![1; 400_000], "few": [1] }),
        );
        let many = |part: &str, times: usize| vec![part; times].join(", ");
        let hostile = [
            "[1] * inputs.n".to_owned(),
            "inputs.n * [1]".to_owned(),
            "inputs.n * 1|string".to_owned(),
            "inputs.n * 1 is odd|string".to_owned(),
            "'x' * 100000000".to_owned(),
            "-2 * 'x' * 3".to_owned(),
            "([1] * inputs.n) | length".to_owned(),
            "[[1] * 9999] * 9999 == [[1] * 9999] * 9999".to_owned(),
            format!("[{}]", many("'x' * 100000000", 150)),
            "([1] | batch(1000000000000, 'x')) | length".to_owned(),
            "([1] | slice(1000000000000, 'x')) | length".to_owned(),
            "inputs.few | batch(inputs.n, 'x') | list | length".to_owned(),
            "range(99999999999)".to_owned(),
            "range(100000) | list | tojson | length".to_owned()
                + &" ~ range(100000) | list | length".repeat(200),
            "inputs.big | replace('y', inputs.big) | length".to_owned(),
            "inputs.big | replace('', inputs.big) | length".to_owned(),
            "inputs.list | join(inputs.big) | length".to_owned(),
            "inputs.list | join(d=inputs.big) | length".to_owned(),
            "inputs.big | join(inputs.big) | length".to_owned(),
            format!("({}) | length", vec!["inputs.big"; 300].join(" ~ ")),
            format!("({}) | length", vec!["inputs.big"; 300].join(" + ")),
            format!("({}) | length", vec!["inputs.list"; 300].join(" + ")),
            format!("[{}] | length", many("'' ~ inputs.big", 150)),
            format!("[{}] | length", many("inputs.big[0:]", 100)),
            format!("[{}] | length", many("inputs.big | upper", 100)),
            format!("[{}] | length", many("inputs.list | list", 100)),
            format!("[{}] | string | length", many("inputs.list", 150)),
            format!("[{}] | tojson | length", many("inputs.list", 150)),
            format!("[{}] | sort | length", many("inputs.list", 150)),
            format!("[{}] | sum(start='') | length", many("inputs.big", 150)),
            "inputs.list | select('in', inputs.list) | list | length".to_owned(),
            "inputs.list | map('replace', '1', inputs.big) | list | length".to_owned(),
            "inputs.list | pprint | length".to_owned(),
            "'x' | indent(1000000000000)".to_owned(),
            "'%1000000000000d' | format(1)".to_owned(),
        ];
        for expression in &hostile {
            let shown = brief(expression);
            assert!(value(&json!(format!("{{{{ {expression} }}}}")), &scope).is_err(), "{shown}");
            assert!(text(&format!("a {{{{ {expression} }}}}"), &scope).is_err(), "{shown}");
            assert!(holds(&format!("{expression} == 1"), &scope).is_err(), "{shown}");
            let _ = names(&format!("{{{{ {expression} }}}}"));
        }
        for chain in ["1", "x.y", "not 1", "- 1", "1|abs"] {
            for sign in [" + ", " ~ ", " and ", " if 1 else ", "|abs + ", "[0] in "] {
                let long = vec![chain; 20_000].join(sign);
                assert!(names(&format!("{{{{ {long} }}}}")).is_err(), "{chain}{sign}");
                assert!(names(&format!("a {{{{ {long} }}}}")).is_err(), "{chain}{sign}");
                // As long as it may be, it is only wrong or right.
                let _ = text(&format!("a {{{{ {} }}}}", vec![chain; 200].join(sign)), &scope);
            }
        }
        let branches = format!("{{% if 1 %}}a{}{{% endif %}}", "{% elif 1 %}b".repeat(20_000));
        assert!(names(&branches).is_err());
        let recursive = "{% for x in [1, 1] recursive %}{{ inputs.big }}{{ loop([1, 1]) }}{% endfor %}";
        assert!(text(recursive, &scope).is_err());
        // What is named again and again is there once.
        let shared = format!("{{{{ [{}] | length }}}}", many("inputs.big", 150));
        assert_eq!(value(&json!(shared), &scope).unwrap(), json!(150));
    }

    #[test]
    fn a_value_is_never_deeper_than_what_can_be_read_again() {
        let mut deep = json!(1);
        for _ in 0..70 {
            deep = json!([deep]);
        }
        let deep = Scope::default().with("x", json!({ "y": deep }));
        assert!(value(&json!("{{ x.y }}"), &deep).unwrap_err().reason.contains("64 deep"));
    }

    #[test]
    fn operators_mean_what_they_meant() {
        for (expression, is) in [
            ("inputs.n * 2 + 1", json!(7)),
            ("2 * inputs.n ** 2 - -1", json!(19)),
            ("1 + 2 * 3 * -2", json!(-11)),
            ("inputs.n * '4'|int", json!(12)),
            ("'4'|int * inputs.list[1] * (1 + 1)", json!(16)),
            ("inputs.n * outputs.build.version|float", json!(3.5999999999999996)),
            ("inputs.list + [3]", json!([1, 2, 3])),
            ("'a' ~ inputs.n * 2 ~ 'b'", json!("a6b")),
            ("'a' + 'b' if inputs.n * 2 > 5 and not inputs.flag else 'c'", json!("ab")),
            ("inputs.list[0:1] + inputs.list[1:]", json!([1, 2])),
            ("outputs.build.version[0:1]|int + 1", json!(2)),
            ("{'a': 1 * 2}.a * 2", json!(4)),
            ("inputs.list | map('string') | join('*')", json!("1*2")),
            ("inputs.list | select('odd') | list + [inputs.n]", json!([1, 3])),
            ("[3, 1] | sort | first * 2", json!(2)),
            ("range(inputs.n) | sum * 2", json!(6)),
            ("'a-b' | replace('-', '+')", json!("a+b")),
        ] {
            let got = value(&json!(format!("{{{{ {expression} }}}}")), &scope());
            assert_eq!(got.unwrap(), is, "{expression}");
        }
        assert_eq!(
            text("2 * 3 {% raw %}{{ 2 * 3 }}{% endraw %}{# * #}\n", &scope()).unwrap(),
            "2 * 3 {{ 2 * 3 }}\n"
        );
        let mistake = reason("{{ inputs.nope * 2 }}");
        assert_eq!(mistake, "'inputs.nope * 2': there is no inputs.nope; inputs has flag, list, n, name");
        assert!(
            reason("{{ 'x' * 3 }}").contains("only numbers can be multiplied"),
            "{}",
            reason("{{ 'x' * 3 }}")
        );
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
