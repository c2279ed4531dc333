//! What a person may answer to a question.

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::mistake::{brief, some_of};
use super::{Question, QuestionKind};

/// Bytes of the answer to a question of kind `text`.
const LONGEST_ANSWER: usize = 1 << 20;

/// A regular expression for the whole of an answer.
pub fn pattern(text: &str) -> Result<Regex, String> {
    RegexBuilder::new(&format!(r"\A(?:{text})\z")).size_limit(1 << 20).build().map_err(|error| {
        // The first line repeats the expression with what we put around it.
        let reason = error.to_string();
        let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        format!("'{}' is not a regular expression: {reason}", brief(text))
    })
}

impl Question {
    /// Of a rating.
    pub fn lowest(&self) -> f64 {
        self.min.unwrap_or(1.0)
    }

    /// Of a rating.
    pub fn highest(&self) -> f64 {
        self.max.unwrap_or(5.0)
    }

    /// Whether this is an answer; if not, what one must be.
    pub fn accepts(&self, answer: &Value) -> Result<(), String> {
        let known = |value: &Value| value.as_str().is_some_and(|text| self.options.iter().any(|o| o == text));
        let options = || some_of(self.options.iter().map(String::as_str));
        match self.kind {
            QuestionKind::Confirmation if answer.is_boolean() => Ok(()),
            QuestionKind::Confirmation => Err("must be true or false".to_owned()),
            QuestionKind::Choice if known(answer) => Ok(()),
            QuestionKind::Choice => Err(format!("must be one of {}", options())),
            QuestionKind::MultiChoice => match answer.as_array() {
                Some(chosen) if chosen.iter().all(known) => {
                    let twice =
                        chosen.iter().enumerate().find(|(n, one)| chosen.iter().take(*n).any(|o| o == *one));
                    match twice {
                        Some((_, one)) => Err(format!("has {} twice", brief(&one.to_string()))),
                        None => Ok(()),
                    }
                }
                _ => Err(format!("must be a list of some of {}", options())),
            },
            QuestionKind::Text => {
                let Some(text) = answer.as_str() else { return Err("must be text".to_owned()) };
                if text.len() > LONGEST_ANSWER {
                    return Err(format!("must be at most {} KiB of text", LONGEST_ANSWER >> 10));
                }
                match self.pattern.as_deref().map(|given| (given, pattern(given))) {
                    Some((_, Err(reason))) => Err(reason),
                    Some((given, Ok(regex))) if !regex.is_match(text) => {
                        Err(format!("must match {}", brief(given)))
                    }
                    _ => Ok(()),
                }
            }
            QuestionKind::Rating => {
                let fits = |n: &f64| n.fract() == 0.0 && (self.lowest()..=self.highest()).contains(n);
                match answer.as_f64().filter(fits) {
                    Some(_) => Ok(()),
                    None => {
                        Err(format!("must be a whole number from {} to {}", self.lowest(), self.highest()))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_must_fit_its_question() {
        let ask = |kind, pattern: Option<&str>| Question {
            kind,
            question: "?".to_owned(),
            options: vec!["red".to_owned(), "blue".to_owned()],
            min: None,
            max: None,
            pattern: pattern.map(str::to_owned),
        };
        for (kind, answer, fits) in [
            (QuestionKind::Confirmation, json!(false), true),
            (QuestionKind::Confirmation, json!("yes"), false),
            (QuestionKind::Choice, json!("red"), true),
            (QuestionKind::Choice, json!("green"), false),
            (QuestionKind::Choice, json!(["red"]), false),
            (QuestionKind::MultiChoice, json!([]), true),
            (QuestionKind::MultiChoice, json!(["red", "blue"]), true),
            (QuestionKind::MultiChoice, json!(["red", "red"]), false),
            (QuestionKind::MultiChoice, json!("red"), false),
            (QuestionKind::Text, json!("anything"), true),
            (QuestionKind::Text, json!(1), false),
            (QuestionKind::Rating, json!(5), true),
            (QuestionKind::Rating, json!(6), false),
            (QuestionKind::Rating, json!(1.5), false),
        ] {
            assert_eq!(ask(kind, None).accepts(&answer).is_ok(), fits, "{kind} {answer}");
        }
        let version = ask(QuestionKind::Text, Some(r"v\d+|latest"));
        assert_eq!(version.accepts(&json!("v12")), Ok(()));
        // The whole of it, whatever the expression says.
        assert_eq!(version.accepts(&json!("v12; rm")), Err(r"must match v\d+|latest".to_owned()));
        assert_eq!(version.accepts(&json!("latest\n")), Err(r"must match v\d+|latest".to_owned()));
        assert!(pattern("(").is_err_and(|reason| reason.contains("unclosed group")));
        assert!(pattern("(a{1000}){1000}").is_err());
    }
}
