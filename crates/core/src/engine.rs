//! Engines: how the command of an agent is made from what was asked for, and what its end means. Templates are
//! argument vectors; nothing here is ever given to a shell.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::job::Sign;

/// A program of which nothing is known.
pub const COMMAND: &str = "command";

const GIVEN: &str = "{command}";
const PROGRAM: &str = "{program}";
const SESSION: &str = "{sessionId}";

/// Exit codes of an agent that cannot go on without a person: blocked, and a question.
const NEEDS_A_PERSON: [i64; 2] = [3, 4];

/// An engine as it stands in the configuration: what is not given is that of the built-in one of its name, or the
/// plain default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// What is run, and the name by which a command is known to be of this engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Vec<String>>,
    /// Empty: it cannot be resumed but by the same command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<Vec<String>>,
    /// What counts as getting on; empty: everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<Vec<Sign>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_codes: Option<Vec<i64>>,
}

/// One that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    pub name: String,
    pub program: Option<String>,
    pub start: Vec<String>,
    pub resume: Vec<String>,
    pub activity: Vec<Sign>,
    pub waiting_codes: Vec<i64>,
}

/// A command that is ready to be run, and the agent's session in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub command: Vec<String>,
    pub session: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there is no engine '{given}'; there are: {}", known.join(", "))]
pub struct UnknownEngine {
    pub given: String,
    pub known: Vec<String>,
}

/// Every engine that there is, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engines {
    named: BTreeMap<String, Engine>,
    /// The one of a command that is nobody's.
    plain: Engine,
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn built_in() -> Vec<Engine> {
    let engine = |name: &str, program: &str, start: &[&str], resume: &[&str]| Engine {
        program: Some(program.to_owned()),
        start: strings(start),
        resume: strings(resume),
        ..Engine::plain(name)
    };
    vec![
        Engine::plain(COMMAND),
        engine(
            "claude-code",
            "claude",
            &[PROGRAM, "--session-id", SESSION, GIVEN],
            &[PROGRAM, "--resume", SESSION, GIVEN],
        ),
        engine("gemini", "gemini", &[PROGRAM, GIVEN], &[PROGRAM, "--resume", SESSION, GIVEN]),
        engine("codex", "codex", &[PROGRAM, GIVEN], &[PROGRAM, "exec", "resume", SESSION, GIVEN]),
    ]
}

impl Default for Engines {
    fn default() -> Self {
        Self::new(&BTreeMap::new())
    }
}

impl Engines {
    pub fn new(configured: &BTreeMap<String, EngineConfig>) -> Self {
        let mut all: BTreeMap<String, Engine> =
            built_in().into_iter().map(|engine| (engine.name.clone(), engine)).collect();
        for (name, own) in configured {
            let engine = all.entry(name.clone()).or_insert_with(|| Engine::plain(name));
            let own = own.clone();
            if engine.program.is_none() && own.program.is_some() {
                engine.start = strings(&[PROGRAM, GIVEN]);
            }
            engine.program = own.program.or(engine.program.take());
            engine.start = own.start.unwrap_or_else(|| std::mem::take(&mut engine.start));
            engine.resume = own.resume.unwrap_or_else(|| std::mem::take(&mut engine.resume));
            engine.activity = own.activity.unwrap_or_else(|| std::mem::take(&mut engine.activity));
            engine.waiting_codes =
                own.waiting_codes.unwrap_or_else(|| std::mem::take(&mut engine.waiting_codes));
        }
        let plain = all.get(COMMAND).cloned().unwrap_or_else(|| Engine::plain(COMMAND));
        Self { named: all, plain }
    }

    pub fn get(&self, name: &str) -> Result<&Engine, UnknownEngine> {
        self.named.get(name).ok_or_else(|| UnknownEngine {
            given: name.chars().take(60).filter(|c| !c.is_control()).collect(),
            known: self.named.keys().cloned().collect(),
        })
    }

    /// Whose program it is, by its file name; else a plain command.
    pub fn guess(&self, command: &[String]) -> &Engine {
        self.named.values().find(|engine| engine.is_begun_by(command)).unwrap_or(&self.plain)
    }
}

impl Engine {
    fn plain(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            program: None,
            start: strings(&[GIVEN]),
            resume: Vec::new(),
            activity: Vec::new(),
            waiting_codes: NEEDS_A_PERSON.to_vec(),
        }
    }

    fn is_begun_by(&self, command: &[String]) -> bool {
        let first = command.first().and_then(|first| first.rsplit('/').next());
        matches!((first, self.program.as_deref()), (Some(first), Some(program)) if first == file_name(program))
    }

    /// The start template, applied. `fresh` becomes the session where the template wants one and nobody gave one.
    pub fn start(&self, given: &[String], session: Option<&str>, fresh: &str) -> Made {
        let named = session.map(str::to_owned);
        match self.session_in(given) {
            // The arguments say it already: what the template would say once more is left out.
            Some(found) => {
                let template = without_session(&self.start);
                Made { command: self.fill(&template, given, None), session: Some(found) }
            }
            None if mentions_session(&self.start) => {
                let session = named.unwrap_or_else(|| fresh.to_owned());
                Made { command: self.fill(&self.start, given, Some(&session)), session: Some(session) }
            }
            None => Made { command: self.fill(&self.start, given, None), session: named },
        }
    }

    /// What continues a session with `extra` arguments; `None` where there is no template for it.
    pub fn resume(&self, earlier: &[String], session: &str, extra: &[String]) -> Option<Made> {
        if self.resume.is_empty() || !is_session(session) {
            return None;
        }
        let mut given = extra.to_vec();
        // The same program as before, wherever it was found.
        if self.is_begun_by(earlier) && !self.is_begun_by(extra) {
            given.insert(0, earlier.first()?.clone());
        }
        let command = self.fill(&self.resume, &given, Some(session));
        Some(Made { command, session: Some(session.to_owned()) })
    }

    /// The session that stands in the arguments already, behind one of the options that a template gives it with.
    pub fn session_in(&self, given: &[String]) -> Option<String> {
        let options =
            [&self.start, &self.resume].into_iter().filter_map(|template| option_of_session(template));
        options.into_iter().find_map(|option| {
            given.iter().enumerate().find_map(|(at, word)| {
                let joined = word.strip_prefix(option).and_then(|rest| rest.strip_prefix('='));
                let next = || (word == option).then(|| given.get(at + 1)).flatten().map(String::as_str);
                joined.or_else(next).filter(|id| is_session(id)).map(str::to_owned)
            })
        })
    }

    fn fill(&self, template: &[String], given: &[String], session: Option<&str>) -> Vec<String> {
        let begins = self.is_begun_by(given);
        let (program, rest) = match given.split_first() {
            Some((first, rest)) if begins => (Some(first.as_str()), rest),
            _ => (self.program.as_deref(), given),
        };
        // Without `{program}` in the template what was given is run as it is.
        let names_program = template.iter().any(|word| word.contains(PROGRAM));
        let spliced = if names_program { rest } else { given };
        let mut command = Vec::with_capacity(template.len() + given.len());
        for word in template {
            if word == GIVEN {
                command.extend(spliced.iter().cloned());
                continue;
            }
            command
                .push(word.replace(PROGRAM, program.unwrap_or("")).replace(SESSION, session.unwrap_or("")));
        }
        command
    }
}

/// Whether it can be an agent's session. It may come from what a job printed, and becomes an argument of another
/// command: one that could be taken for an option is none.
pub fn is_session(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._:/_-".contains(&b);
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    first && text.len() <= 200 && text.bytes().all(plain)
}

fn file_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

fn mentions_session(template: &[String]) -> bool {
    template.iter().any(|word| word.contains(SESSION))
}

/// `--session-id` of `--session-id {sessionId}` and of `--session-id={sessionId}`.
fn option_of_session(template: &[String]) -> Option<&str> {
    let at = template.iter().position(|word| word.contains(SESSION))?;
    let word = template[at].as_str();
    let option = match word.split_once('=') {
        Some((option, _)) => option,
        None => template.get(at.checked_sub(1)?)?.as_str(),
    };
    option.starts_with('-').then_some(option)
}

fn without_session(template: &[String]) -> Vec<String> {
    let option = option_of_session(template);
    let plain = template.iter().filter(|word| !word.contains(SESSION));
    plain.filter(|word| Some(word.as_str()) != option).cloned().collect()
}

/// What of the configured engines cannot be: the key, the value, and what is allowed.
pub fn first_misfit(engines: &BTreeMap<String, EngineConfig>) -> Option<(&'static str, String, String)> {
    const MOST_WORDS: usize = 256;
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    for (name, engine) in engines {
        if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
            let allowed = "a name of lower-case letters, digits, '-' and '_'";
            return Some(("engines", format!("'{name}'"), allowed.to_owned()));
        }
        if engine.program.as_ref().is_some_and(|program| program.is_empty() || program.contains('\0')) {
            return Some((
                "engines.program",
                format!("that of {name}"),
                "the name or path of a program".to_owned(),
            ));
        }
        let known_program = engine.program.is_some()
            || built_in().iter().any(|own| own.name == *name && own.program.is_some());
        for (key, template) in [("engines.start", &engine.start), ("engines.resume", &engine.resume)] {
            let Some(template) = template else { continue };
            let wants_program = template.iter().any(|word| word.contains(PROGRAM));
            let allowed = if key == "engines.start" && !template.iter().any(|word| word == GIVEN) {
                "an argument vector with \"{command}\" as one of its words"
            } else if key == "engines.resume" && !template.is_empty() && !mentions_session(template) {
                "an argument vector with \"{sessionId}\" in it, or [] for the same command"
            } else if template.iter().any(|word| word.contains(GIVEN) && word != GIVEN) {
                "\"{command}\" as a word of its own: it stands for all the arguments"
            } else if template.len() > MOST_WORDS || template.iter().any(|word| word.contains('\0')) {
                "at most 256 words, without NUL bytes"
            } else if wants_program && !known_program {
                "without {program}, or with engines.program set"
            } else {
                continue;
            };
            return Some((key, format!("{template:?} ({name})"), allowed.to_owned()));
        }
        if let Some(code) = engine.waiting_codes.iter().flatten().find(|code| !(1..=255).contains(*code)) {
            return Some(("engines.waiting_codes", format!("{code} ({name})"), "from 1 to 255".to_owned()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn started(engine: &str, given: &str, session: Option<&str>) -> (String, Option<String>) {
        let engines = Engines::default();
        let made = engines.get(engine).unwrap().start(&words(given), session, "fresh");
        (made.command.join(" "), made.session)
    }

    #[test]
    fn a_session_is_given_where_the_template_wants_one() {
        let fresh = Some("fresh".to_owned());
        let mine = Some("mine".to_owned());
        let claude = |given| started("claude-code", given, None);
        assert_eq!(claude("claude -p hi"), ("claude --session-id fresh -p hi".into(), fresh.clone()));
        assert_eq!(claude("-p hi"), ("claude --session-id fresh -p hi".into(), fresh.clone()));
        assert_eq!(claude("/opt/claude -p hi"), ("/opt/claude --session-id fresh -p hi".into(), fresh));
        assert_eq!(claude("claude --session-id mine -p hi").1, mine);
        assert_eq!(claude("claude --session-id mine -p hi").0, "claude --session-id mine -p hi");
        assert_eq!(claude("claude --resume=mine"), ("claude --resume=mine".into(), mine.clone()));
        let named = started("claude-code", "claude -p hi", Some("mine"));
        assert_eq!(named, ("claude --session-id mine -p hi".into(), mine));
        assert_eq!(started("gemini", "-p hi", None), ("gemini -p hi".into(), None));
        assert_eq!(started("codex", "codex exec hi", None), ("codex exec hi".into(), None));
        assert_eq!(started("command", "make test", None), ("make test".into(), None));
    }

    #[test]
    fn resuming_is_the_template_with_the_session_and_what_is_new() {
        let engines = Engines::default();
        let resumed = |engine: &str, earlier: &str, extra: &str| {
            let engine = engines.get(engine).unwrap();
            engine.resume(&words(earlier), "s1", &words(extra)).map(|made| made.command.join(" "))
        };
        let claude = resumed("claude-code", "/opt/claude --session-id s1 -p hi", "-p on");
        assert_eq!(claude.as_deref(), Some("/opt/claude --resume s1 -p on"));
        assert_eq!(resumed("gemini", "gemini -p hi", "").as_deref(), Some("gemini --resume s1"));
        let codex = resumed("codex", "codex exec hi", "on");
        assert_eq!(codex.as_deref(), Some("codex exec resume s1 on"));
        assert_eq!(resumed("command", "make", ""), None, "the same command again");
        for evil in ["--yolo", "-x", "", "a b", "a\nb"] {
            let claude = engines.get("claude-code").unwrap();
            assert_eq!(claude.resume(&words("claude"), evil, &[]), None, "{evil:?} is no session");
        }
    }

    #[test]
    fn engines_are_guessed_by_the_program_and_named_in_the_refusal() {
        let engines = Engines::default();
        let guess = |command: &str| engines.guess(&words(command)).name.clone();
        assert_eq!(guess("/usr/local/bin/claude -p x"), "claude-code");
        assert_eq!(guess("gemini"), "gemini");
        assert_eq!(guess("codex-like"), COMMAND);
        let refused = engines.get("cursor").unwrap_err().to_string();
        assert_eq!(refused, "there is no engine 'cursor'; there are: claude-code, codex, command, gemini");
    }

    #[test]
    fn the_configuration_adds_engines_and_changes_what_it_names() {
        let of = |text: &str| -> BTreeMap<String, EngineConfig> { toml::from_str(text).unwrap() };
        let own = of("[claude-code]\nwaiting_codes=[9]\n[aider]\nprogram='aider'\nactivity=['output']\n");
        assert_eq!(first_misfit(&own), None);
        let engines = Engines::new(&own);
        let claude = engines.get("claude-code").unwrap();
        assert_eq!((claude.waiting_codes.as_slice(), claude.program.as_deref()), (&[9][..], Some("claude")));
        let aider = engines.get("aider").unwrap();
        assert_eq!(aider.start(&words("--yes"), None, "f").command, words("aider --yes"));
        assert_eq!(aider.activity, [Sign::Output]);
        for (wrong, key) in [
            ("[a]\nstart=['x']", "engines.start"),
            ("[a]\nstart=['{program}','{command}']", "engines.start"),
            ("[a]\nstart=['-c {command}','{command}']", "engines.start"),
            ("[a]\nresume=['x']", "engines.resume"),
            ("[a]\nwaiting_codes=[0]", "engines.waiting_codes"),
            ("[a]\nwaiting_codes=[256]", "engines.waiting_codes"),
            ("[a]\nprogram=''", "engines.program"),
            ("['A b']", "engines"),
        ] {
            assert_eq!(first_misfit(&of(wrong)).map(|found| found.0), Some(key), "{wrong}");
        }
    }
}
