//! What must hold of a definition beyond its shape: names, what refers to what, limits, and that every template parses.
//! It says all that it finds, by path; [`super::parse`] knows where that is in the text.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::graph::Order;
use super::inputs::fits;
use super::mistake::{Findings, Way, brief, did_you_mean, some_of};
use super::shape::LONGEST_SECONDS;
use super::template::{self, TemplateError};
use super::{
    Agent, Await, Awaited, Care, Cascade, Command, DEEPEST, Input, OnTimeout, Phase, Question, QuestionKind,
    Sensor, SubCascade, Task, TaskWork, Work,
};
use crate::sandbox::OURS;
use crate::session::answer::{Asked, Reply};

/// Phases of a definition, with those of its sub-cascades.
pub(super) const MOST_PHASES: usize = 10_000;
/// Tasks of one level.
pub(super) const MOST_TASKS: usize = 20_000;

/// What every template can name.
const EVERYWHERE: &[&str] = &["inputs", "outputs", "session", "range", "dict"];
/// What the `outputs` of a phase or a task can name besides, by what it does.
const OF_A_COMMAND: &[&str] = &["stdout", "json", "exit_code"];
const OF_A_LEVEL: &[&str] = &["tasks"];
const OF_A_WAIT: &[&str] = &["answer", "payload", "answered_by"];
const OF_A_CASCADE: &[&str] = &["result"];

fn known_at_its_end(work: &Work) -> &'static [&'static str] {
    match work {
        Work::Run(_) | Work::Agent(_) => OF_A_COMMAND,
        Work::Tasks(_) => OF_A_LEVEL,
        Work::Await(_) => OF_A_WAIT,
        Work::Cascade(_) => OF_A_CASCADE,
        Work::Set(_) => &[],
    }
}

const THROUGH_ENV: &str =
    "values reach a shell line through env: (write \"$NAME\" in the line), or write run as a list";

#[derive(Debug, Default)]
pub(super) struct Checker {
    pub(super) findings: Findings,
    phases: usize,
}

/// Where a template stands: what it may name depends on it.
#[derive(Clone, Copy)]
struct Here<'a> {
    cascade: &'a Cascade,
    order: &'a Order<'a>,
    /// Absent: after all of them.
    phase: Option<usize>,
    own: &'static [&'static str],
}

impl<'a> Here<'a> {
    fn ending(self, own: &'static [&'static str]) -> Self {
        Self { own, ..self }
    }
}

pub(super) fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

impl Checker {
    pub(super) fn cascade(&mut self, cascade: &Cascade, way: &Way<'_>, depth: usize) {
        if depth > DEEPEST {
            self.findings.say(way, format!("sub-cascades go deeper than {DEEPEST}"));
            return;
        }
        self.name(&cascade.cascade_id, &way.key("cascade_id"), "a cascade_id");
        self.inputs(&cascade.inputs, &way.key("inputs"));
        self.workers(cascade, &way.key("workers"));
        let phases_way = way.key("phases");
        if cascade.phases.is_empty() {
            self.findings.say(&phases_way, "a cascade needs at least one phase");
        }
        self.phases = self.phases.saturating_add(cascade.phases.len());
        if self.phases > MOST_PHASES {
            let message = format!("more than {MOST_PHASES} phases, with those of sub-cascades");
            let suggestion = "make tasks of a level of those that may run side by side".to_owned();
            self.findings.advise(&phases_way, message, Some(suggestion));
            return;
        }
        self.unique(cascade.phases.iter().map(|phase| phase.name.as_str()), &phases_way, "name", "phase");
        let order = Order::find(cascade, way, &mut self.findings);
        for (n, phase) in cascade.phases.iter().enumerate() {
            let here = Here { cascade, order: &order, phase: Some(n), own: &[] };
            self.phase(phase, &phases_way.index(n), here, depth);
        }
        let at_the_end = Here { cascade, order: &order, phase: None, own: &[] };
        self.outputs(&cascade.outputs, &way.key("outputs"), at_the_end);
    }

    fn name(&mut self, name: &str, way: &Way<'_>, what: &str) {
        if name.is_empty() {
            self.findings.say(way, format!("{what} must not be empty"));
        } else if !is_name(name) {
            let message = format!("'{}' is not {what}: 1 to 64 of A-Z a-z 0-9 _ . -", brief(name));
            self.findings.say(way, message);
        }
    }

    fn unique<'a>(&mut self, names: impl Iterator<Item = &'a str>, way: &Way<'_>, key: &str, what: &str) {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (n, name) in names.enumerate() {
            self.name(name, &way.index(n).key(key), &format!("the {key} of a {what}"));
            if let Some(first) = seen.get(name).copied().filter(|_| !name.is_empty()) {
                let message =
                    format!("another {what} is called '{}' already: number {}", brief(name), first + 1);
                self.findings.say(&way.index(n).key(key), message);
            }
            seen.entry(name).or_insert(n);
        }
    }

    fn inputs(&mut self, inputs: &BTreeMap<String, Input>, way: &Way<'_>) {
        for (name, input) in inputs {
            let way = way.key(name);
            self.name(name, &way, "the name of an input");
            let bare = Input { options: Vec::new(), ..input.clone() };
            for (n, option) in input.options.iter().enumerate() {
                if let Err(reason) = fits(&bare, option) {
                    self.findings.say(&way.key("options").index(n), reason);
                }
            }
            if let Some(Err(reason)) = input.default.as_ref().map(|default| fits(input, default)) {
                self.findings.say(&way.key("default"), reason);
            }
        }
    }

    fn workers(&mut self, cascade: &Cascade, way: &Way<'_>) {
        let workers = &cascade.workers;
        if !(1..=10_000).contains(&workers.count) {
            self.findings.say(&way.key("count"), "must be a whole number from 1 to 10000");
        }
        if let Some(provider) = &workers.provider {
            self.name(provider, &way.key("provider"), "a provider");
        }
        if workers.image.as_deref() == Some("") {
            self.findings.say(&way.key("image"), "must not be empty");
        }
        for (n, secret) in workers.secrets.iter().enumerate() {
            self.name(secret, &way.key("secrets").index(n), "the name of a secret");
        }
        let (resources, way) = (&workers.resources, way.key("resources"));
        if resources.cpu_cores.is_some_and(|cores| !cores.is_finite() || cores <= 0.0) {
            self.findings.say(&way.key("cpu_cores"), "must be more than 0");
        }
        if resources.memory_mb.is_some_and(|memory| memory <= 0) {
            self.findings.say(&way.key("memory_mb"), "must be more than 0");
        }
    }

    fn phase(&mut self, phase: &Phase, way: &Way<'_>, here: Here<'_>, depth: usize) {
        if let Some(when) = &phase.when {
            self.parsed(template::names_of_condition(when), &way.key("when"), here);
        }
        let cares = matches!(phase.work, Work::Run(_) | Work::Agent(_));
        match &phase.work {
            Work::Run(command) => self.command(command, &way.key("run"), here),
            Work::Agent(agent) => self.agent(agent, &way.key("agent"), here),
            Work::Tasks(tasks) => self.level(tasks, &way.key("tasks"), here),
            Work::Await(waiting) => {
                self.waiting(waiting, phase.care.timeout_seconds.is_some(), &way.key("await"), here);
            }
            Work::Cascade(sub) => self.sub_cascade(sub, &way.key("cascade"), here, depth),
            Work::Set(values) => self.outputs(values, &way.key("set"), here),
        }
        self.care(&phase.care, way, here);
        if !cares {
            self.misplaced(phase, way);
        }
        self.outputs(&phase.outputs, &way.key("outputs"), here.ending(known_at_its_end(&phase.work)));
    }

    /// What only a command can have.
    fn misplaced(&mut self, phase: &Phase, way: &Way<'_>) {
        let (care, kind) = (&phase.care, kind(&phase.work));
        let waiting = match &phase.work {
            Work::Await(waiting) => Some(&waiting.awaited),
            _ => None,
        };
        let (awaits, looks) =
            (waiting.is_some(), matches!(waiting, Some(Awaited::Sensor(Sensor::Command { .. }))));
        if matches!(waiting, Some(Awaited::Sensor(_))) && !phase.outputs.is_empty() {
            self.findings.say(&way.key("outputs"), "a sensor gives nothing but 'timed_out'");
        }
        let there = [
            ("env", !care.env.is_empty() && !looks),
            ("workdir", care.workdir.is_some() && !looks),
            ("verify", care.verify.is_some()),
            ("retry", !care.retry.is_none()),
            ("timeout", care.timeout_seconds.is_some() && !awaits),
        ];
        for (key, _) in there.into_iter().filter(|(_, is)| *is) {
            let suggestion = match phase.work {
                Work::Tasks(_) => "give it to each of the tasks",
                Work::Cascade(_) => "give it to the phases of the sub-cascade",
                _ => "it is for run, agent and each of tasks",
            };
            let message = format!("a phase with '{kind}' has no '{key}'");
            self.findings.advise(&way.key(key), message, Some(suggestion.to_owned()));
        }
    }

    fn level(&mut self, tasks: &[Task], way: &Way<'_>, here: Here<'_>) {
        if tasks.is_empty() {
            self.findings.say(way, "a level needs at least one task");
        }
        if tasks.len() > MOST_TASKS {
            self.findings.say(way, format!("more than {MOST_TASKS} tasks in one level"));
            return;
        }
        self.unique(tasks.iter().map(|task| task.id.as_str()), way, "id", "task");
        for (n, task) in tasks.iter().enumerate() {
            let way = way.index(n);
            match &task.work {
                TaskWork::Run(command) => self.command(command, &way.key("run"), here),
                TaskWork::Agent(agent) => self.agent(agent, &way.key("agent"), here),
            }
            self.care(&task.care, &way, here);
            self.outputs(&task.outputs, &way.key("outputs"), here.ending(OF_A_COMMAND));
        }
    }

    fn care(&mut self, care: &Care, way: &Way<'_>, here: Here<'_>) {
        let env = way.key("env");
        for (name, value) in &care.env {
            let way = env.key(name);
            let fine = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
            if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.bytes().all(fine) {
                let message = format!("'{}' is not the name of a variable: A-Z a-z 0-9 _", brief(name));
                self.findings.say(&way, message);
            } else if name.starts_with(OURS) {
                let message = format!("'{}' is ours to set: no variable begins with {OURS}", brief(name));
                self.findings.say(&way, message);
            }
            self.template(value, &way, here);
            self.no_nul(value, &way);
        }
        if let Some(workdir) = &care.workdir {
            self.template(workdir, &way.key("workdir"), here);
        }
        if let Some(verify) = &care.verify {
            self.command(verify, &way.key("verify"), here);
        }
        let retry = way.key("retry");
        for (key, seconds) in
            [("base_seconds", care.retry.base_seconds), ("max_seconds", care.retry.max_seconds)]
        {
            if !(0.0..=604_800.0).contains(&seconds) {
                self.findings.say(&retry.key(key), "must be a number from 0 to 604800");
            }
        }
        if care.retry.max > 1000 {
            self.findings.say(&retry.key("max"), "must be a whole number from 0 to 1000");
        }
        self.seconds(care.timeout_seconds, &way.key("timeout"));
    }

    fn seconds(&mut self, seconds: Option<u64>, way: &Way<'_>) {
        if seconds.is_some_and(|seconds| !(1..=LONGEST_SECONDS).contains(&seconds)) {
            self.findings.say(way, format!("must be from 1 to {LONGEST_SECONDS} seconds"));
        }
    }

    fn command(&mut self, command: &Command, way: &Way<'_>, here: Here<'_>) {
        match command {
            Command::Line(line) => {
                if line.trim().is_empty() {
                    self.findings.say(way, "a command must not be empty");
                }
                if line.contains("{{") || line.contains("{%") {
                    let message = "a shell line is never changed, so a template in it would mean nothing";
                    self.findings.advise(way, message, Some(THROUGH_ENV.to_owned()));
                }
                self.no_nul(line, way);
            }
            Command::Vector(parts) => {
                if parts.first().is_none_or(|program| program.trim().is_empty()) {
                    self.findings.say(way, "a command must not be empty");
                }
                let script = shell_script(parts);
                for (n, part) in parts.iter().enumerate() {
                    let way = way.index(n);
                    if script == Some(n) && template::is_template(part) {
                        let message = "a value would become a part of what a shell runs";
                        let suggestion = "give it as a further argument and write \"$1\", or through env:";
                        self.findings.advise(&way, message, Some(suggestion.to_owned()));
                        continue;
                    }
                    self.template(part, &way, here);
                    self.no_nul(part, &way);
                }
            }
        }
    }

    /// No argument and no variable of a process can hold one.
    fn no_nul(&mut self, text: &str, way: &Way<'_>) {
        if text.contains('\0') {
            self.findings.say(way, "has a NUL character in it, which no command can be given");
        }
    }

    fn agent(&mut self, agent: &Agent, way: &Way<'_>, here: Here<'_>) {
        self.name(&agent.engine, &way.key("engine"), "the name of an engine");
        if agent.prompt.trim().is_empty() {
            self.findings.say(&way.key("prompt"), "a prompt must not be empty");
        }
        self.template(&agent.prompt, &way.key("prompt"), here);
        let arguments = way.key("arguments");
        for (n, argument) in agent.arguments.iter().enumerate() {
            self.template(argument, &arguments.index(n), here);
        }
    }

    fn waiting(&mut self, waiting: &Await, has_timeout: bool, way: &Way<'_>, here: Here<'_>) {
        match &waiting.awaited {
            Awaited::Signal(name) => self.called(name, &way.key("signal"), "a signal", here),
            Awaited::Approval(what) => {
                self.called(what, &way.key("approval"), "what is to be approved", here)
            }
            Awaited::Checkpoint(name) => self.called(name, &way.key("checkpoint"), "a checkpoint", here),
            Awaited::Hitl(question) => self.question(question, &way.key("hitl"), here),
            Awaited::Sensor(sensor) => self.sensor(sensor, &way.key("sensor"), here),
        }
        if let Some(description) = &waiting.description {
            self.template(description, &way.key("description"), here);
        }
        let on_timeout = way.key("on_timeout");
        if waiting.on_timeout != OnTimeout::Fail && !has_timeout {
            let message = format!("'{}' without a timeout never happens", waiting.on_timeout);
            self.findings.advise(&on_timeout, message, Some("add 'timeout: 1h' to the phase".to_owned()));
        }
        match (&waiting.default, waiting.on_timeout) {
            (None, OnTimeout::Default) => {
                self.findings.say(&on_timeout, "needs 'default': what is taken when nobody answers in time");
            }
            (Some(_), OnTimeout::Fail | OnTimeout::Continue) => {
                let suggestion = Some("on_timeout: default".to_owned());
                self.findings.advise(
                    &way.key("default"),
                    "means nothing without 'on_timeout: default'",
                    suggestion,
                );
            }
            (Some(default), OnTimeout::Default) if has_template(default) => {
                self.value(default, &way.key("default"), here);
            }
            (Some(default), OnTimeout::Default) => {
                let fits = match &waiting.awaited {
                    Awaited::Hitl(question) => {
                        let asked = Asked::Question(question.clone());
                        match asked.read(&Reply::Value(default.clone())) {
                            Ok(read) if read == *default => Ok(()),
                            _ => Err(format!("must be {}", asked.fits())),
                        }
                    }
                    Awaited::Approval(_) | Awaited::Checkpoint(_) if !default.is_boolean() => {
                        Err("must be true (approved) or false (denied)".to_owned())
                    }
                    _ => Ok(()),
                };
                if let Err(reason) = fits {
                    self.findings.say(&way.key("default"), reason);
                }
            }
            (None, _) => {}
        }
    }

    fn called(&mut self, name: &str, way: &Way<'_>, what: &str, here: Here<'_>) {
        if name.trim().is_empty() {
            self.findings.say(way, format!("{what} must not be empty"));
        }
        self.template(name, way, here);
    }

    fn question(&mut self, question: &Question, way: &Way<'_>, here: Here<'_>) {
        self.called(&question.question, &way.key("question"), "a question", here);
        let kind = question.kind;
        let chooses = matches!(kind, QuestionKind::Choice | QuestionKind::MultiChoice);
        let options = way.key("options");
        if chooses && question.options.is_empty() {
            self.findings.say(&options, format!("a question of kind {kind} needs options"));
        }
        let mut seen = std::collections::HashSet::new();
        for (n, option) in question.options.iter().enumerate() {
            if option.is_empty() || !seen.insert(option) {
                let message = if option.is_empty() { "must not be empty" } else { "is there already" };
                self.findings.say(&options.index(n), message);
            }
        }
        let rates = kind == QuestionKind::Rating;
        let there = [
            ("options", !question.options.is_empty() && !chooses, "choice and multi_choice"),
            ("min", question.min.is_some() && !rates, "rating"),
            ("max", question.max.is_some() && !rates, "rating"),
            ("pattern", question.pattern.is_some() && kind != QuestionKind::Text, "text"),
        ];
        for (key, _, of) in there.into_iter().filter(|(_, is, _)| *is) {
            let message = format!("a question of kind {kind} has no '{key}'; it is for {of}");
            self.findings.say(&way.key(key), message);
        }
        if rates {
            for (key, bound) in [("min", question.min), ("max", question.max)] {
                if bound.is_some_and(|bound| bound.fract() != 0.0 || !bound.is_finite()) {
                    self.findings.say(&way.key(key), "must be a whole number");
                }
            }
            let (lowest, highest) = (question.min.unwrap_or(1.0), question.max.unwrap_or(5.0));
            if lowest > highest {
                let message = format!("nothing is from {lowest} to {highest}");
                self.findings.say(&way.key(if question.max.is_some() { "max" } else { "min" }), message);
            }
        }
        if let Some(Err(reason)) = question.pattern.as_deref().map(pattern) {
            self.findings.say(&way.key("pattern"), reason);
        }
    }

    fn sensor(&mut self, sensor: &Sensor, way: &Way<'_>, here: Here<'_>) {
        match sensor {
            Sensor::Command { run, every_seconds } => {
                let way = way.key("command");
                self.command(run, &way.key("run"), here);
                self.seconds(Some(*every_seconds), &way.key("every"));
            }
            Sensor::Time { at, after_seconds } => {
                let way = way.key("time");
                if at.is_some() == after_seconds.is_some() {
                    self.findings.say(&way, "needs either 'at' (a moment) or 'after' (a duration)");
                }
                self.seconds(*after_seconds, &way.key("after"));
                let Some(at) = at else { return };
                self.template(at, &way.key("at"), here);
                if !template::is_template(at) && crate::time::from_text(at).is_err() {
                    let suggestion = Some("as in 2026-01-21T14:30:00Z".to_owned());
                    self.findings.advise(
                        &way.key("at"),
                        format!("'{}' is not a moment", brief(at)),
                        suggestion,
                    );
                }
            }
        }
    }

    fn sub_cascade(&mut self, sub: &SubCascade, way: &Way<'_>, here: Here<'_>, depth: usize) {
        let inputs = way.key("inputs");
        for (name, value) in &sub.inputs {
            self.value(value, &inputs.key(name), here);
        }
        let Some(definition) = &sub.definition else {
            match &sub.file {
                Some(file) => self.findings.advise(
                    &way.key("file"),
                    format!("the file '{}' is not here", brief(file)),
                    Some(
                        "parhelia run reads it and sends its definition; otherwise give 'definition'"
                            .to_owned(),
                    ),
                ),
                None => self.findings.say(way, "a sub-cascade needs 'file' or 'definition'"),
            }
            return;
        };
        for (name, value) in &sub.inputs {
            let way = inputs.key(name);
            match definition.inputs.get(name) {
                None => {
                    let known = definition.inputs.keys().map(String::as_str);
                    let suggestion = did_you_mean(name, known.clone());
                    let message =
                        format!("the sub-cascade has no input '{}'; it has {}", brief(name), some_of(known));
                    self.findings.advise(&way, message, suggestion);
                }
                Some(input) if !has_template(value) => {
                    if let Err(reason) = fits(input, value) {
                        self.findings.say(&way, reason);
                    }
                }
                Some(_) => {}
            }
        }
        for (name, input) in &definition.inputs {
            if input.default.is_none() && !sub.inputs.contains_key(name) {
                self.findings.say(&inputs, format!("the sub-cascade needs the input '{}'", brief(name)));
            }
        }
        self.cascade(definition, &way.key("definition"), depth + 1);
    }

    fn outputs(&mut self, values: &BTreeMap<String, Value>, way: &Way<'_>, here: Here<'_>) {
        for (name, value) in values {
            let way = way.key(name);
            self.name(name, &way, "the name of an output");
            self.value(value, &way, here);
        }
    }

    fn value(&mut self, value: &Value, way: &Way<'_>, here: Here<'_>) {
        match value {
            Value::String(text) => self.template(text, way, here),
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(n, item)| self.value(item, &way.index(n), here));
            }
            Value::Object(map) => map.iter().for_each(|(key, item)| self.value(item, &way.key(key), here)),
            _ => {}
        }
    }

    fn template(&mut self, text: &str, way: &Way<'_>, here: Here<'_>) {
        if template::is_template(text) {
            self.parsed(template::names(text), way, here);
        }
    }

    fn parsed(&mut self, names: Result<Vec<String>, TemplateError>, way: &Way<'_>, here: Here<'_>) {
        match names {
            Ok(names) => names.iter().for_each(|name| self.refers(name, way, here)),
            Err(error) => self.findings.say(way, error.to_string()),
        }
    }

    /// Whether what a template names can be there when it is filled in.
    fn refers(&mut self, dotted: &str, way: &Way<'_>, here: Here<'_>) {
        if self.findings.is_full() {
            return;
        }
        let mut parts = dotted.split('.');
        let (root, second, rest) = (parts.next().unwrap_or_default(), parts.next(), parts);
        let roots = EVERYWHERE.iter().chain(here.own).copied();
        if !roots.clone().any(|known| known == root) {
            let message =
                format!("a template here knows no '{}'; it knows {}", brief(root), some_of(roots.clone()));
            let ends = [OF_A_COMMAND, OF_A_LEVEL, OF_A_WAIT, OF_A_CASCADE];
            let suggestion = if here.own.is_empty() && ends.iter().any(|own| own.contains(&root)) {
                Some(format!("'{root}' is known in the 'outputs' of what it is of"))
            } else {
                let other = here.cascade.inputs.contains_key(root).then(|| format!("write inputs.{root}"));
                let phase = || here.order.place(root).map(|_| format!("write outputs.{root}"));
                other.or_else(phase).or_else(|| did_you_mean(root, roots))
            };
            self.findings.advise(way, message, suggestion);
            return;
        }
        match (root, second) {
            ("inputs", Some(name)) if !here.cascade.inputs.contains_key(name) => {
                let known = here.cascade.inputs.keys().map(String::as_str);
                let message =
                    format!("there is no input '{}'; there is {}", brief(name), some_of(known.clone()));
                let suggestion = quoted("inputs", name, known.clone()).or_else(|| did_you_mean(name, known));
                self.findings.advise(way, message, suggestion);
            }
            ("outputs", Some(name)) => self.refers_to_phase(name, rest, way, here),
            _ => {}
        }
    }

    fn refers_to_phase<'n>(
        &mut self,
        name: &str,
        mut rest: impl Iterator<Item = &'n str>,
        way: &Way<'_>,
        here: Here<'_>,
    ) {
        let Some(place) = here.order.place(name) else {
            let known = here.cascade.phases.iter().map(|phase| phase.name.as_str());
            let suggestion = quoted("outputs", name, known.clone()).or_else(|| did_you_mean(name, known));
            self.findings.advise(way, format!("there is no phase '{}'", brief(name)), suggestion);
            return;
        };
        if let Some(key) = rest.next() {
            self.refers_to_output(place, key, rest.next(), way, here);
        }
        let Some(phase) = here.phase else { return };
        if place == phase {
            let suggestion = Some("its own values have no prefix: stdout, exit_code, answer, …".to_owned());
            self.findings.advise(way, format!("'{name}' is this phase itself"), suggestion);
        } else if !here.order.is_before(place, phase) {
            let message = format!("'{name}' need not be over when this phase begins");
            self.findings.advise(way, message, Some(format!("add '{name}' to its needs")));
        }
    }
}

impl Checker {
    /// Whether a phase will have this among its outputs, and a task of it that.
    fn refers_to_output(
        &mut self,
        place: usize,
        key: &str,
        within: Option<&str>,
        way: &Way<'_>,
        here: Here<'_>,
    ) {
        let Some(phase) = here.cascade.phases.get(place) else { return };
        if phase.outputs.contains_key(key) {
            return;
        }
        if let Some(task) = here.order.task(place, key) {
            if let Some(within) = within.filter(|within| !task.outputs.contains_key(*within)) {
                let known = some_of(task.outputs.keys().map(String::as_str));
                let message = format!("task '{key}' gives no '{}'; it gives {known}", brief(within));
                self.findings.advise(way, message, Some(format!("say what '{within}' is in its 'outputs'")));
            }
            return;
        }
        let gives = gives(phase);
        if !gives.contains(&key) {
            let known = some_of(gives.clone());
            let message =
                format!("phase '{}' gives no '{}'; it gives {known}", brief(&phase.name), brief(key));
            let suggestion = quoted(&format!("outputs.{}", phase.name), key, gives.clone())
                .or_else(|| did_you_mean(key, gives))
                .or_else(|| Some(format!("say what '{}' is in its 'outputs'", brief(key))));
            self.findings.advise(way, message, suggestion);
        }
    }
}

/// The names of a phase's outputs: those by its nature, and those that it declares.
fn gives(phase: &Phase) -> Vec<&str> {
    let mut names: Vec<&str> = match &phase.work {
        Work::Run(_) | Work::Agent(_) => Vec::new(),
        Work::Tasks(tasks) => tasks.iter().map(|task| task.id.as_str()).collect(),
        Work::Await(waiting) => match waiting.awaited {
            Awaited::Signal(_) => vec!["payload", "timed_out"],
            Awaited::Approval(_) | Awaited::Checkpoint(_) => vec!["approved", "by", "reason", "timed_out"],
            Awaited::Hitl(_) => vec!["answer", "by", "timed_out"],
            Awaited::Sensor(_) => vec!["timed_out"],
        },
        Work::Cascade(sub) => sub
            .definition
            .iter()
            .flat_map(|definition| definition.outputs.keys().map(String::as_str))
            .collect(),
        Work::Set(values) => values.keys().map(String::as_str).collect(),
    };
    names.extend(phase.outputs.keys().map(String::as_str));
    names
}

/// For the whole of an answer.
fn pattern(text: &str) -> Result<(), String> {
    regex::RegexBuilder::new(&format!("^(?:{text})$")).size_limit(1 << 20).build().map(|_| ()).map_err(
        |error| {
            // The lines before repeat the expression with what we put around it.
            let reason = error.to_string();
            let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            format!("'{}' is not a regular expression: {reason}", brief(text))
        },
    )
}

/// `outputs.build-it` is a subtraction to a template.
fn quoted<'a>(root: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let meant = known
        .into_iter()
        .find(|known| known.strip_prefix(name).is_some_and(|rest| rest.starts_with(['-', '.'])))?;
    Some(format!("write {root}['{meant}']"))
}

fn has_template(value: &Value) -> bool {
    match value {
        Value::String(text) => template::is_template(text),
        Value::Array(items) => items.iter().any(has_template),
        Value::Object(map) => map.values().any(has_template),
        _ => false,
    }
}

/// The place of what a shell is told to run, in `[sh, -c, …]`.
fn shell_script(parts: &[String]) -> Option<usize> {
    let program = parts.first()?.rsplit('/').next()?;
    if !["sh", "bash", "dash", "zsh", "ksh", "ash", "busybox", "fish"].contains(&program) {
        return None;
    }
    let flag = parts
        .iter()
        .position(|part| part.starts_with('-') && !part.starts_with("--") && part.ends_with('c'))?;
    Some(flag + 1)
}

pub(super) fn kind(work: &Work) -> &'static str {
    match work {
        Work::Run(_) => "run",
        Work::Agent(_) => "agent",
        Work::Tasks(_) => "tasks",
        Work::Await(_) => "await",
        Work::Cascade(_) => "cascade",
        Work::Set(_) => "set",
    }
}
