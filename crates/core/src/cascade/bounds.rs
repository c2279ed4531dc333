//! What a template may use up. Steps are counted by the engine itself; here is the rest: whatever is copied, joined or listed on
//! the way is weighed before it is made, so that no template can take more memory than this, whatever numbers it is given.
//! Operators cannot be replaced in the engine: their operands go through a filter instead, which is put beside them.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters, functions};

/// What one template may handle on its way, in bytes; about what its values take in memory.
const MOST_HANDLED: usize = 32 << 20;
/// A value in a list, beside what is in it.
const ONE: usize = 24;
/// Words and signs of one expression: what is chained is read and run by recursion.
const MOST_TOKENS: usize = 1_000;
/// `elif`s of one template, for the same reason.
const MOST_BRANCHES: usize = 100;
/// Filter of the operands of `*`: neither text nor a list is repeated.
const NUMBER: &str = "number";
/// Filter of the operands of `+` and `~`, and of what was sliced: weighs, and changes nothing.
const WEIGHED: &str = "weighed";

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(MOST_HANDLED) };
}

/// A template begins.
pub(super) fn begin() {
    LEFT.set(MOST_HANDLED);
}

fn refused(detail: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail)
}

fn too_much() -> Error {
    refused(format!("it handles more than {} MiB", MOST_HANDLED >> 20))
}

pub(super) fn spend(bytes: usize) -> Result<(), Error> {
    let left = LEFT.get().checked_sub(bytes);
    LEFT.set(left.unwrap_or(0));
    left.map(drop).ok_or_else(too_much)
}

fn weigh(value: &Value) -> Result<(), Error> {
    spend(ONE)?;
    match value.kind() {
        ValueKind::String => spend(value.as_str().map_or(0, str::len)),
        ValueKind::Bytes => spend(value.as_bytes().map_or(0, <[u8]>::len)),
        ValueKind::Map => value.try_iter()?.try_for_each(|key| {
            weigh(&key)?;
            value.get_item(&key).map_or(Ok(()), |item| weigh(&item))
        }),
        ValueKind::Seq | ValueKind::Iterable => value.try_iter()?.try_for_each(|item| weigh(&item)),
        _ => Ok(()),
    }
}

/// How often a filter that goes through this value does what it does.
fn items(value: &Value) -> usize {
    value.try_iter().map_or(1, Iterator::count)
}

/// Beyond the weight of what it is given: what a filter makes of it.
fn extra(name: &str, args: &[Value]) -> Result<(), Error> {
    let (Some(subject), rest) = (args.first(), args.get(1..).unwrap_or_default()) else { return Ok(()) };
    let length = |value: Option<&Value>| value.and_then(Value::as_str).map_or(0, str::len);
    match name {
        "replace" => {
            let from = rest.first().and_then(Value::as_str).unwrap_or_default();
            let found = subject.as_str().map_or(0, |text| text.matches(from).count());
            spend(found.saturating_mul(length(rest.get(1))))
        }
        "join" => {
            let named = rest.iter().find_map(|arg| Kwargs::try_from(arg.clone()).ok());
            let named = named.and_then(|named| named.get::<Option<Value>>("d").ok().flatten());
            let between = length(rest.first()).max(length(named.as_ref()));
            spend(items(subject).saturating_mul(between.saturating_add(ONE)))
        }
        "batch" | "slice" => {
            spend(rest.first().and_then(Value::as_usize).unwrap_or(0).saturating_mul(2 * ONE))
        }
        "select" | "reject" | "selectattr" | "rejectattr" => {
            let before = LEFT.get();
            rest.iter().try_for_each(weigh)?;
            spend(items(subject).saturating_mul(before.saturating_sub(LEFT.get())))
        }
        "sum" if subject.try_iter()?.any(|item| item.kind() == ValueKind::String) => {
            Err(refused("only numbers have a sum; use join for text"))
        }
        _ => Ok(()),
    }
}

fn metered(environment: &mut Environment<'static>, name: &'static str, filter: Value) {
    environment.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
        let args = args.into_values();
        args.iter().try_for_each(weigh)?;
        extra(name, &args)?;
        let made = filter.call(state, &args)?;
        weigh(&made).map(|()| made)
    });
}

fn number(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Number => Ok(value),
        ValueKind::Undefined => Err(ErrorKind::UndefinedError.into()),
        kind => Err(refused(format!("only numbers can be multiplied, and this is a {kind}"))),
    }
}

/// Everything that makes more than it is given, or goes through it, is metered; what makes as much as a number says is not here.
pub(super) fn set(environment: &mut Environment<'static>) {
    macro_rules! meter {
        ($($name:ident),*) => {
            $(metered(environment, stringify!($name), Value::from_function(filters::$name));)*
        };
    }
    meter!(upper, lower, title, capitalize, trim, replace, reverse, split, lines, join, string, safe, escape);
    meter!(list, sort, unique, map, select, reject, selectattr, rejectattr, groupby, dictsort, items);
    meter!(zip, chain, batch, slice, sum, min, max, first, last);
    metered(environment, "e", Value::from_function(filters::escape));
    for absent in ["indent", "format", "pprint"] {
        environment.remove_filter(absent);
    }
    for absent in ["debug", "namespace"] {
        environment.remove_global(absent);
    }
    environment.add_function("range", |lower: isize, upper: Option<isize>, step: Option<isize>| {
        let made = functions::range(lower, upper, step)?;
        spend(made.len().unwrap_or(0).saturating_mul(ONE)).map(|()| made)
    });
    environment.add_function("dict", |value: Option<Value>, named: Kwargs| {
        value.iter().try_for_each(weigh)?;
        functions::dict(value, named)
    });
    environment.add_filter(NUMBER, number);
    environment.add_filter(WEIGHED, |value: Value| {
        if value.is_undefined() {
            return Err(ErrorKind::UndefinedError.into());
        }
        weigh(&value).map(|()| value)
    });
}

/// The template with a filter beside every operand that has to be looked at.
pub(super) fn guarded<'a>(
    template: &'a str,
    is_expression: bool,
    syntax: &SyntaxConfig,
) -> Result<Cow<'a, str>, Error> {
    let mut tokens = Vec::new();
    let (mut began, mut branches) = (0usize, 0usize);
    for token in tokenize(template, is_expression, syntax.clone()) {
        let (token, span) = token?;
        match token {
            Token::TemplateData(_) | Token::VariableStart | Token::BlockStart => began = tokens.len(),
            Token::Ident("elif") => branches += 1,
            _ => {}
        }
        if tokens.len() - began > MOST_TOKENS {
            return Err(refused(format!("an expression is at most {MOST_TOKENS} words and signs")));
        }
        if branches > MOST_BRANCHES {
            return Err(refused(format!("a template has at most {MOST_BRANCHES} 'elif'")));
        }
        tokens.push((token, span.start_offset as usize, span.end_offset as usize));
    }
    let mut guards: BTreeMap<usize, &str> = BTreeMap::new();
    let mut guard = |after: usize, filter| {
        let there = guards.entry(after).or_insert(filter);
        // What has to be a number is light.
        if filter == NUMBER {
            *there = NUMBER;
        }
    };
    for (n, (token, _, end)) in tokens.iter().enumerate() {
        let before = n.checked_sub(1).and_then(|n| tokens.get(n));
        let filter = match token {
            // `f(*these)`.
            Token::Mul if matches!(before, Some((Token::ParenOpen | Token::Comma, ..))) => continue,
            Token::Mul => NUMBER,
            Token::Plus | Token::Tilde => WEIGHED,
            // A piece of text is a copy of it.
            Token::BracketClose if is_slice(&tokens, n) => {
                guard(operand_end(&tokens, n + 1).unwrap_or(*end), WEIGHED);
                continue;
            }
            // It would keep what it gives, unseen.
            Token::Ident("recursive") if matches!(tokens.get(n + 1), Some((Token::BlockEnd, ..))) => {
                return Err(refused("'recursive' cannot be used here"));
            }
            _ => continue,
        };
        if let Some((_, _, end)) = before {
            guard(*end, filter);
        }
        if let Some(end) = operand_end(&tokens, n + 1) {
            guard(end, filter);
        }
    }
    if guards.is_empty() {
        return Ok(Cow::Borrowed(template));
    }
    let mut guarded = String::with_capacity(template.len() + guards.len() * 10);
    let mut at = 0;
    for (after, filter) in guards {
        guarded.push_str(template.get(at..after).unwrap_or_default());
        guarded.push_str(" | ");
        guarded.push_str(filter);
        guarded.push(' ');
        at = after;
    }
    guarded.push_str(template.get(at..).unwrap_or_default());
    Ok(Cow::Owned(guarded))
}

type Placed<'a> = (Token<'a>, usize, usize);

fn opens(token: &Token<'_>) -> bool {
    matches!(token, Token::ParenOpen | Token::BracketOpen | Token::BraceOpen)
}

fn closes(token: &Token<'_>) -> bool {
    matches!(token, Token::ParenClose | Token::BracketClose | Token::BraceClose)
}

/// Where the operand that begins (or goes on) with this token ends: itself, what is taken of it, its filters and tests.
fn operand_end(tokens: &[Placed<'_>], first: usize) -> Option<usize> {
    let mut depth = 0usize;
    let mut end = None;
    let mut before: Option<&Token<'_>> = None;
    for (token, _, token_end) in tokens.get(first..)? {
        if depth == 0 {
            let begins = end.is_none() && matches!(token, Token::Minus) || !is_operator(token);
            let named = matches!(before, Some(Token::Dot | Token::Pipe | Token::Ident("is")));
            let word = matches!(token, Token::Ident("and" | "or" | "not" | "in" | "if" | "else"));
            if !begins || closes(token) || (word && !named) {
                return end;
            }
            if matches!(token, Token::Minus) {
                continue;
            }
        }
        if opens(token) {
            depth += 1;
        } else if closes(token) {
            depth -= 1;
        }
        if depth == 0 {
            end = Some(*token_end);
        }
        before = Some(token);
    }
    end
}

fn is_operator(token: &Token<'_>) -> bool {
    !opens(token)
        && !closes(token)
        && !matches!(
            token,
            Token::Ident(_)
                | Token::Str(_)
                | Token::String(_)
                | Token::Int(_)
                | Token::Int128(_)
                | Token::Float(_)
                | Token::Dot
                | Token::Pipe
        )
}

/// Whether the bracket that is closed here is `x[a:b]`.
fn is_slice(tokens: &[Placed<'_>], close: usize) -> bool {
    let mut depth = 0usize;
    for (token, ..) in tokens.iter().take(close).rev() {
        match token {
            token if closes(token) => depth += 1,
            Token::Colon if depth == 0 => return true,
            token if opens(token) && depth == 0 => return false,
            token if opens(token) => depth -= 1,
            _ => {}
        }
    }
    false
}
