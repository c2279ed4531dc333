//! What is wrong with a definition, where, and what would be right. A path names the place in the definition, and where
//! the definition came from a text, a line and a column name it there.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How many are told of one file: who has more reads no further.
pub const MOST: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mistake {
    /// The file of a sub-cascade. Absent: the one that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// From 1.
    pub line: Option<usize>,
    /// From 1, in characters.
    pub column: Option<usize>,
    /// As in `phases[2].retry.max`; empty: the whole.
    pub path: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
        }
        match (self.line, self.column) {
            (Some(line), Some(column)) => write!(f, "{line}:{column}: ")?,
            _ if !self.path.is_empty() => write!(f, "{}: ", self.path)?,
            _ if self.file.is_some() => f.write_str(" ")?,
            _ => {}
        }
        f.write_str(&self.message)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, " ({suggestion})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Mistake {}

/// Where something stands in a text; both from 1. Nothing is known of what came without one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: u32,
    pub(super) column: u32,
}

impl Place {
    pub(super) fn line(self) -> Option<usize> {
        (self.line > 0).then_some(self.line as usize)
    }

    pub(super) fn column(self) -> Option<usize> {
        (self.line > 0).then_some(self.column as usize)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// The way from the root of a definition to one of its values; on the stack of whoever walks it, so that nothing is
/// allocated until there is something to say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way<'a> {
    parent: Option<&'a Way<'a>>,
    step: WayStep<'a>,
}

#[derive(Debug, Clone, Copy)]
enum WayStep<'a> {
    Root,
    Key(&'a str),
    Index(usize),
}

impl<'a> Way<'a> {
    pub(super) const ROOT: Way<'static> = Way { parent: None, step: WayStep::Root };

    pub(super) fn key(&'a self, key: &'a str) -> Way<'a> {
        Way { parent: Some(self), step: WayStep::Key(key) }
    }

    pub(super) fn index(&'a self, index: usize) -> Way<'a> {
        Way { parent: Some(self), step: WayStep::Index(index) }
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut here = Some(self);
        while let Some(way) = here {
            match way.step {
                WayStep::Root => {}
                WayStep::Key(key) => steps.push(Step::Key(key.to_owned())),
                WayStep::Index(index) => steps.push(Step::Index(index)),
            }
            here = way.parent;
        }
        steps.reverse();
        steps
    }
}

pub(super) fn shown(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        match step {
            Step::Key(key) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(&brief(key));
            }
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}

/// What was found, before anybody knows where it stands in the text.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) steps: Vec<Step>,
    /// The key is meant, not its value.
    pub(super) of_key: bool,
    pub(super) place: Place,
    pub(super) message: String,
    pub(super) suggestion: Option<String>,
}

/// Collects what is found, and knows when to stop.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) all: Vec<Finding>,
    left_out: usize,
}

impl Findings {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// More would only be counted.
    pub(super) fn is_full(&self) -> bool {
        self.all.len() >= MOST
    }

    pub(super) fn push(&mut self, finding: Finding) {
        if self.all.len() < MOST {
            self.all.push(finding);
        } else {
            self.left_out += 1;
        }
    }

    pub(super) fn say(&mut self, way: &Way<'_>, message: impl Into<String>) {
        self.advise(way, message, None);
    }

    pub(super) fn advise(&mut self, way: &Way<'_>, message: impl Into<String>, suggestion: Option<String>) {
        self.push(Finding {
            steps: way.steps(),
            of_key: false,
            place: Place::default(),
            message: message.into(),
            suggestion,
        });
    }

    /// In the order of the text.
    pub(super) fn told(mut self) -> Vec<Mistake> {
        self.all.sort_by_key(|finding| (finding.place.line, finding.place.column));
        let mut told: Vec<Mistake> = self
            .all
            .into_iter()
            .map(|finding| Mistake {
                file: None,
                line: finding.place.line(),
                column: finding.place.column(),
                path: shown(&finding.steps),
                message: with_subject(&finding.steps, finding.message),
                suggestion: finding.suggestion,
            })
            .collect();
        if self.left_out > 0 {
            told.push(Mistake {
                file: None,
                line: None,
                column: None,
                path: String::new(),
                message: format!("and {} more mistakes", self.left_out),
                suggestion: None,
            });
        }
        told
    }
}

/// Most checks know what must hold, not of what: "must be text" is told as "'title' must be text".
fn with_subject(steps: &[Step], message: String) -> String {
    const VERBS: &[&str] = &["must ", "is ", "has ", "needs ", "means "];
    if !VERBS.iter().any(|verb| message.starts_with(verb)) {
        return message;
    }
    let from = steps.iter().rposition(|step| matches!(step, Step::Key(_))).unwrap_or(steps.len());
    match steps.get(from..).filter(|steps| !steps.is_empty()) {
        Some(last) => format!("'{}' {message}", shown(last)),
        None => format!("this {message}"),
    }
}

/// The one of these that was probably meant.
pub(super) fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Whoever writes more than this has not mistyped.
    if given.len() > 64 {
        return None;
    }
    // Enough to choose from; a definition may have thousands of names, and as many mistakes.
    known
        .into_iter()
        .take(1000)
        .map(|name| (likeness(&given.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// From 0 to 1. One letter is much of a short word: who writes one too few, too many or another one means it all the same.
fn likeness(given: &str, name: &str) -> f64 {
    let alike = strsim::jaro_winkler(given, name);
    match name.len() >= 3 && strsim::osa_distance(given, name) == 1 {
        true => alike.max(0.85),
        false => alike,
    }
}

pub(super) fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(given, known).map(|name| format!("did you mean '{name}'?"))
}

/// At most this much of what somebody wrote is shown again, on one line.
pub(super) fn brief(text: &str) -> String {
    let one_line: String = text.chars().take(61).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if one_line.chars().count() > 60 {
        let mut cut: String = one_line.chars().take(60).collect();
        cut.push('…');
        return cut;
    }
    one_line
}

/// "a, b and 3 more".
pub(super) fn some_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    const SHOWN: usize = 12;
    match names.len() {
        0 => "none".to_owned(),
        n if n <= SHOWN => names.join(", "),
        n => format!("{} and {} more", names.get(..SHOWN).unwrap_or_default().join(", "), n - SHOWN),
    }
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_letter_of_a_short_word_may_be_wrong_missing_or_too_many() {
        let known = ["run", "agent", "tasks", "await", "cascade", "set", "name"];
        for (given, meant) in
            [("rn", "run"), ("rum", "run"), ("runn", "run"), ("rnu", "run"), ("st", "set"), ("taks", "tasks")]
        {
            assert_eq!(nearest(given, known), Some(meant), "{given}");
        }
        for other in ["x", "or", "colour"] {
            assert_eq!(nearest(other, known), None, "{other}");
        }
        // Of one or two letters every word is one letter from another.
        assert_eq!(nearest("m", ["n", "id"]), None);
    }
}
