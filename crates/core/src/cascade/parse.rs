//! Reading a cascade, as a text or as JSON, and every mistake in it with its place.

use std::collections::HashSet;

use serde_json::Value;

use super::check::{Checker, MOST_PHASES};
use super::mistake::{Finding, Findings, Place, Way, brief};
use super::shape::Reader;
use super::tree::{Node, grow};
use super::{Cascade, DEEPEST, Work};

pub use super::inputs::resolve_inputs;
pub use super::mistake::{MOST as MOST_MISTAKES, Mistake};
pub use super::shape::seconds;

/// Bytes of a file.
pub const LONGEST_TEXT: usize = 8 << 20;

/// A cascade from the text of a file, YAML or JSON; or everything that is wrong with it.
pub fn read(text: &str) -> Result<Cascade, Vec<Mistake>> {
    let (cascade, root, findings) = shaped(text)?;
    finished(cascade, &root, findings)
}

/// A cascade from JSON. It may be written as a file may: `timeout: "5m"` is seconds afterwards.
pub fn from_value(value: &Value) -> Result<Cascade, Vec<Mistake>> {
    let root = Node::of_value(value);
    let mut reader = Reader::default();
    let cascade = reader.cascade(&root, &Way::ROOT);
    finished(cascade, &root, reader.findings)
}

/// What is wrong with a definition, by path.
pub fn check(cascade: &Cascade) -> Vec<Mistake> {
    let mut checker = Checker::default();
    checker.cascade(cascade, &Way::ROOT, 0);
    checker.findings.told()
}

/// The same with its sub-cascades: `file` gives the text of each by its path, relative to the first one's directory.
pub fn with_files(
    name: &str,
    text: &str,
    file: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<Cascade, Vec<Mistake>> {
    let mut files = Files { file, chain: vec![normal(name)], phases: 0 };
    files.cascade(name, text)
}

struct Files<'a> {
    file: &'a mut dyn FnMut(&str) -> Result<String, String>,
    /// The files that are being read, the first one first.
    chain: Vec<String>,
    phases: usize,
}

impl Files<'_> {
    fn cascade(&mut self, name: &str, text: &str) -> Result<Cascade, Vec<Mistake>> {
        let (mut cascade, root, mut findings) = shaped(text)?;
        let mut below: Vec<Mistake> = Vec::new();
        self.phases = self.phases.saturating_add(cascade.phases.len());
        for (n, phase) in cascade.phases.iter_mut().enumerate() {
            let Work::Cascade(sub) = &mut phase.work else { continue };
            let (Some(file), None) = (&sub.file, &sub.definition) else { continue };
            let phases = Way::ROOT.key("phases");
            let (phase_way, path) = (phases.index(n), joined(name, file));
            let way = phase_way.key("cascade");
            let way = if root.place(&way.key("file").steps(), false) == root.place(&way.steps(), false) {
                way
            } else {
                way.key("file")
            };
            match self.below(&path) {
                Ok(definition) => sub.definition = Some(Box::new(definition)),
                Err(Below::Mistakes(mistakes)) => {
                    below.extend(mistakes);
                    // It is wrong there, and that is enough.
                    sub.definition = Some(Box::new(Cascade::of_one("none", vec!["true".to_owned()])));
                    sub.inputs.clear();
                }
                Err(Below::Reason(reason)) => {
                    findings.say(&way, reason);
                    sub.definition = Some(Box::new(Cascade::of_one("none", vec!["true".to_owned()])));
                    sub.inputs.clear();
                }
            }
        }
        let own = finished(cascade, &root, findings);
        match own {
            Ok(cascade) if below.is_empty() => Ok(cascade),
            Ok(_) => Err(below),
            Err(mut own) => {
                own.extend(below);
                own.truncate(MOST_MISTAKES + 1);
                Err(own)
            }
        }
    }

    fn below(&mut self, path: &str) -> Result<Cascade, Below> {
        let reason = |text: String| Err(Below::Reason(text));
        if self.chain.iter().any(|file| file == path) {
            return reason(format!("a cascade cannot contain itself: {} → {path}", self.chain.join(" → ")));
        }
        if self.chain.len() > DEEPEST {
            return reason(format!("sub-cascades go deeper than {DEEPEST}: {}", self.chain.join(" → ")));
        }
        // A file that is used twice by each of sixteen is used 65,536 times.
        if self.phases > MOST_PHASES {
            return reason(format!("more than {MOST_PHASES} phases, with those of sub-cascades"));
        }
        let text = (self.file)(path)
            .map_err(|error| Below::Reason(format!("cannot read '{}': {error}", brief(path))))?;
        self.chain.push(path.to_owned());
        let read = self.cascade(path, &text);
        self.chain.pop();
        read.map_err(|mut mistakes| {
            mistakes.iter_mut().for_each(|mistake| {
                mistake.file.get_or_insert_with(|| path.to_owned());
            });
            Below::Mistakes(mistakes)
        })
    }
}

enum Below {
    Reason(String),
    Mistakes(Vec<Mistake>),
}

/// A path beside another file, without `.` and `..`, so that one file has one name.
fn joined(from: &str, file: &str) -> String {
    match from.rsplit_once('/') {
        Some((directory, _)) if !file.starts_with('/') => normal(&format!("{directory}/{file}")),
        _ => normal(file),
    }
}

fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match (part, parts.last()) {
            ("..", Some(last)) if *last != ".." => {
                parts.pop();
            }
            ("..", None) if path.starts_with('/') => {}
            _ => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

type Shaped = (Cascade, Node, Findings);

fn shaped(text: &str) -> Result<Shaped, Vec<Mistake>> {
    let whole = |message: String| {
        let mut findings = Findings::default();
        let place = Place { line: 1, column: 1 };
        findings.push(Finding { steps: Vec::new(), of_key: false, place, message, suggestion: None });
        Err(findings.told())
    };
    if text.len() > LONGEST_TEXT {
        return whole(format!("a cascade file is at most {} MiB", LONGEST_TEXT >> 20));
    }
    let (root, odd) = grow(text);
    let mut reader = Reader::default();
    odd.into_iter().for_each(|finding| reader.findings.push(finding));
    let Some(root) = root else {
        return match reader.findings.is_empty() {
            true => whole("there is nothing in it; a cascade needs 'cascade_id' and 'phases'".to_owned()),
            false => Err(reader.findings.told()),
        };
    };
    let cascade = reader.cascade(&root, &Way::ROOT);
    Ok((cascade, root, reader.findings))
}

/// Adds what the definition's meaning says to what its shape said.
fn finished(cascade: Cascade, root: &Node, mut findings: Findings) -> Result<Cascade, Vec<Mistake>> {
    let mut checker = Checker::default();
    checker.cascade(&cascade, &Way::ROOT, 0);
    if findings.is_empty() && checker.findings.is_empty() {
        return Ok(cascade);
    }
    // What has something harmless in its place, because it was wrong, is not wrong twice.
    let said: HashSet<String> =
        findings.all.iter().map(|finding| super::mistake::shown(&finding.steps)).collect();
    for finding in checker.findings.all {
        if !said.contains(&super::mistake::shown(&finding.steps)) {
            findings.push(finding);
        }
    }
    for finding in &mut findings.all {
        if finding.place == Place::default() {
            finding.place = root.place(&finding.steps, finding.of_key);
        }
    }
    Err(findings.told())
}
