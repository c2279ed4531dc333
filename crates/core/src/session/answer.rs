//! Whether an answer fits what was asked, and which value the session then goes on with. Pure: the same wait and the
//! same words give the same value, wherever they come from.

use regex::Regex;
use serde_json::Value;
use thiserror::Error;

use super::api::Verdict;
use super::{BlockedType, WaitRow};
use crate::cascade::{Question, QuestionKind};

/// What somebody said to a wait.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// Exactly this value.
    Value(Value),
    /// What somebody typed: read as what the question wants.
    Text(String),
    /// What somebody picked.
    Choices(Vec<String>),
    Approve,
    Deny,
}

/// An answer that does not fit, and what would.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Unfit {
    pub message: String,
    /// In the words of somebody who is about to answer.
    pub fits: String,
}

impl Unfit {
    /// Both, without saying anything twice.
    pub fn told(&self) -> String {
        if self.message.contains(&self.fits) {
            return self.message.clone();
        }
        format!("{}; it wants: {}", self.message, self.fits)
    }
}

/// How a wait is to be answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// Yes or no to something that would be done: approval and checkpoint.
    Permission,
    Question(Question),
    /// Whatever somebody writes.
    FreeText,
    /// A signal or a sensor ends it, and no person.
    Nobody,
}

impl Asked {
    pub fn of(wait: &WaitRow) -> Self {
        Self::by(wait.wait_type, &wait.question)
    }

    pub fn by(kind: BlockedType, question: &Value) -> Self {
        match kind {
            BlockedType::Signal | BlockedType::Sensor => Self::Nobody,
            BlockedType::Approval | BlockedType::Checkpoint => Self::Permission,
            BlockedType::Hitl => {
                serde_json::from_value(question.clone()).map_or(Self::FreeText, Self::Question)
            }
        }
    }

    /// What an answer looks like, for whoever is asked.
    pub fn fits(&self) -> String {
        match self {
            Self::Permission => "approve or deny it".to_owned(),
            Self::FreeText => "any text".to_owned(),
            Self::Nobody => "no person answers it".to_owned(),
            Self::Question(question) => match question.kind {
                QuestionKind::Confirmation => "yes or no".to_owned(),
                QuestionKind::Choice => format!("one of: {}", question.options.join(", ")),
                QuestionKind::MultiChoice => format!("any of: {}", question.options.join(", ")),
                QuestionKind::Text => match &question.pattern {
                    Some(pattern) => format!("a text that matches {pattern}"),
                    None => "any text".to_owned(),
                },
                QuestionKind::Rating => {
                    let (min, max) = bounds(question);
                    format!("a whole number from {min} to {max}")
                }
            },
        }
    }

    /// The value that the session goes on with.
    pub fn read(&self, reply: &Reply) -> Result<Value, Unfit> {
        let unfit = |message: String| Unfit { message, fits: self.fits() };
        match (self, reply) {
            (Self::Nobody, _) => Err(Unfit {
                message: "it waits for a signal or a sensor, which no person answers".to_owned(),
                fits: "fire the signal that it waits for, or cancel its session".to_owned(),
            }),
            (Self::Permission, Reply::Approve) => Ok(Value::Bool(true)),
            (Self::Permission, Reply::Deny) => Ok(Value::Bool(false)),
            (Self::Permission, Reply::Value(Value::Bool(_)) | Reply::Text(_)) => yes_or_no(reply)
                .ok_or_else(|| unfit("it is an approval, and that is neither yes nor no".into())),
            (Self::Permission, _) => Err(unfit("it is an approval, not a question".into())),
            (Self::Question(Question { kind: QuestionKind::Confirmation, .. }), Reply::Approve) => {
                Ok(Value::Bool(true))
            }
            (Self::Question(Question { kind: QuestionKind::Confirmation, .. }), Reply::Deny) => {
                Ok(Value::Bool(false))
            }
            (_, Reply::Approve | Reply::Deny) => {
                Err(unfit("it is a question: it can be answered, not approved or denied".into()))
            }
            (Self::FreeText, Reply::Text(text) | Reply::Value(Value::String(text))) => {
                Ok(Value::String(text.clone()))
            }
            (Self::FreeText, Reply::Choices(_)) => Err(unfit("it has no options to choose from".into())),
            (Self::FreeText, Reply::Value(other)) => Err(unfit(format!("{} is not a text", kind_of(other)))),
            (Self::Question(question), reply) => {
                answer(question, reply).map_err(|message| Unfit { message, fits: self.fits() })
            }
        }
    }
}

fn answer(question: &Question, reply: &Reply) -> Result<Value, String> {
    let text = match reply {
        Reply::Text(text) | Reply::Value(Value::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match question.kind {
        QuestionKind::Confirmation => yes_or_no(reply).ok_or_else(|| "it wants yes or no".to_owned()),
        QuestionKind::Choice => match (reply, text) {
            (Reply::Choices(chosen), _) => match chosen.as_slice() {
                [only] => option(question, only).map(Value::String),
                [] => Err("nothing was chosen".to_owned()),
                _ => Err(format!("it wants one of its options, and {} were chosen", chosen.len())),
            },
            (_, Some(text)) => option(question, text).map(Value::String),
            (Reply::Value(other), None) => {
                Err(format!("it wants one of its options, not {}", kind_of(other)))
            }
            _ => Err("it wants one of its options".to_owned()),
        },
        QuestionKind::MultiChoice => {
            let chosen: Vec<String> = match reply {
                Reply::Choices(chosen) => chosen.clone(),
                Reply::Value(Value::Array(list)) => list
                    .iter()
                    .map(|one| one.as_str().map(str::to_owned).ok_or_else(|| kind_of(one)))
                    .collect::<Result<_, _>>()
                    .map_err(|kind| format!("it wants a list of its options, and {kind} is in it"))?,
                Reply::Text(text) if option(question, text).is_ok() => vec![text.clone()],
                Reply::Text(text) => {
                    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
                    let words: Vec<String> = words.map(str::to_owned).collect();
                    if words.is_empty() {
                        return Err(
                            "nothing was chosen (none of them, if that is meant, is the JSON list [])"
                                .to_owned(),
                        );
                    }
                    words
                }
                Reply::Value(other) => {
                    return Err(format!("it wants a list of its options, not {}", kind_of(other)));
                }
                Reply::Approve | Reply::Deny => return Err("it wants a list of its options".to_owned()),
            };
            let mut taken: Vec<Value> = Vec::with_capacity(chosen.len());
            for word in &chosen {
                let one = Value::String(option(question, word)?);
                if taken.contains(&one) {
                    return Err(format!("'{}' was chosen twice", shown(word)));
                }
                taken.push(one);
            }
            Ok(Value::Array(taken))
        }
        QuestionKind::Text => {
            let text = text.ok_or("it wants a text")?;
            if let Some(pattern) = &question.pattern {
                let whole = Regex::new(&format!("^(?:{pattern})$")).map_err(|_| {
                    "its own pattern cannot be read: the cascade must be corrected".to_owned()
                })?;
                if !whole.is_match(text) {
                    return Err(format!("'{}' does not match", shown(text)));
                }
            }
            Ok(Value::String(text.to_owned()))
        }
        QuestionKind::Rating => {
            let given = match reply {
                Reply::Value(value) => whole_number(value),
                Reply::Text(text) => text.trim().parse().ok(),
                _ => None,
            };
            let given: i64 = given.ok_or("it wants a whole number")?;
            let (min, max) = bounds(question);
            if given < min || given > max {
                return Err(format!("{given} is out of range"));
            }
            Ok(Value::from(given))
        }
    }
}

/// `4` and `4.0` are the same number.
fn whole_number(value: &Value) -> Option<i64> {
    let exact = |number: f64| number.fract() == 0.0 && number.abs() < 1e15;
    value.as_i64().or_else(|| value.as_f64().filter(|number| exact(*number)).map(|number| number as i64))
}

fn bounds(question: &Question) -> (i64, i64) {
    (question.min.map_or(1, |min| min.ceil() as i64), question.max.map_or(5, |max| max.floor() as i64))
}

/// The option that is meant: the same text, or the only one that differs by capitals alone.
fn option(question: &Question, given: &str) -> Result<String, String> {
    if let Some(same) = question.options.iter().find(|option| *option == given) {
        return Ok(same.clone());
    }
    let given = given.trim();
    let mut alike = question.options.iter().filter(|option| option.trim().eq_ignore_ascii_case(given));
    match (alike.next(), alike.next()) {
        (Some(only), None) => Ok(only.clone()),
        _ => Err(format!("'{}' is none of its options", shown(given))),
    }
}

fn yes_or_no(reply: &Reply) -> Option<Value> {
    let text = match reply {
        Reply::Value(Value::Bool(is)) => return Some(Value::Bool(*is)),
        Reply::Text(text) => text.trim().to_ascii_lowercase(),
        Reply::Choices(chosen) if chosen.len() == 1 => chosen.concat().trim().to_ascii_lowercase(),
        _ => return None,
    };
    match text.as_str() {
        "yes" | "y" | "true" | "ok" | "approve" => Some(Value::Bool(true)),
        "no" | "n" | "false" | "deny" => Some(Value::Bool(false)),
        _ => None,
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}

/// From the parts of a request; exactly one way to answer must be given.
pub fn reply(
    verdict: Verdict,
    value: Option<&Value>,
    text: Option<&str>,
    choices: Option<&[String]>,
) -> Result<Reply, Unfit> {
    let given = [value.is_some(), text.is_some(), choices.is_some()].iter().filter(|is| **is).count();
    let unfit = |message: &str, fits: &str| Err(Unfit { message: message.to_owned(), fits: fits.to_owned() });
    match (verdict, given) {
        (Verdict::Approve, 0) => Ok(Reply::Approve),
        (Verdict::Deny, 0) => Ok(Reply::Deny),
        (Verdict::Approve | Verdict::Deny, _) => unfit(
            "an approval or a denial has no answer beside it",
            "leave the answer out; a reason may be given",
        ),
        (Verdict::Answer, 1) => Ok(match (value, text, choices) {
            (Some(value), ..) => Reply::Value(value.clone()),
            (_, Some(text), _) => Reply::Text(text.to_owned()),
            (_, _, choices) => Reply::Choices(choices.unwrap_or_default().to_vec()),
        }),
        (Verdict::Answer, 0) => unfit("there is no answer", "give one of: answer, text, choices"),
        (Verdict::Answer, _) => unfit("there is more than one answer", "give one of: answer, text, choices"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked(question: Value) -> Asked {
        Asked::by(BlockedType::Hitl, &question)
    }

    fn question(kind: &str, more: Value) -> Asked {
        let mut question = json!({"kind": kind, "question": "?"});
        question.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        asked(question)
    }

    fn typed(text: &str) -> Reply {
        Reply::Text(text.to_owned())
    }

    fn picked(choices: &[&str]) -> Reply {
        Reply::Choices(choices.iter().map(|c| (*c).to_owned()).collect())
    }

    fn refused(asked: &Asked, reply: Reply) -> String {
        let unfit = asked.read(&reply).unwrap_err();
        format!("{}; {}", unfit.message, unfit.fits)
    }

    #[test]
    fn a_confirmation_is_yes_or_no_however_it_is_said() {
        let it = question("confirmation", json!({}));
        for yes in [typed("yes"), typed(" Y "), typed("true"), Reply::Value(json!(true)), Reply::Approve] {
            assert_eq!(it.read(&yes), Ok(json!(true)), "{yes:?}");
        }
        for no in [typed("no"), typed("N"), typed("false"), Reply::Value(json!(false)), Reply::Deny] {
            assert_eq!(it.read(&no), Ok(json!(false)), "{no:?}");
        }
        for wrong in
            [typed("perhaps"), typed(""), Reply::Value(json!(1)), Reply::Value(json!("true")), picked(&[])]
        {
            assert_eq!(refused(&it, wrong), "it wants yes or no; yes or no");
        }
    }

    #[test]
    fn a_choice_is_one_of_its_options() {
        let it = question("choice", json!({"options": ["blue", "Green", "green light", "GREEN LIGHT"]}));
        assert_eq!(it.read(&typed("blue")), Ok(json!("blue")));
        assert_eq!(it.read(&typed(" BLUE")), Ok(json!("blue")), "capitals do not matter where one is meant");
        assert_eq!(
            it.read(&typed("green light")),
            Ok(json!("green light")),
            "the same text before a similar one"
        );
        assert_eq!(it.read(&Reply::Value(json!("Green"))), Ok(json!("Green")));
        assert_eq!(it.read(&picked(&["blue"])), Ok(json!("blue")));
        let fits = "one of: blue, Green, green light, GREEN LIGHT";
        assert_eq!(refused(&it, typed("red")), format!("'red' is none of its options; {fits}"));
        assert_eq!(
            refused(&it, typed("Green Light")),
            format!("'Green Light' is none of its options; {fits}")
        );
        assert_eq!(
            refused(&it, Reply::Value(json!(2))),
            format!("it wants one of its options, not a number; {fits}")
        );
        assert_eq!(
            refused(&it, picked(&["blue", "Green"])),
            format!("it wants one of its options, and 2 were chosen; {fits}")
        );
        assert_eq!(
            refused(&it, Reply::Approve),
            format!("it is a question: it can be answered, not approved or denied; {fits}")
        );
    }

    #[test]
    fn several_options_are_a_list_without_repetition() {
        let it = question("multi_choice", json!({"options": ["a", "b", "c, d"]}));
        assert_eq!(it.read(&picked(&["b", "a"])), Ok(json!(["b", "a"])));
        assert_eq!(it.read(&Reply::Value(json!(["a"]))), Ok(json!(["a"])));
        assert_eq!(it.read(&Reply::Value(json!([]))), Ok(json!([])), "none is an answer");
        for nothing in ["", "  ", " , "] {
            assert!(
                refused(&it, typed(nothing)).starts_with("nothing was chosen"),
                "it could not be taken back"
            );
        }
        assert_eq!(it.read(&typed("a, b")), Ok(json!(["a", "b"])));
        assert_eq!(it.read(&typed("c, d")), Ok(json!(["c, d"])), "an option before a list");
        assert!(refused(&it, typed("a, x")).starts_with("'x' is none of its options"));
        assert!(refused(&it, picked(&["a", "A"])).starts_with("'A' was chosen twice"));
        assert!(
            refused(&it, Reply::Value(json!("a"))).starts_with("it wants a list of its options, not a text")
        );
        assert!(refused(&it, Reply::Value(json!(["a", 1]))).contains("a number is in it"));
    }

    #[test]
    fn a_text_matches_its_pattern_as_a_whole() {
        let free = question("text", json!({}));
        assert_eq!(free.read(&typed("what ever ")), Ok(json!("what ever ")), "kept as it was written");
        assert_eq!(refused(&free, Reply::Value(json!(7))), "it wants a text; any text");
        let it = question("text", json!({"pattern": "v[0-9]+|next"}));
        assert_eq!(it.read(&typed("v12")), Ok(json!("v12")));
        assert_eq!(it.read(&typed("next")), Ok(json!("next")));
        assert_eq!(refused(&it, typed("v12 ")), "'v12 ' does not match; a text that matches v[0-9]+|next");
        assert_eq!(
            refused(&it, typed("so next")),
            "'so next' does not match; a text that matches v[0-9]+|next"
        );
        let broken = question("text", json!({"pattern": "("}));
        assert!(refused(&broken, typed("x")).starts_with("its own pattern cannot be read"));
    }

    #[test]
    fn a_rating_is_a_whole_number_in_its_range() {
        let it = question("rating", json!({}));
        for (reply, value) in [(typed("5"), 5), (Reply::Value(json!(1)), 1), (Reply::Value(json!(3.0)), 3)] {
            assert_eq!(it.read(&reply), Ok(json!(value)));
        }
        assert_eq!(refused(&it, typed("6")), "6 is out of range; a whole number from 1 to 5");
        assert_eq!(refused(&it, Reply::Value(json!(0))), "0 is out of range; a whole number from 1 to 5");
        for wrong in
            [typed("3.5"), typed("many"), Reply::Value(json!(2.5)), Reply::Value(json!("3")), picked(&["3"])]
        {
            assert_eq!(refused(&it, wrong), "it wants a whole number; a whole number from 1 to 5");
        }
        let wide = question("rating", json!({"min": 0.0, "max": 10.0}));
        assert_eq!(wide.read(&typed("0")), Ok(json!(0)));
        assert!(refused(&wide, typed("11")).ends_with("a whole number from 0 to 10"));
    }

    #[test]
    fn permission_is_given_or_refused_and_nothing_else() {
        for kind in [BlockedType::Approval, BlockedType::Checkpoint] {
            let it = Asked::by(kind, &json!({}));
            assert_eq!(it.read(&Reply::Approve), Ok(json!(true)));
            assert_eq!(it.read(&Reply::Deny), Ok(json!(false)));
            assert_eq!(it.read(&typed("yes")), Ok(json!(true)));
            assert_eq!(refused(&it, picked(&["a"])), "it is an approval, not a question; approve or deny it");
            assert!(refused(&it, typed("later")).contains("neither yes nor no"));
        }
    }

    #[test]
    fn an_agent_that_asks_without_a_question_gets_any_text_and_nobody_answers_a_signal() {
        let it = asked(json!({}));
        assert_eq!(it.read(&typed("use the other file")), Ok(json!("use the other file")));
        assert!(refused(&it, Reply::Approve).contains("not approved or denied"));
        assert!(refused(&it, Reply::Value(json!([]))).starts_with("a list is not a text"));
        for kind in [BlockedType::Signal, BlockedType::Sensor] {
            assert!(refused(&Asked::by(kind, &json!({})), typed("x")).contains("fire the signal"));
        }
    }

    #[test]
    fn there_is_exactly_one_way_to_answer_at_a_time() {
        assert_eq!(reply(Verdict::Approve, None, None, None), Ok(Reply::Approve));
        assert_eq!(reply(Verdict::Answer, None, Some("x"), None), Ok(typed("x")));
        assert_eq!(reply(Verdict::Answer, Some(&json!(null)), None, None), Ok(Reply::Value(json!(null))));
        assert!(reply(Verdict::Answer, None, None, None).unwrap_err().message.contains("no answer"));
        assert!(
            reply(Verdict::Answer, Some(&json!(1)), Some("1"), None)
                .unwrap_err()
                .message
                .contains("more than")
        );
        assert!(reply(Verdict::Deny, Some(&json!(1)), None, None).unwrap_err().message.contains("beside it"));
    }

    #[test]
    fn what_does_not_fit_is_said_once() {
        let it = question("confirmation", json!({}));
        assert_eq!(it.read(&typed("perhaps")).unwrap_err().told(), "it wants yes or no");
        let it = question("choice", json!({"options": ["a", "b"]}));
        let said = it.read(&typed("")).unwrap_err().told();
        assert_eq!(said, "'' is none of its options; it wants: one of: a, b");
    }
}
